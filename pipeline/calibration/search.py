"""The search for the batches of a step: doubling until one does not fit or is not worth it, then bisection.

It knows neither stages nor devices: it is given a function that tries a batch.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from pipeline.calibration.figures import Trial

FELL = 0.03  # a rate that is lower by more than this has fallen; less is noise of some calls
_FALLS = 2  # one may be chance, or an odd size


@dataclass(frozen=True, kw_only=True)
class Full:
    """A batch that did not fit, or killed its process."""

    why: str = "memory ran out"


@dataclass(frozen=True, kw_only=True)
class Limits:
    """How far the search goes."""

    most_batch: int = 256  # beyond it the rates of our models have long been flat
    slow_s: float = 30.0  # a call that takes longer ends the search: the next one would take twice as long
    timed_s: float = 2.0  # of timed calls for each batch, at least three where they are not slow
    hang_s: float = 900.0  # for all calls of a batch: SAM 2.1 with 64 prompts takes one core 20 s a photo


@dataclass(frozen=True, kw_only=True)
class Searched:
    """What was tried, in the order of batches."""

    trials: list[Trial]
    full: Full | None = None  # why the smallest batch that was too large was so; None where none was
    cut_short: str = ""  # why no larger batch was tried, where all that were tried fit

    @property
    def largest(self) -> int:
        """The largest batch that ran; 0 where none did."""
        return max((trial.batch for trial in self.trials), default=0)


def search(attempt: Callable[[int], Trial | Full], limits: Limits) -> Searched:
    """Try batches of 1, 2, 4, ... rows up to the limit; bisect between the last that ran and the first that did not.

    Doubling also ends where a call takes longer than `slow_s`, or where two batches in a row were slower, a row, than
    the best one.
    """
    trials: list[Trial] = []
    batch, falls = 1, 0
    while True:
        found = attempt(batch)
        if isinstance(found, Full):
            return _bisected(attempt, trials, batch, found)
        best = max((trial.rows_per_s for trial in trials), default=0.0)
        falls = falls + 1 if found.rows_per_s < (1 - FELL) * best else 0
        trials.append(found)
        why = _reason(found, falls, limits)
        if why:
            return Searched(trials=trials, cut_short=why)
        batch = min(2 * batch, limits.most_batch)


def _reason(trial: Trial, falls: int, limits: Limits) -> str:
    """Why no larger batch is tried; empty where one is."""
    if trial.batch >= limits.most_batch:
        return f"--most-batch {limits.most_batch}"
    if trial.batch / trial.rows_per_s > limits.slow_s:
        return f"a call of {trial.batch} took longer than {limits.slow_s:g} s"
    return "two larger batches in a row were slower a row" if falls >= _FALLS else ""


def _bisected(attempt: Callable[[int], Trial | Full], trials: list[Trial], above: int, full: Full) -> Searched:
    """Between the last batch that ran and one that did not, until they are neighbours."""
    below = trials[-1].batch if trials else 0
    while above - below > 1:
        found = attempt((above + below) // 2)
        if isinstance(found, Full):
            above, full = (above + below) // 2, found
        else:
            below = found.batch
            trials = [*trials, found]
    return Searched(trials=sorted(trials, key=lambda trial: trial.batch), full=full)


def fastest(trials: list[Trial]) -> int:
    """The smallest batch whose rate is within 3 % of the best: what is beyond takes memory and gains nothing.

    Where pictures of several sizes were measured, a batch's rate is that of a mix with as many of each; only batches
    that were tried with all sizes count.
    """
    sizes = {trial.megapixels for trial in trials}
    seconds: dict[int, dict[float, float]] = {}
    for trial in trials:
        seconds.setdefault(trial.batch, {})[trial.megapixels] = 1 / trial.rows_per_s
    mixed = {batch: sum(found.values()) for batch, found in seconds.items() if found.keys() == sizes}
    best = min(mixed.values())
    return min(batch for batch, taken in mixed.items() if taken <= best / (1 - FELL))
