"""The steps by name, and their run: a process for each, with a limit, and one document of what they recorded."""

from __future__ import annotations

import importlib
import importlib.util
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from typing import Any, Literal

from benchmarks.gpu.options import GpuOptions, Recorder, Results, SkippedError, read_results, results_path, rounded
from framekiln.lab.sweep.runner import reason_of
from framekiln.runtime.recovery.captured_error import CapturedError
from framekiln.runtime.recovery.child_process import HUNG, ChildDied, ChildProcess
from framekiln.weights.checksums import cache_root

LEAST_S = 10.0  # imports of torch and transformers take about half of it
_QUIET_S = 30.0  # without a result, until a line tells that the step goes on
_LAST = 2000  # letters of what a step printed before its end
_SLOW = 3  # multiple of limits where processes are set up one after the other; small steps are tried on busy machines

CaseOutcome = Literal["ok", "failed", "timeout", "skipped"]


@dataclass(frozen=True, kw_only=True)
class GpuStep:
    """One step: a function that records its figures, in a process of its own."""

    name: str
    use: str  # module:function
    about: str
    limit_s: float  # the process is ended after it
    needs: tuple[str, ...] = ()  # packages without which it is skipped

    def load(self) -> Callable[[GpuOptions, Recorder], None]:
        """Return the function."""
        module, _, name = self.use.partition(":")
        function: Callable[[GpuOptions, Recorder], None] = getattr(importlib.import_module(module), name)
        return function

    def run(self, options: GpuOptions) -> None:
        """Record its figures in this process."""
        self.load()(options, Results(results_path(options.folder, self.name)).record)
        if options.words and not read_results(options.folder, self.name):
            raise SkippedError(f"no case has {' or '.join(options.words)} in its title")

    def most_s(self, at_once: int) -> float:
        """Return the limit where so many processes are set up side by side."""
        return self.limit_s * (_SLOW if at_once == 1 else 1)

    @property
    def missing(self) -> list[str]:
        """Packages that are needed and not installed."""
        return [name for name in self.needs if importlib.util.find_spec(name) is None]


def _step(name: str, limit_s: float, about: str, *needs: str, use: str = "") -> GpuStep:
    use = f"benchmarks.gpu.steps.{use or f'{name}:measure'}"
    return GpuStep(name=name, use=use, about=about, limit_s=limit_s, needs=needs)


STEPS = (  # limits hold the set-up of a machine that has nothing cached: imports, weights, a context, compiled code
    _step("machine", 60, "versions, and rates of copies, of memory and of matrix products"),
    _step("equality", 280, "each stage on the GPU against fp32 on the CPU; uploads in turns"),
    _step("warm_up", 280, "set-up and first call of compiled stages; code is kept for the steps below and later calls"),
    _step("ceilings", 280, "each model alone, on its own terms"),
    _step("shares", 290, "each stage as a worker runs it, against its model's ceiling"),
    _step("memory", 150, "limits on memory: they are kept, and no row is lost"),
    _step("processes", 150, "one process on the GPU against two", use="shares:measure_processes"),
    _step("engine", 240, "a run over 6,000 photos: start-up, steady rate, tail", "ray"),
    _step(
        "capped",
        290,
        "all stages on GPUs of 8 and 16 GB, against what was planned and predicted",
        "ray",
        use="engine:measure_capped",
    ),
    _step("calibration", 240, "a calibration, and what it predicts", "ray", use="engine:measure_calibration"),
)
"""In the order in which they run; a later one may read what an earlier one recorded or wrote."""


@dataclass(frozen=True, kw_only=True)
class StepResult:
    """What became of a step."""

    step: str
    outcome: CaseOutcome
    seconds: float = 0.0
    why: str = ""  # of any other outcome than ok
    results: Sequence[dict[str, Any]] = ()


Show = Callable[[dict[str, Any]], None]
"""Shows one line of results."""


def run_steps(steps: Sequence[GpuStep], options: GpuOptions, limit_s: float, show: Show) -> Iterator[StepResult]:
    """Yield the result of each step in order, whatever becomes of the others; `limit_s` is of all together."""
    end = time.monotonic() + limit_s
    for step in steps:
        left = end - time.monotonic()
        if step.missing:
            yield StepResult(step=step.name, outcome="skipped", why=f"{', '.join(step.missing)} is not installed")
        elif left < LEAST_S:
            yield StepResult(step=step.name, outcome="skipped", why="no time left; give it with --only")
        else:
            most_s = step.most_s(1 if options.small else options.at_once)
            yield run_step(step, options, min(most_s, left), show)


def run_step(step: GpuStep, options: GpuOptions, limit_s: float, show: Show) -> StepResult:
    """Run a step in a process of its own, which is ended with its own processes after `limit_s`."""
    results_path(options.folder, step.name).unlink(missing_ok=True)
    began = time.monotonic()
    with _followed(options, step.name, show), ChildProcess(step, with_descendants=True) as child:
        answer = child.call("run", replace(options, ends=began + limit_s), timeout_s=limit_s)
    results = read_results(options.folder, step.name)
    outcome, why = _outcome(results, answer, limit_s)
    return StepResult(step=step.name, outcome=outcome, why=why, seconds=time.monotonic() - began, results=results)


@contextmanager
def _followed(options: GpuOptions, step: str, show: Show) -> Iterator[None]:
    """Show each line that a step records in this block, soon after it does: a machine may end all of it at any time."""
    ended = threading.Event()

    def follow() -> None:
        seen, is_last, began = 0, False, time.monotonic()
        spoke = began
        while not is_last:
            is_last = ended.wait(0.2)
            lines, now = read_results(options.folder, step)[seen:], time.monotonic()
            for line in lines:
                show({"step": step} | line)
            seen += len(lines)
            if lines or now - spoke > _QUIET_S:
                if not lines:  # compiling takes minutes, and leaves files
                    files = sum(1 for _ in (cache_root() / "compiled").rglob("*"))
                    show({"step": step, "working_s": round(now - began), "compiled_files": files})
                spoke = now

    thread = threading.Thread(target=follow)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()


def document(options: GpuOptions, results: Sequence[StepResult]) -> dict[str, Any]:
    """Return everything as one document."""
    steps = {result.step: {key: value for key, value in asdict(result).items() if key != "step"} for result in results}
    settings = {"device": options.device, "small": options.small, "compile": options.compile}
    figures: dict[str, Any] = rounded({**settings, "profile": options.profile, "steps": steps})
    return figures


def _outcome(results: Sequence[dict[str, Any]], answer: object, limit_s: float) -> tuple[CaseOutcome, str]:
    if isinstance(answer, ChildDied):
        if answer.how != HUNG:
            return "failed", reason_of(answer)
        return "timeout", f"it took longer than {limit_s:.0f} s. It printed: {answer.last_lines[-_LAST:]}"
    if isinstance(answer, CapturedError):
        is_skipped = answer.kind == SkippedError.__name__
        return ("skipped", answer.message) if is_skipped else ("failed", answer.traceback.rstrip())
    failed = sum(result.get("ok") is False for result in results)
    return ("failed", f"{failed} of its checks") if failed else ("ok", "")
