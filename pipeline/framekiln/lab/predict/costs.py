"""The cost of a run before it is made: rows, hours and gigabytes of each step and of the whole, with intervals.

Seconds of a row come from an earlier run (`source_run`) or from the calibration of a GPU. How steps run beside each
other is as in `pace`, here on the plan's processes, not on those of the run that was measured. Intervals are
from the 5 % to the 95 % quantile of a bootstrap (`measured`). They tell how much the measured files differ, and nothing
of another machine.
"""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np

from framekiln.contract.row_errors import DECODE
from framekiln.contract.stage import Scope
from framekiln.device.cores import usable_cores
from framekiln.engine.local.engine import count_processes
from framekiln.lab.predict.measured import (
    DRAWS,
    ENDS,
    TABLES,
    Draws,
    MeasuredFiles,
    bytes_a_row,
    estimate_rows,
    few_note,
    read_measured,
    seconds_a_row,
)
from framekiln.lab.predict.pace import Interval, pace
from framekiln.lab.predict.source_run import PacketTimes, SourceRun, SourceStep
from framekiln.media.files import MediaFile
from framekiln.output.object_store import Store
from framekiln.planning.gpu.calibration_file import Calibration, StepFigures, settings_of
from framekiln.planning.plan import Plan
from framekiln.planning.processes.waves import Wave
from framekiln.planning.step import DecodeStep, Step


@dataclass(frozen=True, kw_only=True)
class StepCost:
    """One step over the files that it has left to do; None where nothing tells a figure."""

    step: str
    rows: Interval
    row_s: float | None = None  # seconds of a row, in one process
    hours: Interval | None = None  # on its processes, without waiting for other steps
    saved: float = 0.0  # hours that its condition saves
    gb: Interval | None = None


@dataclass(frozen=True, kw_only=True)
class Costs:
    """The cost of what a plan has left to do."""

    steps: Sequence[StepCost] = ()
    rows: Interval | None = None
    hours: Interval | None = None  # of the whole: steps run beside each other; None where a step is `unknown`
    gb: Interval | None = None
    limit: str = ""  # what sets the pace of each wave: the steps of a process, or the GPU
    unknown: Sequence[str] = ()  # steps of which nothing is known
    notes: Sequence[str] = ()  # sentences on what it rests on
    why_not: str = ""  # why there is no estimate at all

    def to_dict(self, price_per_hour: float | None = None) -> dict[str, Any]:
        """Return the fields, with `money` beside `hours` where a price is given."""
        facts = asdict(self)
        for one in (facts, *facts["steps"]):
            if price_per_hour is not None and one["hours"] is not None:
                one["money"] = {end: hours * price_per_hour for end, hours in one["hours"].items()}
        return facts


@dataclass(frozen=True, kw_only=True)
class Work:
    """A run that is estimated."""

    plan: Plan
    files: Sequence[MediaFile]  # all that it selects
    left: Mapping[str, frozenset[str]] | None = None  # by step the media ids that it has left to do; None: all
    local: bool = True  # without Ray

    def files_left(self, name: str) -> Sequence[MediaFile]:
        """Return the files that a step works on; decoding again for any step of the first pass."""
        if self.left is None:
            return self.files
        names = [step.name for step in self.plan.first] if name == DECODE else []
        wanted = frozenset[str]().union(*(self.left.get(each, frozenset()) for each in (name, *names)))
        return [media for media in self.files if media.media_id in wanted]


