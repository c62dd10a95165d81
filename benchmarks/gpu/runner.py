"""The run of all steps: a process for each, with a limit, and one document of what they recorded."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal

from benchmarks.gpu.options import GpuOptions
from benchmarks.gpu.results import Results, SkippedError, read_results, results_path, rounded
from benchmarks.gpu.step_list import GpuStep

ROOT = Path(__file__).resolve().parents[2]
LEAST_S = 10.0  # imports of torch and transformers take about half of it
_GRACE_S = 10.0  # for a step to end its own children
_SMALL = 3  # multiple of limits: small steps are tried on busy machines
_LINES = 15  # of a failed step's output

Outcome = Literal["ok", "failed", "timeout", "skipped"]


@dataclass(frozen=True, kw_only=True)
class StepResult:
    """What became of a step."""

    step: str
    outcome: Outcome
    seconds: float = 0.0
    why: str = ""  # of any other outcome than ok
    results: Sequence[dict[str, Any]] = ()


def run_steps(
    steps: Sequence[GpuStep], options: GpuOptions, limit_s: float, on_result: Callable[[StepResult], None]
) -> Iterator[StepResult]:
    """Yield the result of each step, whatever becomes of the others.

    Args:
        steps: in order.
        options: of all.
        limit_s: of all steps together.
        on_result: called with each result.
    """
    end = time.monotonic() + limit_s
    for step in steps:
        left = end - time.monotonic()
        if step.missing:
            result = StepResult(step=step.name, outcome="skipped", why=f"{', '.join(step.missing)} is not installed")
        elif left < LEAST_S:
            result = StepResult(step=step.name, outcome="skipped", why="no time left; give it with --only")
        else:
            result = run_step(step, options, min(step.limit_s * (_SMALL if options.small else 1), left))
        on_result(result)
        yield result


def run_step(step: GpuStep, options: GpuOptions, limit_s: float) -> StepResult:
    """Run a step in a process of its own, which is ended after `limit_s`."""
    results_path(options.folder, step.name).unlink(missing_ok=True)
    log = options.folder / f"{step.name}.log"
    command = [sys.executable, "-m", "benchmarks.gpu.runner", json.dumps(asdict(step)), options.to_json()]
    paths = os.pathsep.join([str(ROOT), *(path for path in [os.environ.get("PYTHONPATH")] if path)])
    began = time.monotonic()
    with log.open("wb") as output:
        process = subprocess.Popen(
            command,
            env={**os.environ, "PYTHONPATH": paths},
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        try:
            code: int | None = process.wait(limit_s)
        except subprocess.TimeoutExpired:
            code = None
        finally:
            _end(process)
    results = read_results(options.folder, step.name)
    outcome, why = _outcome(results, code, limit_s, log)
    return StepResult(
        step=step.name, outcome=outcome, why=why, seconds=time.monotonic() - began, results=[*_shown(results)]
    )


def document(options: GpuOptions, results: Sequence[StepResult]) -> dict[str, Any]:
    """Return everything as one document."""
    steps = {result.step: {key: value for key, value in asdict(result).items() if key != "step"} for result in results}
    settings = {"device": options.device, "small": options.small, "compile": options.compile}
    figures: dict[str, Any] = rounded({**settings, "profile": options.profile, "steps": steps})
    return figures


def _outcome(results: Sequence[dict[str, Any]], code: int | None, limit_s: float, log: Path) -> tuple[Outcome, str]:
    if code is None:
        return "timeout", f"it took longer than {limit_s:.0f} s"
    if skipped := next((result["skipped"] for result in results if "skipped" in result), None):
        return "skipped", skipped
    if code:
        lines = log.read_text(errors="replace").strip().splitlines()[-_LINES:]
        return "failed", "\n".join([f"exit code {code}", *lines])
    failed = sum(result.get("ok") is False for result in results)
    return ("failed", f"{failed} of its checks") if failed else ("ok", "")


def _shown(results: Sequence[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    return (result for result in results if "skipped" not in result)


def _end(process: subprocess.Popen[bytes]) -> None:
    """End what is left of a step's processes."""
    for number in (signal.SIGTERM, signal.SIGKILL):
        with suppress(ProcessLookupError):
            os.killpg(process.pid, number)
        with suppress(subprocess.TimeoutExpired):
            process.wait(_GRACE_S)


def main() -> None:
    """Run one step in this process."""
    step, options = GpuStep(**json.loads(sys.argv[1])), GpuOptions.from_json(sys.argv[2])
    record = Results(results_path(options.folder, step.name)).record
    try:
        step.load()(options, record)
    except SkippedError as reason:
        record(skipped=str(reason))


if __name__ == "__main__":
    main()
