"""Back-tests: errors of predictions of known measurements.

Each trial of the calibration is predicted from the other trials. The run, with several steps at once, is predicted from
the calibration, where each step was alone. Errors are relative: 0.1 is 10 % too much or too little.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from framekiln.lab.calibrate.memory_fit import design_matrix, non_negative_fit
from framekiln.lab.predict.source_run import SourceStep
from framekiln.planning.gpu.calibration_file import StepFigures
from framekiln.planning.sample import Sample

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