def estimate_costs(work: Work, source: SourceRun, store: Store, calibration: Calibration | None = None) -> Costs:
    """Estimate a run from an earlier one, whose output is `store`, and from a calibration what that lacks."""
    measured = read_measured(store)
    steps: list[DecodeStep | Step] = [work.plan.decode, *work.plan.steps]
    found = {step.name: estimate_rows(work.files_left(step.name), measured) for step in steps}
    rows = {name: by_kind for name, (by_kind, _) in found.items()}
    total = {name: np.sum([np.zeros(1 + DRAWS), *by_kind.values()], axis=0) for name, by_kind in rows.items()}
    known, seconds = _read_seconds(work.plan, source, calibration, measured, rows)
    unknown = [step.name for step in steps if step.name not in known and total[step.name][0]]
    if len(unknown) == len(steps):
        return Costs(unknown=unknown, why_not="no calibration and no earlier run tells of these steps")
    chosen = dict.fromkeys((step.name for step in steps), 1.0)  # shares of rows that conditions choose, as measured
    narrowed = {step.name for step in work.plan.steps if step.is_narrowed}
    chosen |= {name: source.chosen for name, source in known.items() if name in narrowed}
    hours = _Hours(work, known, seconds, chosen, total)
    total[TABLES] = total[DECODE]
    parts = {name: total[name] * size / 1e9 for name, size in bytes_a_row(work.plan, store).items()}
    costs = [
        StepCost(
            step=name,
            rows=_interval(count * chosen.get(name, 1.0)),
            gb=_interval(parts[name]) if name in parts else None,
            **(hours.of(name) if name in known else {}),
        )
        for name, count in total.items()
    ]
    return Costs(
        steps=costs,
        rows=_interval(total[DECODE]),
        hours=None if unknown else _interval(hours.whole),
        gb=_interval(np.sum(list(parts.values()), axis=0)) if parts and not unknown else None,
        limit=hours.limit,
        unknown=unknown,
        notes=[*found[DECODE][1], *_list_doubts(work, known)],
    )


def _read_seconds(
    plan: Plan,
    source: SourceRun,
    calibration: Calibration | None,
    measured: MeasuredFiles,
    rows: Mapping[str, Mapping[str, Draws]],
) -> tuple[dict[str, SourceStep], dict[str, Draws]]:
    """Return the steps of which something is known, and their seconds for all rows that are left, chosen or not."""
    ran = {one.name: one for one in (*source.steps, *source.later)}
    known: dict[str, SourceStep] = {}
    seconds: dict[str, Draws] = {}
    steps: list[DecodeStep | Step] = [plan.decode, *plan.steps]
    for step in steps:
        own, by_kind = ran.get(step.name), {"": np.zeros(1 + DRAWS)}
        ways = None if isinstance(step, DecodeStep) else (settings_of(step.facts), step.placement.device)
        if own is not None and ways in (None, (own.settings, own.device)):
            by_kind |= seconds_a_row(own, measured)
        elif isinstance(step, Step) and calibration is not None and (figures := calibration.of(step)) is not None:
            own = _from_trial(step, figures)
            by_kind[""] += sum(own.sample.phases.values())
        else:
            continue
        known[step.name] = own
        each = [count * by_kind.get(kind, by_kind[""]) for kind, count in rows[step.name].items()]
        seconds[step.name] = np.sum([np.zeros(1 + DRAWS), *each], axis=0)
    return known, seconds


def _from_trial(step: Step, figures: StepFigures) -> SourceStep:
    """Return a step as the calibration measured it, at the batch that is nearest to the plan's."""
    trial = min(figures.trials, key=lambda trial: abs(trial.batch - step.placement.batch))
    none = np.zeros(0, np.int64)
    return SourceStep(
        sample=trial.model_copy(update={"subject": step.name}),
        packets=PacketTimes(units=(), starts=none, rows=none, seconds=none.astype(float)),
        device=step.placement.device,
        workers=step.placement.workers,
        in_flight=step.placement.in_flight,
        settings=figures.settings,
        compile=figures.compile,
        process=step.name,
        gpus=step.placement.gpus,
        rows_per_s=trial.rows_per_s,
    )


