"""Two or more runs side by side: the first is the base for each of the others."""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from string import ascii_uppercase
from typing import Self

import numpy as np

from framekiln.contract.errors import DamagedError
from framekiln.contract.row_errors import DECODE
from framekiln.planning.figures import FIGURES, OF_THE_RUN, RUN_FIGURES, STEP_FIGURES, Figure
from framekiln.planning.sample import INTERVAL_CALLS
from framekiln.profiling.record_log import NODES, read
from framekiln.reporting.compare import facts
from framekiln.reporting.compare.chance import ChangeInterval, Spread, change, interval, spreads
from framekiln.reporting.compare.drift import StepDrift, find_drift
from framekiln.reporting.compare.facts import measure, measure_run
from framekiln.reporting.compare.runs import Run

NONE, UNKNOWN = "none", "not known"
LONGEST_GAP_S = 5.0  # s of power, twenty samples; a longer gap is not interpolated


@dataclass(frozen=True, kw_only=True, eq=False)
class Side:
    """One run, or several repeated ones."""

    name: str  # A, B, ...
    runs: tuple[Run, ...]
    price: float | None = None  # price of an hour

    @property
    def paths(self) -> str:
        return ", ".join(run.path for run in self.runs)

    @cached_property
    def values(self) -> Mapping[str, Mapping[str, Sequence[float]]]:
        """By step and figure, the values of the runs that measured it; figures of whole runs under `run`."""
        values: dict[str, dict[str, list[float]]] = defaultdict(lambda: defaultdict(list))
        for run in self.runs:
            measured = {step: measure(run, step) for step in run.fingerprints}
            measured[OF_THE_RUN] = measure_run(run, self.price, energy_wh(run))
            for step, figures in measured.items():
                for name, value in figures.items():
                    values[step][name].append(value)
        return values

    @cached_property
    def spreads(self) -> Mapping[str, Mapping[str, Sequence[Spread | None]]]:
        """By step and figure, the spread of each run over its calls."""
        by_step: dict[str, dict[str, list[Spread | None]]] = {}
        for i, run in enumerate(self.runs):
            for step, statistics in run.statistics.items():
                for name, spread in spreads(statistics.timed).items():
                    by_run = by_step.setdefault(step, {}).setdefault(name, [None] * len(self.runs))
                    by_run[i] = spread
        return by_step


@dataclass(frozen=True, kw_only=True)
class FigurePair:
    """One figure on two sides."""

    step: str
    name: str
    title: str
    unit: str
    first: float | None  # None if it was not measured
    second: float | None
    change: float | None  # share of the first: 0.1 is 10 % more
    interval: ChangeInterval | None
    why_unknown: str = ""  # reason for a missing interval

    @classmethod
    def of(
        cls,
        step: str,
        figure: Figure,
        values: tuple[Sequence[float], Sequence[float]],
        by_run: tuple[Sequence[Spread | None], Sequence[Spread | None]] | None,
        why_unknown: str,
    ) -> Self:
        """Return the pair of a figure's values, each side's from its runs; without spreads it has no interval."""
        limits = interval(values, by_run) if by_run else None
        first, second = (_average(side, noisy=figure.noisy) for side in values)
        return cls(
            step=step,
            name=figure.name,
            title=figure.title,
            unit=figure.unit,
            first=first,
            second=second,
            change=change(*values),
            interval=limits,
            why_unknown=why_unknown if figure.noisy and limits is None else "",
        )

    @property
    def difference(self) -> str:
        """`none` if the interval contains 0, `not known` if it is missing, else the change."""
        if self.change is None:
            return ""
        if self.interval is None:
            return UNKNOWN if self.why_unknown else ""
        return NONE if self.interval.contains_zero else f"{100 * self.change:+.1f} %"


@dataclass(frozen=True, kw_only=True)
class Pair:
    """A side compared with the base."""

    first: Side
    second: Side
    work: Sequence[facts.ComparedStep]
    files: facts.FileComparison
    changes: Sequence[facts.Change]
    figures: Mapping[str, Sequence[FigurePair]]  # by step; figures of the whole run under `run`
    drift: Mapping[str, StepDrift]  # by step
    notes: Sequence[str]


@dataclass(frozen=True, kw_only=True)
class Comparison:
    """All sides."""

    sides: Sequence[Side]
    pairs: Sequence[Pair]


def compare(sides: Sequence[Sequence[Run]], prices: Mapping[str, float], *, drift_rows: int) -> Comparison:
    """Compare each side, one run or repeated ones, with the first.

    `prices`: of an hour, by the sides' letters. About `drift_rows` rows of each table are compared; 0: none.
    """
    pairs = zip(letters(), sides, strict=False)
    named = [Side(name=name, runs=tuple(runs), price=prices.get(name)) for name, runs in pairs]
    return Comparison(sides=named, pairs=[_compare_pair(named[0], other, drift_rows) for other in named[1:]])


def letters() -> Sequence[str]:
    """Return the names of sides: A to Z, then AA to ZZ."""
    return [*ascii_uppercase, *(a + b for a in ascii_uppercase for b in ascii_uppercase)]


