"""Recordings of a model by Nsight's tools: commands as lists of words, run one after the other, and their reports.

    nsys, external   the whole process is recorded
    nsys, inline     only the calls after the warm-up, between two calls of CUDA's profiler interface
    ncu              a few kernels after the warm-up; each is repeated, so its times are no latencies

`--capture-range-end=stop` prevents nsys from ending the process with the range, before its results are written. The
recorded process is `python -m framekiln.lab.nsight.session TARGET`, a `Target` as JSON. Each call is an NVTX range,
named by its number. With --range, only the calls after the warm-up lie between start and stop of the interface.
"""

from __future__ import annotations

import json
import sqlite3
import subprocess
import sys
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any, Literal

from pydantic import TypeAdapter

from framekiln.contract.errors import ConfigError, SetupError
from framekiln.device import torch
from framekiln.lab.bench import recipes
from framekiln.lab.nsight.reports import KernelFigures, SystemsFigures, read_compute, read_systems
from framekiln.lab.output.cells import Cell
from framekiln.planning.manifest import read_pipeline

Mode = Literal["external", "inline"]
Done = subprocess.CompletedProcess[str]

REPORTS = ("cuda_gpu_kern_sum", "cuda_gpu_mem_time_sum", "cuda_gpu_mem_size_sum", "cuda_api_sum", "nvtx_sum")
KERNELS = 20  # launches that ncu repeats: the first blocks of one call, about a minute
_SECTIONS = (  # needed by the rules: peaks and occupancy, tensor cores, cache hits, bytes of a sector
    *("SpeedOfLight", "LaunchStats", "Occupancy"),
    *("ComputeWorkloadAnalysis", "MemoryWorkloadAnalysis", "MemoryWorkloadAnalysis_Tables"),
)
_FORBIDDEN = "ERR_NVGPUCTRPERM"  # ncu's message without permission for the GPU's counters
_OWN = ("ERROR", "==ERROR==", "Importer error", "==WARNING==")  # prefixes of the tools' own lines, the gravest first
_TIMEOUT_S = 3600.0  # s; ncu repeats each kernel up to dozens of times


@dataclass(frozen=True, kw_only=True)
class Target:
    """The recorded calls."""

    model: str
    cell: Cell = field(default_factory=Cell)
    own_batch: bool = False  # the model's own batch instead of the cell's
    device: str = "cuda"
    weights_dir: Path | None = None
    pipeline: str | None = None  # path of the pipeline file, if the model is a step; None: the shipped one
    inputs: Sequence[str] = ()  # media for a step; none: the sample collection
    calls: int = 10  # enough to show a pattern, few enough to read

    def words(self, *, ranged: bool) -> list[str]:
        """Return the command that makes the calls; `ranged` marks them for the profiler."""
        about = json.dumps(asdict(self), default=str)
        return [sys.executable, "-m", "framekiln.lab.nsight.session", about, *["--range"] * ranged]