class _Hours:
    """Hours of a run's steps, and of the whole."""

    def __init__(
        self,
        work: Work,
        known: Mapping[str, SourceStep],
        seconds: Mapping[str, Draws],
        chosen: Mapping[str, float],
        rows: Mapping[str, Draws],
    ) -> None:
        waves = [_place_wave(wave, i, known, local=work.local) for i, wave in enumerate(work.plan.waves)]
        workers = {step.name: step.workers * step.in_flight for steps in waves for step in steps}
        workers |= {step.name: count_later_processes(step) for step in work.plan.second}
        self._row_s = {name: float(one[0] / rows[name][0]) for name, one in seconds.items() if rows[name][0]}
        self._all = {name: one / workers[name] / 3600 for name, one in seconds.items()}
        self._chosen = {name: one * chosen[name] for name, one in self._all.items()}
        busy = {name: one * chosen[name] for name, one in seconds.items()}
        first, self.limit = whole_hours(waves, busy)
        self.whole: Draws = first + sum(self._chosen[step.name] for step in work.plan.second if step.name in known)

    def of(self, name: str) -> dict[str, Any]:
        """Return the figures of a step's cost that are about time."""
        saved = float(self._all[name][0] - self._chosen[name][0])
        return {"row_s": self._row_s.get(name), "hours": _interval(self._chosen[name]), "saved": saved}


def _interval(draws: Draws) -> Interval:
    low, high = np.quantile(draws[1:], ENDS)
    return Interval(central=float(draws[0]), low=float(low), high=float(high))


def _list_doubts(work: Work, known: Mapping[str, SourceStep]) -> list[str]:
    """Return sentences on what intervals do not hold."""
    whole = [step.name for step in work.plan.second if step.stage.scope is Scope.DATASET and step.name in known]
    notes = []
    if shares := [
        f"{step.name} {source.chosen:.0%}"
        for step in work.plan.steps
        if step.is_narrowed and (source := known.get(step.name))
    ]:
        notes.append(f"Rows that conditions choose are as many as in the measured run: {', '.join(shares)}")
    if few := few_note(known.values()):
        notes.append(few)
    if whole:
        notes.append(f"{', '.join(whole)}: they see all rows at once, and may take longer than in proportion")
    return notes


def _place_wave(wave: Wave, number: int, known: Mapping[str, SourceStep], *, local: bool) -> list[SourceStep]:
    """Return the measured steps of a wave, decoding first, with the processes that a plan gives them."""
    processes = count_processes(wave, wave.steps) if local else 0
    placed = []
    for place, group in enumerate(wave.groups()):
        first = group[0].placement if place and group else None
        workers = processes or (first.workers if first else wave.decode.workers)
        names = [step.name for step in group if not step.recalled]
        for name in [DECODE, *names] if place == 0 else names:
            if name in known:
                process = f"{number}" if local else f"{number}.{place}"
                in_flight = first.in_flight if first and not local else 1
                placed.append(replace(known[name], process=process, workers=workers, in_flight=in_flight))
    return placed


def count_later_processes(step: Step) -> int:
    """Return the processes of a step of the second pass: one where a call takes the whole run."""
    if step.stage.scope is Scope.DATASET:
        return 1
    return step.placement.workers if step.keeps_model else max(1, int(usable_cores() / step.placement.cpus))


def whole_hours(waves: list[list[SourceStep]], seconds: Mapping[str, Draws]) -> tuple[Draws, str]:
    """Return the hours of all waves, and what sets the pace in each; `seconds` are those of all rows of a step."""
    hours = np.zeros(1 + DRAWS)
    limits = []
    for steps in waves:
        busy = [step for step in steps if seconds[step.name][0] > 0]
        for draw in range(1 + DRAWS) if any(step.name != DECODE for step in busy) or (busy and steps == busy) else ():
            scaled = [_scale(step, float(seconds[step.name][draw])) for step in busy]
            on_gpu = {step.name: step.sample.model_s + step.sample.copies_s for step in scaled if step.on_gpu}
            rate, limit = pace(scaled, on_gpu)
            hours[draw] += 1 / rate / 3600
            if not draw:
                limits.append(limit)
    return hours, ", then ".join(limits)


def _scale(step: SourceStep, seconds: float) -> SourceStep:
    """Return a step of which one row takes so many seconds."""
    whole = max(sum(step.sample.phases.values()), 1e-9)
    phases = {name: value * seconds / whole for name, value in step.sample.phases.items()}
    return replace(step, sample=step.sample.model_copy(update={"phases": phases}))
