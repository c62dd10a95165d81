"""Two benches sample by sample: changes with intervals, and conditions that fail the command.

Intervals are those of `framekiln compare`: a block bootstrap of calls. They need 40 calls, 100 for p95 and 500 for p99.
Memory does not vary, so that its changes need none.
"""

from collections.abc import Iterable, Mapping, Sequence

import numpy as np

from framekiln.contract.errors import ConfigError
from framekiln.lab.output.results import BenchReport
from framekiln.lab.samples import FIGURES, samples
from framekiln.planning.sample import Sample
from framekiln.profiling.stats.speed import TimedCalls
from framekiln.reporting.compare.bootstrap import Spread, change, interval, spreads
from framekiln.reporting.compare.comparison import FigurePair
from framekiln.reporting.compare.gate import Condition, Verdict, judge_figure, parse

_NOISY: Mapping[str, str] = {"mean": "ms_row", "p50": "p50", "p95": "p95", "p99": "p99", "rate": "rate"}
"""Figures with an interval, and the bootstrap's names of them."""
SIDES = ("base", "now")


def changes(base: BenchReport, other: BenchReport) -> list[FigurePair]:
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
    return [figure for first, second in pairs for figure in _pairs(first, second)]


def judge(text: str, found: Sequence[FigurePair]) -> list[Verdict]:
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


def lost(base: BenchReport, other: BenchReport) -> list[Verdict]:
    """Return a failure for each sample that was measured in the base, and tried in vain in the other bench."""
    known = {sample.name for sample in samples(base) if sample.outcome == "ok"}
    failed = [sample for sample in samples(other) if sample.outcome != "ok" and sample.name in known]
    return [
        Verdict(failed=True, sentence=f"{one.name} was measured in the base; now: {one.outcome}, {one.why}.")
        for one in failed
    ]


def _judge(condition: Condition, found: Iterable[FigurePair]) -> list[Verdict]:
    known = [one for one in found if one.name == condition.figure and one.second is not None]
    if condition.relative:
        known = [one for one in known if one.first]
    if not known:
        raise ConfigError(
            f"--fail-if: {condition.text!r}: no cell has {condition.figure} on both sides; measure more calls, or "
            "choose another figure.",
            code="FK-GATE-NOT-MEASURED",
        )
    return [judge_figure(condition, one, SIDES, needs_interval=True) for one in known]


def _pairs(first: Sample, second: Sample) -> list[FigurePair]:
    drawn = [_spreads(first, "base"), _spreads(second, "other")]
    return [
        _pair(first.name, name, (first.figures.get(name), second.figures.get(name)), drawn)
        for name in FIGURES
        if name in first.figures or name in second.figures
    ]


def _pair(
    where: str, name: str, values: tuple[float | None, float | None], drawn: Sequence[Mapping[str, Spread]]
) -> FigurePair:
    key, limits = _NOISY.get(name, ""), None
    base, now = ([] if value is None else [value] for value in values)
    if key and base and now:
        limits = interval(base, now, [drawn[0].get(key)], [drawn[1].get(key)])
    is_noisy = FIGURES[name] in ("ms", "items/s")
    return FigurePair(
        step=where,
        name=name,
        title=name,
        unit=FIGURES[name],
        first=values[0],
        second=values[1],
        change=change(base, now),
        interval=limits,
        why_unknown="too few calls" if is_noisy and limits is None else "",
    )


def _spreads(sample: Sample, side: str) -> Mapping[str, Spread]:
    """Return the spreads of a sample's figures over resamples of its calls, as those of one worker."""
    if sample.latency is None or not sample.latency.values:
        return {}
    seconds = np.asarray(sample.latency.values) / 1000
    started = np.concatenate([[0.0], np.cumsum(seconds)[:-1]])
    rows = np.full(len(seconds), sample.batch, np.int64)
    return spreads(TimedCalls.of(np.zeros(len(seconds)), started, seconds, rows), f"{side} {sample.name}")