@dataclass(kw_only=True)
class NsightRecorder:
    """Recordings in one folder; `note` gets a sentence about each deviation from the request."""

    folder: Path
    note: Callable[[str], None] = field(default=lambda _: None)

    def commands(self, tool: Sequence[str], target: Target, mode: Mode | None) -> list[list[str]]:
        """Return the commands of a recording, by nsys in a mode, or by ncu for None: record, then write its tables."""
        report, calls = self.report(target, mode), target.words(ranged=mode != "external")
        if mode is None:
            sections = [word for name in _SECTIONS for word in ("--section", name)]
            limits = ["--profile-from-start", "off", "--launch-count", str(KERNELS), "--target-processes", "all"]
            record = [*tool, *sections, *limits, "--force-overwrite", "--export", str(report), *calls]
            return [record, [*tool, "--import", str(report), "--csv", "--page", "raw"]]  # a line for each kernel
        out = f"--output={report.with_suffix('')}"
        words = ["profile", "--trace=cuda,cudnn,cublas,nvtx,osrt", "--sample=none", "--force-overwrite=true"]
        words += ["--capture-range=cudaProfilerApi", "--capture-range-end=stop"] * (mode == "inline")
        options = ["--format=csv", "--force-export=true", "--force-overwrite=true", out, str(report)]
        return [[*tool, *words, out, *calls], [*tool, "stats", f"--report={','.join(REPORTS)}", *options]]

    def report(self, target: Target, mode: Mode | None) -> Path:
        name = target.model.replace(":", "-").replace("/", "-")
        return self.folder / (f"{name}.ncu-rep" if mode is None else f"{name}.nsys-rep")

    def record_systems(self, tool: Sequence[str], target: Target, mode: Mode) -> SystemsFigures | None:
        """Record by nsys and read the export; None if no GPU operation was recorded.

        If nsys saw no range in mode inline, and so wrote no report, the whole process is recorded instead. This
        happened on Blackwell. Raises SetupError: a command failed, or its export cannot be read.
        """
        report, done = self._record(tool, target, mode)
        if mode == "inline" and not report.exists():
            self.note(f"nsys recorded no range ({_find_reason(done)}); the whole process is recorded instead.")
            return self.record_systems(tool, target, "external")
        self._read(tool, target, mode, done)
        try:
            return read_systems(report.with_suffix(".sqlite"))
        except sqlite3.Error as error:
            problem = f"The export of {report.name} cannot be read: {error}."
            raise SetupError(problem, code="FK-NSIGHT-FAILED") from error

    def record_kernels(self, tool: Sequence[str], target: Target) -> list[KernelFigures]:
        """Record kernels by ncu, keep their table as CSV, and read it.

        Raises ConfigError: this user may not read the GPU's counters. Raises SetupError: a command failed.
        """
        report, done = self._record(tool, target, None)
        if _FORBIDDEN in done.stdout + done.stderr:
            raise ConfigError(
                "--ncu: this user may not read the GPU's counters; run as root, or load the driver with "
                "NVreg_RestrictProfilingToAdminUsers=0.",
                code="FK-NCU-FORBIDDEN",
            )
        text = self._read(tool, target, None, done)
        report.with_suffix(".csv").write_text(text, encoding="utf-8")
        return read_compute(text)

    def _record(self, tool: Sequence[str], target: Target, mode: Mode | None) -> tuple[Path, Done]:
        """Run the recording command; `_read` checks its exit code, except for a range that is recorded again."""
        self.folder.mkdir(parents=True, exist_ok=True)
        report = self.report(target, mode)
        report.unlink(missing_ok=True)
        return report, _run(self.commands(tool, target, mode)[0])

    def _read(self, tool: Sequence[str], target: Target, mode: Mode | None, done: Done) -> str:
        """Return the output of the command that reads a report; both tools exit with 0 if nothing was recorded."""
        name = Path(tool[0]).name
        if mode != "inline":
            _check(name, done)
        if not (report := self.report(target, mode)).exists():
            raise SetupError(f"{name} wrote no {report.name}: {_find_reason(done)}", code="FK-NSIGHT-FAILED")
        return _check(name, _run(self.commands(tool, target, mode)[1])).stdout


def _run(command: Sequence[str]) -> Done:
    try:
        return subprocess.run(command, capture_output=True, text=True, check=False, timeout=_TIMEOUT_S)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise SetupError(f"{Path(command[0]).name} could not be run: {error}.", code="FK-NSIGHT-FAILED") from error


def _check(name: str, done: Done) -> Done:
    if done.returncode:
        raise SetupError(
            f"{name} ended with exit code {done.returncode}: {_find_reason(done)}", code="FK-NSIGHT-FAILED"
        )
    return done


def _find_reason(done: Done) -> str:
    lines = [line.strip() for line in (done.stdout + "\n" + done.stderr).splitlines() if line.strip()]
    own = (line for start in _OWN for line in lines if line.startswith(start))
    return next(own, lines[-1] if lines else "it gave no reason")


_WARM_UP = 3  # calls: the first loads kernels and chooses algorithms


def main(words: Sequence[str]) -> int:
    """Make the calls, and return their number."""
    target = TypeAdapter(Target).validate_json(words[0])
    profiler: Any = torch.cuda.profiler
    pipeline, ranged = read_pipeline(target.pipeline), "--range" in words[1:] and target.device != "cpu"
    with recipes([target.model], pipeline, target.device, target.inputs, target.weights_dir) as (model,):
        batch = (model.about()["axes"].get("batch") or 1) if target.own_batch else target.cell.batch
        prepared = model.prepare(replace(target.cell, batch=batch), target.device)
        for number in range(_WARM_UP):
            _mark(target.device, f"warm-up {number + 1}", prepared.call)
        prepared.wait()
        if ranged:
            profiler.start()
        for number in range(target.calls):
            _mark(target.device, f"call {number + 1}", prepared.call)
            prepared.wait()
        if ranged:
            profiler.stop()
        return target.calls


def _mark(device: str, name: str, call: Callable[[], object]) -> None:
    with torch.cuda.nvtx.range(name) if device != "cpu" else nullcontext():
        call()


if __name__ == "__main__":
    main(sys.argv[1:])
