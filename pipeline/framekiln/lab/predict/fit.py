"""Memory of steps on a GPU by the formulas of the calibration, and back-tests: predictions of known measurements.

Steps that do not fit together process the media in several waves, chosen by the same rules as those of a plan.
Each trial of the calibration is predicted from the other trials. The run, with several steps at once, is predicted from
the calibration, where each step was alone. Errors are relative: 0.1 is 10 % too much or too little.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from framekiln.lab.calibrate.bench import design_matrix, non_negative_fit
from framekiln.lab.predict.gpu_specs import GpuSpecs
from framekiln.lab.predict.source_run import SourceStep
from framekiln.planning.gpu.calibration_file import StepFigures
from framekiln.planning.gpu.co_location import BatchOption, GpuCapacity, Requirement
from framekiln.planning.gpu.packing import layouts
from framekiln.planning.sample import Sample
from framekiln.planning.step import Step

MIN_TRIALS = 3  # two to fit, one to predict

Value = Callable[[Sample], float]


@dataclass(frozen=True, kw_only=True)
class BacktestErrors:
    """Relative errors of one step's predictions."""

    held_out: float  # of a call's time at a batch and size outside the fit
    memory: float  # of its peak memory, likewise
    mixed: float  # of the time on the GPU with other steps instead of alone; above 0 it took longer

    @property
    def rate(self) -> float:
        """Share by which the interval of a rate is widened."""
        return max(self.held_out, abs(self.mixed))


def on_gpu_s(trial: Sample) -> float:
    """Return the seconds of a call on the GPU, copies included."""
    return trial.batch * (trial.model_s + trial.copies_s)


def predicted(trials: Sequence[Sample], value: Value, batch: int, megapixels: float) -> float:
    """Predict a call's value from trials: base + row·batch + pixel·batch·megapixels, with non-negative coefficients.

    Residuals are relative, so that a call of one row counts as much as a call of 256.
    """
    values = np.array([value(trial) for trial in trials], float)
    base, row, pixel = non_negative_fit(design_matrix(trials), values, 1 / np.maximum(values, 1e-9))
    return base + row * batch + pixel * batch * megapixels


def on_gpu_row_s(figures: StepFigures, like: Sample, batch: int | None = None) -> float:
    """Predict the seconds of a row on the GPU by a calibration, for rows like a sample's, in its batch or another."""
    batch = batch or like.batch
    return predicted(figures.trials, on_gpu_s, batch, like.megapixels) / batch


def held_out(trials: Sequence[Sample], value: Value) -> float | None:
    """Return the typical error of each trial predicted from the others; None with fewer than three that have a value.

    It is the root mean square of the ratio's logarithm.
    """
    known = [trial for trial in trials if value(trial) > 0]
    if len(known) < MIN_TRIALS:
        return None
    errors = []
    for trial in known:
        guess = predicted([other for other in known if other is not trial], value, trial.batch, trial.megapixels)
        errors.append(math.log(max(guess, 1e-9) / value(trial)))
    return math.expm1(float(np.sqrt(np.mean(np.square(errors)))))


def backtest(figures: StepFigures, step: SourceStep) -> BacktestErrors | str:
    """Return the errors of a step's predictions, or the reason why there are none."""
    rate = held_out(figures.trials, lambda trial: trial.seconds)
    memory = held_out(figures.trials, lambda trial: trial.peak_gb or 0.0)
    if rate is None:
        return f"its calibration has {len(figures.trials)} trials, and a back-test needs {MIN_TRIALS}"
    if memory is None:
        return "its calibration does not tell its memory"
    alone = on_gpu_row_s(figures, step.sample)
    beside = step.sample.model_s + step.sample.copies_s
    if alone <= 0 or beside <= 0:
        return "its calibration has no time on the GPU: the phases infer, upload and download are empty"
    return BacktestErrors(held_out=rate, memory=memory, mixed=beside / alone - 1)


@dataclass(frozen=True, kw_only=True)
class StepFit:
    """One process of a step on a GPU."""

    batch: int | None  # the run's batch if it fits, else the largest that does; None if not even one row fits
    need_gb: float  # of that batch (of one row if none fits), without the context
    context_gb: float


@dataclass(frozen=True, kw_only=True)
class CombinedFit:
    """All steps on one GPU at once."""

    need_gb: float
    memory_gb: float
    waves: tuple[tuple[str, ...], ...] = ()  # steps on the GPU at the same time; empty if unknown

    @property
    def one_pass(self) -> bool:
        """True if all steps fit on the GPU at once; otherwise the media are processed in several waves."""
        return self.need_gb <= self.memory_gb


def fit(figures: StepFigures, step: SourceStep, context_gb: float, error: float, gpu: GpuSpecs) -> StepFit:
    """Fit a step's process alone on a GPU, with images as large as the largest measured ones.

    A process takes `context_gb` besides its allocations. `error` is that of memory by the back-test, added as a share.
    """
    capacity = gpu.memory_gb - context_gb
    for batch in range(max(1, step.sample.batch), 0, -1):
        if (need := needed(figures, batch, error)) <= capacity:
            return StepFit(batch=batch, need_gb=need, context_gb=context_gb)
    return StepFit(batch=None, need_gb=needed(figures, 1, error), context_gb=context_gb)


def needed(figures: StepFigures, batch: int, error: float) -> float:
    """Return the GB of a call, with the errors of the formula and of the back-test added."""
    line = figures.memory
    if line is None:
        raise ValueError("no memory was measured")
    largest = max(trial.megapixels for trial in figures.trials)
    return line.at(batch, largest) * (1 + error) + line.error_gb


def fit_together(
    steps: Sequence[SourceStep],
    fits: Mapping[str, StepFit],
    figures: Mapping[str, StepFigures],
    gpu: GpuSpecs,
    planned: Sequence[Step],
) -> CombinedFit:
    """Fit all processes of all steps on one GPU; steps in one process share a context.

    `planned` is the first pass, producers before readers; empty if unknown.
    """
    contexts = {step.process: (step.workers, fits[step.name].context_gb) for step in steps}
    need = sum(step.workers * fits[step.name].need_gb for step in steps)
    need += sum(count * each for count, each in contexts.values())
    waves: tuple[tuple[str, ...], ...] = (tuple(step.name for step in steps),)
    if need > gpu.memory_gb:
        capacity = GpuCapacity(limit_gb=gpu.memory_gb, context_gb=max(fit.context_gb for fit in fits.values()))
        waves = _waves(steps, fits, figures, planned, capacity)
    return CombinedFit(need_gb=need, memory_gb=gpu.memory_gb, waves=waves)


def _waves(
    steps: Sequence[SourceStep],
    fits: Mapping[str, StepFit],
    figures: Mapping[str, StepFigures],
    planned: Sequence[Step],
    capacity: GpuCapacity,
) -> tuple[tuple[str, ...], ...]:
    workers = {step.name: step.workers for step in steps}
    requirements = [
        Requirement(
            step=step,
            options=(BatchOption(batch=fits[step.name].batch or 1, gb=fits[step.name].need_gb),),
            workers=workers[step.name],
            held_gb=figures[step.name].weights_gb,
        )
        for step in planned
        if step.name in workers
    ]
    candidates = layouts(requirements, planned, capacity) if len(requirements) == len(workers) else []
    return tuple(wave.names for wave in candidates[0].waves) if candidates else ()
