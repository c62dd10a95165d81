"""Two or more runs side by side: the first is the base, and each of the others is compared with it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from string import ascii_uppercase

import numpy as np

from pipeline.telemetry.compare.changes import Change, changes
from pipeline.telemetry.compare.drift import Drift, find_drift
from pipeline.telemetry.compare.energy import energy_wh
from pipeline.telemetry.compare.measures import FIGURES, OF_THE_RUN, RUN_FIGURES, STEP_FIGURES, measure, measure_run
from pipeline.telemetry.compare.noise import Interval, Spread, change, interval, spreads
from pipeline.telemetry.compare.runs import Run
from pipeline.telemetry.compare.work import DIFFERENT, Files, StepWork, compare_files, compare_work, steps_of

NONE, UNKNOWN = "none", "not known"


@dataclass(frozen=True, kw_only=True, eq=False)
class Side:
    """One run, or several repeated ones."""

    name: str  # A, B, ...
    runs: tuple[Run, ...]
    price: float | None = None  # of an hour

    @property
    def paths(self) -> str:
        """As they were named."""
        return ", ".join(run.path for run in self.runs)

    @cached_property
    def steps(self) -> Mapping[str, Mapping[str, Sequence[float]]]:
        """By step and figure, the values of the runs that measured it; under `run` those of whole runs."""
        found: dict[str, dict[str, list[float]]] = {}
        for run in self.runs:
            told = {step: measure(run, step) for step in steps_of(run)}
            told[OF_THE_RUN] = measure_run(run, self.price, energy_wh(run))
            for step, figures in told.items():
                for name, value in figures.items():
                    found.setdefault(step, {}).setdefault(name, []).append(value)
        return found

    @cached_property
    def spreads(self) -> Mapping[str, Mapping[str, Sequence[Spread | None]]]:
        """By step and figure, how each run's calls move it."""
        found: dict[str, dict[str, list[Spread | None]]] = {}
        for i, run in enumerate(self.runs):
            for step, calls in run.calls.items():
                for name, spread in spreads(calls, f"{self.name}{i} {step}").items():
                    each = found.setdefault(step, {}).setdefault(name, [None] * len(self.runs))
                    each[i] = spread
        return found


@dataclass(frozen=True, kw_only=True)
class Line:
    """One figure on two sides."""

    step: str
    name: str
    title: str
    unit: str
    first: float | None  # None where it was not measured
    second: float | None
    change: float | None  # share of the first: 0.1 is 10 % more
    interval: Interval | None
    why_unknown: str = ""  # why there is no interval where one is wanted

    @property
    def difference(self) -> str:
        """In a word: `none` where chance alone would do, `not known` where nothing says so; else the change."""
        if self.change is None:
            return ""
        if self.interval is None:
            return UNKNOWN if self.why_unknown else ""
        return NONE if self.interval.holds_zero else f"{100 * self.change:+.1f} %"


@dataclass(frozen=True, kw_only=True)
class Pair:
    """A side beside the base."""

    first: Side
    second: Side
    work: Sequence[StepWork]
    files: Files
    changes: Sequence[Change]
    lines: Mapping[str, Sequence[Line]]  # by step; under `run` those of the whole
    drift: Mapping[str, Drift]  # by step
    notes: Sequence[str]


@dataclass(frozen=True, kw_only=True)
class Comparison:
    """All sides."""

    sides: Sequence[Side]
    pairs: Sequence[Pair]


def compare(sides: Sequence[Sequence[Run]], prices: Mapping[str, float], *, drift_rows: int) -> Comparison:
    """Compare each side with the first.

    Args:
        sides: runs; several of one side are repetitions of it.
        prices: of an hour, by the sides' letters, which go by their order.
        drift_rows: about how many rows of each table results are compared of; 0 for none.
    """
    named = [
        Side(name=name, runs=tuple(runs), price=prices.get(name)) for name, runs in zip(letters(), sides, strict=False)
    ]
    return Comparison(sides=named, pairs=[_pair(named[0], other, drift_rows) for other in named[1:]])


def letters() -> Sequence[str]:
    """Names of sides."""
    return [*ascii_uppercase, *(a + b for a in ascii_uppercase for b in ascii_uppercase)]


