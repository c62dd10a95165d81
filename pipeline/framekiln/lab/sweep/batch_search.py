"""Search for a step's or a model's batches: doubling until a batch does not fit or is slower, then bisection.

The search knows neither stages nor devices. Its caller passes a function that tries a batch. The knee is the batch
above which more latency brings no more throughput.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from framekiln.lab.output.cells import Cell, CellResult
from framekiln.planning.sample import Sample

FELL = 0.03  # relative change of a rate that counts as a fall or a gain; less is noise
_FALLS = 2  # consecutive falls, or batches without a gain, that end the search; one may be chance, or an odd size


@dataclass(frozen=True, kw_only=True)
class Limits:
    """Limits of the search."""

    most_batch: int = 256  # the rates of all shipped models level off long before
    slow_s: float = 30.0  # a longer call ends the search: the next one would take twice as long
    timed_s: float = 2.0  # length of a batch's timed calls; at least three calls unless they are slow
    hang_s: float = 900.0  # timeout of all calls of a batch: SAM 2.1 with 64 prompts takes 20 s a photo on one core
    memory: bool = True  # search the largest batch that fits, even at a level rate; a CPU has no such limit


@dataclass(frozen=True, kw_only=True)
class SearchResult:
    """The batches that ran, in ascending order, and why the search ended."""

    trials: list[Sample]
    failure: Sample | None = None  # of the smallest failed batch; None if none failed
    cut_short: str = ""  # why no larger batch was tried, if none failed

    @property
    def largest(self) -> int:
        return max((trial.batch for trial in self.trials), default=0)


def search(attempt: Callable[[int], Sample], limits: Limits) -> SearchResult:
    """Try batches of 1, 2, 4, ... rows, then bisect between the last that ran and the first that failed.

    `attempt` returns a batch's sample; an outcome other than `ok` means that it did not fit, or killed its process.
    Doubling also ends when a call takes longer than `slow_s`, or when two batches in a row were slower than the best.
    Without a search for the memory's limit, it ends when two in a row gained nothing.
    """
    trials: list[Sample] = []
    batch, falls, level, gained = 1, 0, 0, 0.0
    while True:
        result = attempt(batch)
        if result.outcome != "ok":
            return _bisect(attempt, trials, batch, result)
        best = max((trial.rows_per_s for trial in trials), default=0.0)
        falls = falls + 1 if result.rows_per_s < (1 - FELL) * best else 0
        is_gain = result.rows_per_s > (1 + FELL) * gained
        level, gained = (0, result.rows_per_s) if is_gain else (level + 1, gained)
        trials.append(result)
        if reason := _find_reason_to_stop(result, falls, level, limits):
            return SearchResult(trials=trials, cut_short=reason)
        batch = min(2 * batch, limits.most_batch)


def _find_reason_to_stop(trial: Sample, falls: int, level: int, limits: Limits) -> str:
    if trial.batch >= limits.most_batch:
        return f"the limit is {limits.most_batch}"
    if trial.seconds > limits.slow_s:
        return f"a call of {trial.batch} took longer than {limits.slow_s:g} s"
    if falls >= _FALLS:
        return "two larger batches in a row had a lower rate"
    return "two larger batches in a row gained nothing" if level >= _FALLS and not limits.memory else ""


def _bisect(attempt: Callable[[int], Sample], trials: list[Sample], above: int, failure: Sample) -> SearchResult:
    below = trials[-1].batch if trials else 0
    while above - below > 1:
        result = attempt((above + below) // 2)
        if result.outcome != "ok":
            above, failure = (above + below) // 2, result
        else:
            below = result.batch
            trials = [*trials, result]
    return SearchResult(trials=sorted(trials, key=lambda trial: trial.batch), failure=failure)


def fastest(trials: Sequence[Sample]) -> int:
    """Return the smallest batch with a rate within 3 % of the best: larger ones only take memory.

    With images of several sizes, a batch's rate is that of a mix with equal numbers of each. Only batches tried with
    all sizes count.
    """
    sizes = {trial.megapixels for trial in trials}
    seconds: dict[int, dict[float, float]] = {}
    for trial in trials:
        seconds.setdefault(trial.batch, {})[trial.megapixels] = 1 / trial.rows_per_s
    rates = {n: 1 / sum(by_size.values()) for n, by_size in seconds.items() if by_size.keys() == sizes}
    return min(batch for batch, rate in rates.items() if rate >= (1 - FELL) * max(rates.values()))


def curves(cells: Sequence[CellResult]) -> dict[tuple[str, Cell], list[CellResult]]:
    """Return the measured cells by model and settings other than the batch (then 1), by ascending batch."""
    groups: dict[tuple[str, Cell], list[CellResult]] = {}
    for cell in cells:
        if cell.outcome == "ok" and cell.items_per_s:
            groups.setdefault((cell.model, replace(cell.cell, batch=1)), []).append(cell)
    return {key: sorted(group, key=lambda cell: cell.cell.batch) for key, group in groups.items()}


def knee(curve: Sequence[CellResult]) -> CellResult:
    """Return the cell with the fastest batch of a curve."""
    rates = {cell.cell.batch: cell.items_per_s or 1.0 for cell in curve}
    best = fastest([Sample(batch=batch, seconds=batch / rate) for batch, rate in rates.items()])
    return next(cell for cell in curve if cell.cell.batch == best)