def _compare_pair(first: Side, second: Side, drift_rows: int) -> Pair:
    names = first.name, second.name
    a, b = first.runs[0], second.runs[0]
    every = dict.fromkeys([*a.fingerprints, *b.fingerprints])  # those of the second alone come last
    work, files = [facts.compare_step(step, a, b, names) for step in every], facts.compare_files(a, b, names)
    steps = [compared.step for compared in work if not compared.verdict.startswith("only")]
    drift = find_drift(a, b, steps, drift_rows) if drift_rows else {}
    uncompared = [step for step in steps if step not in drift and step != DECODE]
    notes = _list_notes(first, second, work)
    if uncompared and drift_rows:
        notes.append(f"No results of {', '.join(uncompared)} were compared: that version's code is missing.")
    return Pair(
        first=first,
        second=second,
        work=work,
        files=files,
        changes=facts.changes(a, b),
        figures={step: _compare_figures(step, first, second) for step in (OF_THE_RUN, *steps)},
        drift=drift,
        notes=notes,
    )


def _compare_figures(step: str, first: Side, second: Side) -> list[FigurePair]:
    names = RUN_FIGURES if step == OF_THE_RUN else STEP_FIGURES
    sides = first, second
    values = [side.values.get(step, {}) for side in sides]
    known = [FIGURES[name] for name in names]
    phases = [name for name in {**values[0], **values[1]} if name not in FIGURES]
    known += [Figure(name=name, title=f"{name.removeprefix('phase ')}, a row", unit="ms") for name in phases]
    calls = {side: [run.statistics[step].calls if step in run.statistics else 0 for run in side.runs] for side in sides}
    why_unknown = f"a side has fewer than {INTERVAL_CALLS} calls ({min(map(min, calls.values())):,})"
    if unrecorded := next((side for side in sides if not min(calls[side])), None):
        is_damaged = any(run.damage for run in unrecorded.runs)
        why_unknown = f"{unrecorded.name}'s records of calls are damaged"
        why_unknown = why_unknown if is_damaged else f"{unrecorded.name} has no records of its calls"
    found = []
    for figure in known:
        a, b = (of_side.get(figure.name, ()) for of_side in values)
        repeated = max(len(a), len(b)) > 1 and not figure.counted
        complete = len(a) == len(first.runs) and len(b) == len(second.runs)
        x, y = (side.spreads.get(step, {}).get(figure.name) or [None] * len(side.runs) for side in (first, second))
        by_run = (x, y) if complete and (figure.noisy or repeated) else None
        found.append(FigurePair.of(step, figure, (a, b), by_run, why_unknown if figure.noisy else ""))
    return found


def _average(values: Sequence[float], *, noisy: bool) -> float | None:
    """Average repeated runs: rates and times by the geometric mean, as their changes are."""
    if len(values) > 1 and noisy and min(values) > 0:
        return float(np.exp(np.mean(np.log(values))))
    return float(np.mean(values)) if values else None


def _list_notes(first: Side, second: Side, work: Sequence[facts.ComparedStep]) -> list[str]:
    sides = first, second
    notes = [note for side in sides for run in side.runs for note in run.notes]
    busy = [(side.name, run.part("throughput", "verdict").get("others")) for side in sides for run in side.runs]
    notes += [f"{name}: {told.strip()}" for name, told in busy if told]
    for side in sides:
        others = {run.path for run in side.runs[1:] if run.fingerprints != side.runs[0].fingerprints}
        if others:
            notes.append(f"The runs of {side.name} did not do the same work: {', '.join(sorted(others))} differs.")
    if not set(first.runs[0].fingerprints) & set(second.runs[0].fingerprints) - {DECODE}:
        notes.append("The runs have no step in common: only the machine, decoding and the whole are compared.")
    if different := [compared.step for compared in work if compared.verdict == facts.DIFFERENT]:
        notes.append(f"Not the same work in {', '.join(different)}: figures of these steps measure different things.")
    unpriced = [side.name for side in sides if side.price is None]
    if len(unpriced) == 1:
        notes.append(f"The price of {unpriced[0]} is missing, so it has no cost: add --price {unpriced[0]}=...")
    limits = ("limit", "preview", "shard")
    if any(run.record.get(name) for side in sides for run in side.runs for name in limits):
        notes.append("A run was limited to some of its files.")
    return list(dict.fromkeys(notes))


def energy_wh(run: Run) -> float | None:
    """Return the energy of a run's GPUs in Wh; None if power was not measured."""
    if run.recorded is None:
        return None
    try:
        samples = read(run.store, NODES, run.recorded)
    except (DamagedError, KeyError, ValueError):  # damaged, or of another version
        return None
    watts: dict[str, dict[float, float]] = defaultdict(dict)  # by node and time
    for row in samples.select(["node", "time", "gpus"]).to_pylist():
        powers = [gpu["power_w"] for gpu in row["gpus"] or () if gpu["power_w"] is not None]
        if powers:
            watts[row["node"]][row["time"]] = sum(powers)
    joules = []
    for by_time in watts.values():
        times, power = (np.array(column) for column in zip(*sorted(by_time.items()), strict=True))
        steps = np.diff(times)  # by the trapezoidal rule
        joules.append(float((steps * (power[1:] + power[:-1]) / 2)[steps <= LONGEST_GAP_S].sum()))
    return sum(joules) / 3600 if any(len(by_time) > 1 for by_time in watts.values()) else None
