"""Command lines of Nsight's tools, as lists of words.

    nsys, external   the whole process is recorded
    nsys, inline     only what lies between two calls of CUDA's profiler interface: the calls after the warm-up
    ncu              a few kernels after the warm-up; each is run several times, so its times are no latencies

`--capture-range-end=stop` keeps nsys from ending the process with the range, before it has written its results.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from framekiln.lab.output.cells import Cell

Mode = Literal["external", "inline"]

REPORTS = ("cuda_gpu_kern_sum", "cuda_gpu_mem_time_sum", "cuda_gpu_mem_size_sum", "cuda_api_sum", "nvtx_sum")
KERNELS = 20  # launches that ncu repeats: one call's first blocks, about a minute
_SECTIONS = (  # what the rules read: peaks and occupancy, tensor cores, hits of the caches, bytes of a sector
    *("SpeedOfLight", "LaunchStats", "Occupancy"),
    *("ComputeWorkloadAnalysis", "MemoryWorkloadAnalysis", "MemoryWorkloadAnalysis_Tables"),
)


@dataclass(frozen=True, kw_only=True)
class Target:
    """The calls that are recorded."""

    model: str
    cell: Cell = field(default_factory=Cell)
    own_batch: bool = False  # that of the model instead of the cell's
    device: str = "cuda"
    weights_dir: Path | None = None
    pipeline: str | None = None  # path of the file with the step that the model may be; None for the shipped one
    inputs: Sequence[str] = ()  # media for a step; none: the sample collection

    def words(self, *, ranged: bool) -> list[str]:
        """Return the command that makes the calls; `ranged` marks them for the profiler."""
        cell = {name: value for name, value in vars(self.cell).items() if name != "batch" or not self.own_batch}
        words = [self.model, "--device", self.device, "--cell", json.dumps(cell)]
        if self.weights_dir is not None:
            words += ["--weights-dir", str(self.weights_dir)]
        if self.pipeline is not None:
            words += ["--pipeline", self.pipeline]
        words += [word for source in self.inputs for word in ("--input", source)]
        return [sys.executable, "-m", "framekiln.lab.nsight.target", *words, *["--range"] * ranged]


def nsys_command(tool: Sequence[str], target: Target, mode: Mode, report: Path) -> list[str]:
    """Return the command that records a target into `report`, a path that ends in .nsys-rep."""
    words = ["profile", "--trace=cuda,cudnn,cublas,nvtx,osrt", "--sample=none", "--force-overwrite=true"]
    if mode == "inline":
        words += ["--capture-range=cudaProfilerApi", "--capture-range-end=stop"]
    return [*tool, *words, f"--output={report.with_suffix('')}", *target.words(ranged=mode == "inline")]


def stats_command(tool: Sequence[str], report: Path) -> list[str]:
    """Return the command that exports a report to SQLite, and its tables to CSV, beside it."""
    options = ["--format=csv", "--force-export=true", "--force-overwrite=true", f"--output={report.with_suffix('')}"]
    return [*tool, "stats", f"--report={','.join(REPORTS)}", *options, str(report)]


def ncu_command(tool: Sequence[str], target: Target, report: Path) -> list[str]:
    """Return the command that records kernels of a target into `report`, a path that ends in .ncu-rep."""
    sections = [word for name in _SECTIONS for word in ("--section", name)]
    limits = ["--profile-from-start", "off", "--launch-count", str(KERNELS), "--target-processes", "all"]
    return [*tool, *sections, *limits, "--force-overwrite", "--export", str(report), *target.words(ranged=True)]


def ncu_table_command(tool: Sequence[str], report: Path) -> list[str]:
    """Return the command that prints a report as CSV, a line for each kernel."""
    return [*tool, "--import", str(report), "--csv", "--page", "raw"]
