"""Two benches sample by sample: changes with intervals, and conditions that fail the command.

Intervals are those of `framekiln compare`: a block bootstrap of calls. They need 40 calls, 100 for p95 and 500 for p99.
Memory does not vary, so that its changes need none.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from framekiln.contract.errors import ConfigError
from framekiln.lab.output.results import BenchReport
from framekiln.lab.samples import FIGURES, samples
from framekiln.planning.sample import Sample
from framekiln.profiling.stats.calls import calls_of
from framekiln.reporting.compare.bootstrap import ChangeInterval, Spread, interval, spreads
from framekiln.reporting.compare.gate import Condition, Finding, parse
from framekiln.reporting.formatting import number

_NOISY: Mapping[str, str] = {"mean": "ms_row", "p50": "p50", "p95": "p95", "p99": "p99", "rate": "rate"}
"""Figures with an interval, and the bootstrap's names of them."""


@dataclass(frozen=True, kw_only=True)
class Change:
    """One figure of a cell in two benches."""

    where: str  # subject and placement
    figure: str
    unit: str
    first: float | None
    second: float | None
    interval: ChangeInterval | None = None  # of the change, as shares

    @property
    def change(self) -> float | None:
        """The change as a share; None where a side was not measured, or is 0."""
        if self.first is None or self.second is None or not self.first:
            return None
        return self.second / self.first - 1

    @property
    def is_noisy(self) -> bool:
        """Return whether the figure varies from bench to bench."""
        return self.unit in ("ms", "items/s")


def changes(base: BenchReport, other: BenchReport) -> list[Change]:
    """Return the figures of the samples that both measured, in the base's order.

    Raises:
        ConfigError: they have none in common.
    """
    theirs = {sample.name: sample for sample in samples(other) if sample.outcome == "ok"}
    pairs = [(one, theirs[one.name]) for one in samples(base) if one.outcome == "ok" and one.name in theirs]
    if not pairs:
        raise ConfigError(
            "The two benches have no cell, clip or video in common; compare benches of the same models, batches and "
            "precisions.",
            code="FK-BENCH-NOTHING-COMMON",
        )
    return [change for first, second in pairs for change in _changes(first, second)]


def judge(text: str, found: Sequence[Change]) -> list[Finding]:
    """Evaluate the conditions of --fail-if on each sample.

    A relative change of a time whose interval contains 0, or that has none, is inconclusive.

    Raises:
        ConfigError: a condition has another form, names an unknown figure, or one that no cell has on both sides.
    """
    return [finding for condition in conditions(text) for finding in _judge(condition, found)]


def conditions(text: str) -> list[Condition]:
    """Parse the conditions of --fail-if.

    Raises:
        ConfigError: one has another form, or names an unknown figure or a step.
    """
    parsed = parse(text, FIGURES)
    for condition in parsed:
        if condition.step is not None:
            raise ConfigError(
                f"--fail-if: {condition.text!r}: a bench has no steps; write it without {condition.step!r}.",
                code="FK-GATE-FORM",
            )
    return parsed


def other_machine(base: BenchReport, other: BenchReport) -> str:
    """Return what of the machine and its software differs between two benches, so that times cannot be compared."""
    sides = base.environment, other.environment
    pairs = {name: [str(side.get(name)) for side in sides] for name in ("gpu", "processor", "threads", "torch")}
    return ", ".join(f"{name} {first}, now {second}" for name, (first, second) in pairs.items() if first != second)


def lost(base: BenchReport, other: BenchReport) -> list[Finding]:
    """Return a failure for each sample that was measured in the base, and tried in vain in the other bench."""
    known = {sample.name for sample in samples(base) if sample.outcome == "ok"}
    failed = [sample for sample in samples(other) if sample.outcome != "ok" and sample.name in known]
    return [
        Finding(failed=True, sentence=f"{one.name} was measured in the base; now: {one.outcome}, {one.why}.")
        for one in failed
    ]


def _judge(condition: Condition, found: Iterable[Change]) -> list[Finding]:
    of_figure = [change for change in found if change.figure == condition.figure]
    known = [change for change in of_figure if change.second is not None]
    if condition.relative:
        known = [change for change in known if change.change is not None]
    if not known:
        raise ConfigError(
            f"--fail-if: {condition.text!r}: no cell has {condition.figure} on both sides; measure more calls, or "
            "choose another figure.",
            code="FK-GATE-NOT-MEASURED",
        )
    return [_finding(condition, change) for change in known]


def _finding(condition: Condition, change: Change) -> Finding:
    value = change.change if condition.relative else change.second
    assert value is not None
    beyond = condition.holds(value)
    is_sure = change.interval is not None and not change.interval.contains_zero
    unclear = beyond and condition.relative and change.is_noisy and not is_sure
    return Finding(failed=beyond and not unclear, unclear=unclear, sentence=sentence(condition.text, change))


def sentence(text: str, change: Change) -> str:
    """Return a figure of two benches in a sentence."""
    sides = " to ".join("not measured" if side is None else number(side) for side in (change.first, change.second))
    words = f"{text}: {change.figure} of {change.where}: {sides} {change.unit}".rstrip()
    if change.change is not None:
        words += f", {100 * change.change:+.1f} %"
    if change.interval is not None:
        words += f" (interval {100 * change.interval.low:+.1f} to {100 * change.interval.high:+.1f} %)"
    elif change.is_noisy:
        words += " (no interval)"
    return f"{words}."


def _changes(first: Sample, second: Sample) -> list[Change]:
    drawn = [_spreads(first, "base"), _spreads(second, "other")]
    found = []
    for name, unit in FIGURES.items():
        values = first.figures.get(name), second.figures.get(name)
        if values != (None, None):
            limits = _interval(name, values, drawn)
            found.append(
                Change(where=first.name, figure=name, unit=unit, first=values[0], second=values[1], interval=limits)
            )
    return found


def _interval(
    name: str, values: tuple[float | None, float | None], drawn: Sequence[Mapping[str, Spread]]
) -> ChangeInterval | None:
    key = _NOISY.get(name)
    if key is None or values[0] is None or values[1] is None:
        return None
    return interval([values[0]], [values[1]], [drawn[0].get(key)], [drawn[1].get(key)])


def _spreads(sample: Sample, side: str) -> Mapping[str, Spread]:
    """Return the spreads of a sample's figures over resamples of its calls, as those of one worker."""
    if sample.latency is None or not sample.latency.values:
        return {}
    seconds = np.asarray(sample.latency.values) / 1000
    started = np.concatenate([[0.0], np.cumsum(seconds)[:-1]])
    rows = np.full(len(seconds), sample.batch, np.int64)
    return spreads(calls_of(np.zeros(len(seconds)), started, seconds, rows), f"{side} {sample.name}")