def _pair(first: Side, second: Side, drift_rows: int) -> Pair:
    names = first.name, second.name
    a, b = first.runs[0], second.runs[0]
    work, files = compare_work(a, b, names), compare_files(a, b, names)
    steps = [one.step for one in work if not one.verdict.startswith("only")]
    found = Pair(
        first=first,
        second=second,
        work=work,
        files=files,
        changes=changes(a, b),
        lines={step: _lines(step, first, second) for step in (OF_THE_RUN, *steps)},
        drift=find_drift(a, b, steps, drift_rows) if drift_rows else {},
        notes=(),
    )
    return replace(found, notes=(*_notes(found), *(_uncompared(found, steps) if drift_rows else ())))


def _lines(step: str, first: Side, second: Side) -> list[Line]:
    names = RUN_FIGURES if step == OF_THE_RUN else STEP_FIGURES
    values = [side.steps.get(step, {}) for side in (first, second)]
    phases = [name for name in {**values[0], **values[1]} if name not in FIGURES]
    return [_line(step, name, first, second) for name in (*names, *phases)]


def _line(step: str, name: str, first: Side, second: Side) -> Line:
    sides = first, second
    a, b = (side.steps.get(step, {}).get(name, ()) for side in sides)
    known = [side.spreads.get(step, {}).get(name) or [None] * len(side.runs) for side in sides]
    about = FIGURES.get(name)
    noisy = about is not None and about.noisy
    repeated = max(len(a), len(b)) > 1 and not (about is not None and about.counted)
    fits = len(a) == len(first.runs) and len(b) == len(second.runs)
    found = interval(a, b, *known) if fits and (noisy or repeated) else None
    return Line(
        step=step,
        name=name,
        title=about.title if about else f"{name.removeprefix('phase ')}, a row",
        unit=about.unit if about else "ms",
        first=_mean(a, noisy=noisy),
        second=_mean(b, noisy=noisy),
        change=change(a, b),
        interval=found,
        why_unknown=_why(step, sides) if noisy and found is None else "",
    )


def _mean(values: Sequence[float], *, noisy: bool) -> float | None:
    """Of repeated runs; of rates and times the geometric mean, as their changes are."""
    if not values:
        return None
    if len(values) > 1 and noisy and min(values) > 0:
        return float(np.exp(np.mean(np.log(values))))
    return float(np.mean(values))


def _why(step: str, sides: Sequence[Side]) -> str:
    for side in sides:
        counts = [len(run.calls[step].rows) if step in run.calls else 0 for run in side.runs]
        if not min(counts):
            if any(run.damage for run in side.runs):
                return f"{side.name}'s records of calls are damaged"
            return f"{side.name} has no records of its calls"
    counts = [len(run.calls[step].rows) for side in sides for run in side.runs]
    return f"a side has too few calls ({min(counts):,})"


def _uncompared(pair: Pair, steps: Sequence[str]) -> list[str]:
    """Steps whose results nobody looked at, in a sentence."""
    runs = pair.first.runs[0], pair.second.runs[0]
    both = [step for step in steps if all(step in run.part("steps") for run in runs) and step not in pair.drift]
    return [f"No results of {', '.join(both)} were compared: the code of that version is not at hand."] if both else []


def _notes(pair: Pair) -> list[str]:
    """What to know before believing the figures, a sentence each."""
    sides = pair.first, pair.second
    said = [note for side in sides for run in side.runs for note in run.notes]
    for side in sides:
        others = {run.path for run in side.runs[1:] if run.fingerprints != side.runs[0].fingerprints}
        if others:
            said.append(f"The runs of {side.name} did not do the same work: {', '.join(sorted(others))} differs.")
    if not set(pair.first.runs[0].fingerprints) & set(pair.second.runs[0].fingerprints) - {"decode"}:
        said.append("The runs have no step in common: only the machine, decoding and the whole are compared.")
    different = [one.step for one in pair.work if one.verdict == DIFFERENT]
    if different:
        said.append(f"Not the same work in {', '.join(different)}: figures of these steps are of different things.")
    unpriced = [side.name for side in sides if side.price is None]
    if len(unpriced) == 1:
        said.append(f"No price of {unpriced[0]} is known, and so no cost: give --price {unpriced[0]}=... too.")
    if any(run.record.get("limit") or run.record.get("shard") for side in sides for run in side.runs):
        said.append("A run was limited to some of its files.")
    return list(dict.fromkeys(said))
