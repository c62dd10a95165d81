"""How wrong such predictions were where the truth is known.

Two ways: each trial of the calibration is predicted from the others, and the run, several steps at once, from the
calibration, where each was alone. Errors are of ratios: .1 is a tenth too much or too little.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from pipeline.calibration.figures import StepFigures, Trial
from pipeline.calibration.fit import design, solved
from pipeline.prediction.source import COPIES, MODEL, StepTimes

_LEAST = 3  # trials: two to fit, one to predict

Value = Callable[[Trial], float]


@dataclass(frozen=True, kw_only=True)
class Tested:
    """The errors of one step's predictions."""

    held_out: float  # of a call's time at a batch and size that the fit had not seen
    memory: float  # of its peak memory likewise
    mixed: float  # of the time on the card, beside other steps instead of alone; signed: above 0 it took longer

    @property
    def rate(self) -> float:
        """What the interval of a rate is widened by."""
        return max(self.held_out, abs(self.mixed))


def call_s(trial: Trial) -> float:
    """Seconds of a call."""
    return trial.batch / trial.rows_per_s


def on_card_s(trial: Trial) -> float:
    """Seconds of a call on the card and on the way there and back."""
    return trial.batch * sum(trial.phases.get(name, 0.0) for name in (MODEL, *COPIES))


def predicted(trials: Sequence[Trial], value: Value, batch: int, megapixels: float) -> float:
    """A value of a call by a line through trials: base + row·batch + pixel·batch·megapixels, none of them negative.

    Residuals count by their share of the value, so that a call of one row counts as much as one of 256.
    """
    wanted = np.array([value(trial) for trial in trials], float)
    base, row, pixel = solved(design(trials), wanted, 1 / np.maximum(wanted, 1e-9))
    return base + row * batch + pixel * batch * megapixels


def held_out(trials: Sequence[Trial], value: Value) -> float | None:
    """The typical error (root of the mean square of the ratio's logarithm) of each trial predicted from the others.

    None with fewer than three trials, or where there is nothing to predict.
    """
    told = [trial for trial in trials if value(trial) > 0]
    if len(told) < _LEAST:
        return None
    errors = []
    for trial in told:
        guess = predicted([one for one in told if one is not trial], value, trial.batch, trial.megapixels)
        errors.append(math.log(max(guess, 1e-9) / value(trial)))
    return math.expm1(float(np.sqrt(np.mean(np.square(errors)))))


def backtest(figures: StepFigures, step: StepTimes) -> Tested | str:
    """The errors of a step, or why there are none."""
    rate = held_out(figures.trials, call_s)
    memory = held_out(figures.trials, lambda trial: trial.peak_gb or 0.0)
    if rate is None:
        return f"its calibration has {len(figures.trials)} trials, and a back-test needs {_LEAST}"
    if memory is None:
        return "its calibration does not tell its memory"
    alone = predicted(figures.trials, on_card_s, step.batch, step.megapixels) / step.batch
    beside = step.model_s + step.copies_s
    if alone <= 0 or beside <= 0:
        return "it tells no time on the card: its phases infer, upload and download are empty"
    return Tested(held_out=rate, memory=memory, mixed=beside / alone - 1)
