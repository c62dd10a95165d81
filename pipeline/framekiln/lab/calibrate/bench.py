"""Measurement of one step alone: the search runs in this process, the calls in a child process.

A child that runs out of memory reports it and continues. A child that crashes or hangs is replaced, and its batch
counts as too large. Memory is fitted by least squares with non-negative coefficients: more rows never take less.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from framekiln.device import DeviceMemory, Meter
from framekiln.lab.calibrate.probe import Probe
from framekiln.lab.sweep.batch_search import Limits, SearchResult, fastest, search
from framekiln.lab.sweep.runner import CellChild, reason_of
from framekiln.planning.gpu.calibration_file import Line, StepFigures, settings_of
from framekiln.planning.sample import Sample
from framekiln.planning.step import Step
from framekiln.runtime.recovery.captured_error import CapturedError
from framekiln.runtime.recovery.child_process import ChildDied
from framekiln.runtime.recovery.child_tasks import SET_UP_S, not_set_up

_IDLE = (
    "its model had nothing to do, since these rows hold no masks, faces or whatever it works on (random weights find "
    "none): nothing is kept of it; take real weights, or an input that has them"
)
_DEATHS = 4  # deaths of a step's children that end its measurement


def memory_line(trials: Sequence[Sample]) -> Line | None:
    """Return peak memory by batch and megapixels; None if the device does not measure memory.

    With images of one size only, all growth with the batch counts per row.
    """
    from scipy.optimize import nnls

    measured = [(trial.batch, trial.megapixels, trial.peak_gb) for trial in trials if trial.peak_gb is not None]
    if not measured:
        return None
    batches, sizes, peaks = np.array(measured, np.float64).T
    several = len(np.unique(sizes)) > 1
    matrix = np.stack([np.ones_like(batches), batches, batches * sizes * several], axis=1)
    lengths = np.linalg.norm(matrix, axis=0)
    lengths[lengths == 0] = 1.0  # columns of length 1 keep Lawson and Hanson's algorithm stable
    coefficients = nnls(matrix / lengths, peaks)[0] / lengths
    error = float(np.abs(matrix @ coefficients - peaks).max())
    base, row, pixel = coefficients.tolist()
    return Line(base_gb=base, per_row_gb=row, per_megapixel_gb=pixel, error_gb=error)


class GaveUpError(Exception):
    """The reason why measuring a step was given up."""


@dataclass
class StepMeasurement:
    """The result of measuring one step."""

    step: str
    figures: StepFigures | None = None  # None if none of its calls succeeded
    device: DeviceMemory | None = None
    notes: list[str] = field(default_factory=list)  # failures and the end of the search, one sentence each


def measure(
    step: Step,
    sizes: Sequence[Path],
    limits: Limits,
    say: Callable[[str], None] = lambda _: None,
    *,
    dummy: bool = False,
    meter: Meter | None = None,
) -> StepMeasurement:
    """Measure batches of a step until they do not fit.

    `sizes`: files of rows by `write_rows`, smallest images first. `say` gets a sentence after each set-up. `dummy`: the
    step's weights are random.
    """
    result = StepMeasurement(step.name)
    limits = search_limits(step, limits, meter)
    with _Bench(step, sizes, limits, say, meter) as bench:
        searched = SearchResult(trials=[])
        try:
            searched = search(bench.attempt, limits)
        except GaveUpError as error:
            result.notes.append(str(error))
            searched = searched if searched.trials else replace(searched, trials=list(bench.trials))
        if bench.trials and all(trial.phases and not trial.phases.get("infer") for trial in bench.trials):
            result.notes.append(_IDLE)
        elif bench.trials:
            result.notes += [f"it ran uncompiled: {reason}" for reason in bench.uncompiled[:1]]
            result.figures = _make_figures(step, bench, searched, dummy=dummy)
            result.device = bench.device
        if searched.failure is not None:
            result.notes.append(f"a batch of {searched.largest + 1} did not run: {searched.failure.why}")
            if not searched.largest and step.placement.chunks:
                result.notes.append(f"smaller `chunks` in the profile ({dict(step.placement.chunks)}) take less memory")
        elif searched.cut_short and result.figures is not None:
            result.notes.append(f"nothing larger was tried: {searched.cut_short}")
    return result


def search_limits(step: Step, limits: Limits, meter: Meter | None) -> Limits:
    """Return the limits for a step: without a memory meter, the search ends once the rate is level."""
    metered = step.placement.device != "cpu" or meter is not None
    return replace(limits, memory=limits.memory and metered)


def _make_figures(step: Step, bench: _Bench, searched: SearchResult, *, dummy: bool) -> StepFigures:
    return StepFigures(
        use=step.use,
        settings=settings_of(step.facts),
        precision=step.placement.precision,
        compile=step.placement.compile and not bench.uncompiled,
        dummy=dummy,
        trials=sorted(bench.trials, key=lambda trial: (trial.megapixels, trial.batch)),
        memory=memory_line(bench.trials),
        largest_batch=searched.largest,
        largest_is_limit=searched.failure is not None,
        fastest_batch=fastest(bench.trials),
        flops_per_row=bench.flops(),
        chunks=bench.chunks(),
        **bench.ready,
    )


class _Bench(CellChild):
    """A step's child process, replaced after a death."""

    def __init__(
        self, step: Step, sizes: Sequence[Path], limits: Limits, say: Callable[[str], None], meter: Meter | None
    ) -> None:
        super().__init__()
        self._step, self._sizes, self._limits, self._say, self._meter = step, sizes, limits, say, meter
        self._batch = 0  # batch of the child's set-up
        self._deaths = 0
        self.ready: dict[str, Any] = {}  # facts of the first child's set-up
        self.uncompiled: list[str] = []  # why functions of the step run uncompiled in it
        self.device: DeviceMemory | None = None
        self.trials: list[Sample] = []  # all batches that ran

    def attempt(self, count: int) -> Sample:
        """Measure `count` rows of the largest images, then of smaller ones. Return the sample of the largest.

        A batch that fits with the largest images also fits with smaller ones. Raises GaveUpError: the step raises
        another error than out-of-memory, or its children keep dying.
        """
        *smaller, largest = range(len(self._sizes))
        result = self._attempt(largest, count)
        if result.outcome == "ok":
            for size in smaller:
                self._attempt(size, count)
        return result

    def _attempt(self, size: int, count: int) -> Sample:
        self._set_up_for(count)
        result: Sample | ChildDied | CapturedError
        result = self.call("trial", size, count, timeout_s=self._limits.hang_s)
        if isinstance(result, CapturedError) and not result.broken_gpu:
            raise GaveUpError(f"a batch of {count} raised {result.kind}: {result.message}")
        if isinstance(result, ChildDied | CapturedError):
            self.end()
            self._deaths += 1
            if self._deaths >= _DEATHS:
                problem = f"its process died {self._deaths} times, last at a batch of {count}: {reason_of(result)}"
                raise GaveUpError(problem)
            return Sample(subject=self._step.name, batch=count, outcome="error", why=reason_of(result))
        if result.outcome == "ok":
            self.trials.append(result)
        return result

    def flops(self) -> float | None:
        """Return the FLOPs of a row, counted without compilation; None if counting fails."""
        step = self._step
        if step.placement.compile:
            self.end()
            self._step = replace(step, placement=replace(step.placement, compile=False))
        try:
            self._set_up_for(1)
            answer = self.call("flops", len(self._sizes) - 1, timeout_s=self._limits.hang_s)
        except GaveUpError:
            return None
        finally:
            self._step = step
        return answer if isinstance(answer, float) else None

    def chunks(self) -> dict[str, int]:
        answer: Any = self.call("seen", timeout_s=self._limits.hang_s) if self.is_there else None
        if not isinstance(answer, tuple):
            return {}
        self.device = answer[0]
        return dict(answer[1])

    def _set_up_for(self, count: int) -> None:
        """Start the child and set the step up, if needed; a compiled step needs a child for each batch."""
        if self.is_there and (not self._step.placement.compile or self._batch == count):
            return
        step = not_set_up(self._step)
        if step.placement.compile:  # compiled for one batch
            step = replace(step, placement=replace(step.placement, batch=count))
        threads = str(max(1, int(step.placement.cpus)))  # as Ray sets it for a worker
        self.start(Probe(step, self._sizes, self._limits, self._meter), {"OMP_NUM_THREADS": threads})
        answer = self.call("set_up", timeout_s=SET_UP_S)
        if isinstance(answer, ChildDied | CapturedError):
            self.end()
            raise GaveUpError(f"it could not be set up: {reason_of(answer)}")
        facts, uncompiled = answer
        batches = count if step.placement.compile else "any size"
        self._say(f"Set up for batches of {batches} in {facts['set_up_s']:.1f} s.")
        self._batch = count
        if not self.ready:
            self.ready, self.uncompiled = facts, uncompiled
