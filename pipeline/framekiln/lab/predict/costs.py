"""The cost of a run before it is made: rows, hours and gigabytes of each step and of the whole, with intervals.

Seconds of a row come from an earlier run (`source_run`) or from a GPU's calibration. Steps run beside each other as in
`pace`, but on the plan's processes, not those of the measured run. Intervals reach from the 5 % to the 95 % quantile of
a bootstrap (`measured`). They show how much the measured files differ, and say nothing of other machines.
"""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any

import numpy as np

from framekiln.contract.row_errors import DECODE
from framekiln.contract.stage import Scope
from framekiln.device.cores import usable_cores
from framekiln.engine.local.engine import count_processes
from framekiln.lab.predict.measured import (
    DRAWS,
    TABLES,
    MeasuredFiles,
    bytes_a_row,
    estimate_rows,
    measuring_notes,
    read_measured,
    seconds_a_row,
)
from framekiln.lab.predict.pace import Draws, Interval, pace
from framekiln.lab.predict.source_run import PacketTimes, SourceRun, SourceStep
from framekiln.media.files import MediaFile
from framekiln.output.object_store import Store
from framekiln.planning.gpu.calibration_file import Calibration, StepFigures, settings_of
from framekiln.planning.plan import Plan
from framekiln.planning.processes.waves import Wave
from framekiln.planning.step import DecodeStep, Step


@dataclass(frozen=True, kw_only=True)
class StepCost:
    """One step over its remaining files; None for unknown figures."""

    step: str
    rows: Interval
    row_s: float | None = None  # seconds of a row, in one process
    hours: Interval | None = None  # hours on its processes, without waits for other steps
    saved: float = 0.0  # hours that its condition saves
    gb: Interval | None = None


@dataclass(frozen=True, kw_only=True)
class Costs:
    """The cost of a plan's remaining work."""

    steps: Sequence[StepCost] = ()
    rows: Interval | None = None
    hours: Interval | None = None  # hours of the whole run: steps run beside each other; None if a step is `unknown`
    gb: Interval | None = None
    limit: str = ""  # what sets the pace of each wave: the steps of a process, or the GPU
    unknown: Sequence[str] = ()  # steps without any measurement
    notes: Sequence[str] = ()  # sentences on the basis of the estimate
    why_not: str = ""  # why there is no estimate at all

    def to_dict(self, price_per_hour: float | None = None) -> dict[str, Any]:
        """Return the fields, with `money` beside `hours` if a price is given."""
        facts = asdict(self)
        for one in (facts, *facts["steps"]):
            if price_per_hour is not None and one["hours"] is not None:
                one["money"] = {end: hours * price_per_hour for end, hours in one["hours"].items()}
        return facts


@dataclass(frozen=True, kw_only=True)
class PlannedRun:
    """A run to estimate."""

    plan: Plan
    files: Sequence[MediaFile]  # all selected files
    left: Mapping[str, frozenset[str]] | None = None  # by step, media ids of the remaining files; None: all
    rows: Mapping[str, int] = field(default_factory=dict)  # by step, rows of these files, where parts show them
    local: bool = True  # without Ray

    def files_left(self, name: str) -> Sequence[MediaFile]:
        """Return a step's files; decoding repeats for any step of the first pass."""
        if self.left is None:
            return self.files
        names = [step.name for step in self.plan.first] if name == DECODE else []
        wanted = frozenset[str]().union(*(self.left.get(each, frozenset()) for each in (name, *names)))
        return [media for media in self.files if media.media_id in wanted]


def estimate_costs(work: PlannedRun, source: SourceRun, store: Store, calibration: Calibration | None = None) -> Costs:
    """Estimate a run from an earlier one in the output `store`, and missing steps from a calibration."""
    measured = read_measured(store, work.plan.decode.config.every_nth)
    steps: list[DecodeStep | Step] = [work.plan.decode, *work.plan.steps]
    found = {step.name: estimate_rows(work.files_left(step.name), measured) for step in steps}
    rows = {name: by_kind for name, (by_kind, _) in found.items()}
    total = {name: np.sum([np.zeros(1 + DRAWS), *by_kind.values()], axis=0) for name, by_kind in rows.items()}
    known, seconds = _read_seconds(work.plan, source, calibration, measured, rows)
    unknown = [step.name for step in steps if step.name not in known and total[step.name][0]]
    if len(unknown) == len(steps):
        return Costs(unknown=unknown, why_not="no calibration and no earlier run has measured these steps")
    narrowed, chosen = {step.name for step in work.plan.steps if step.is_narrowed}, dict[str, Any]()
    for step in (one for one in work.plan.steps if one.is_narrowed):  # as measured; a later step as those it reads
        own = known[step.name].chosen if step.name in known and step.first_pass else 1.0
        chosen[step.name] = min([own, *(chosen.get(name, 1.0) for name in step.needs)])
    chosen |= {name: rows / np.maximum(total[name], 1) for name, rows in work.rows.items() if name in total}
    busy = {name: one * chosen.get(name, 1.0) for name, one in seconds.items()}
    workers, whole, limit = _place(work, known, busy)
    total[TABLES] = total[DECODE]
    parts = {name: total[name] * size / 1e9 for name, size in bytes_a_row(work.plan, store).items()}

    def cost(name: str, count: Draws) -> StepCost:
        rows, gb = Interval.of(count * chosen.get(name, 1.0)), Interval.of(parts[name]) if name in parts else None
        if name not in known:
            return StepCost(step=name, rows=rows, gb=gb)
        saved = float((seconds[name] - busy[name])[0]) / workers[name] / 3600 if name in narrowed else 0.0
        row_s = float(seconds[name][0] / count[0]) if count[0] else None
        hours = Interval.of(busy[name] / workers[name] / 3600)
        return StepCost(step=name, rows=rows, gb=gb, row_s=row_s, hours=hours, saved=saved)

    return Costs(
        steps=[cost(name, count) for name, count in total.items()],
        rows=Interval.of(total[DECODE]),
        hours=None if unknown else Interval.of(whole),
        gb=Interval.of(np.sum(list(parts.values()), axis=0)) if parts and not unknown else None,
        limit=limit,
        unknown=unknown,
        notes=[*found[DECODE][1], *measuring_notes(source.others, known.values()), *_list_doubts(work, known)],
    )


def _place(
    work: PlannedRun, known: Mapping[str, SourceStep], busy: Mapping[str, Draws]
) -> tuple[dict[str, int], Draws, str]:
    """Return each step's packets in work at a time, the hours of the whole, and its limit."""
    waves = [_place_wave(wave, i, known, local=work.local) for i, wave in enumerate(work.plan.waves)]
    workers = {step.name: step.workers * step.in_flight for steps in waves for step in steps}
    for step in work.plan.second:  # one process if a call takes the whole run
        many = step.placement.workers if step.keeps_model else max(1, int(usable_cores() / step.placement.cpus))
        workers[step.name] = 1 if step.stage.scope is Scope.DATASET else many
    hours, limits = np.zeros(1 + DRAWS), []
    for wave, steps in zip(work.plan.waves, waves, strict=True):
        left = [step for step in steps if busy[step.name][0] > 0]
        for draw in range(1 + DRAWS) if any(step.name != DECODE for step in left) or (left and steps == left) else ():
            scaled = [_scale(step, float(busy[step.name][draw])) for step in left]
            on_gpu = {step.name: step.sample.model_s + step.sample.copies_s for step in scaled if step.on_gpu}
            rate, limit = pace(scaled, on_gpu, wave.gpus)
            hours[draw] += 1 / rate / 3600
            if not draw:
                limits.append(limit)
    later = (busy[step.name] / workers[step.name] / 3600 for step in work.plan.second if step.name in known)
    return workers, hours + sum(later), ", then ".join(limits)


def _read_seconds(
    plan: Plan,
    source: SourceRun,
    calibration: Calibration | None,
    measured: MeasuredFiles,
    rows: Mapping[str, Mapping[str, Draws]],
) -> tuple[dict[str, SourceStep], dict[str, Draws]]:
    """Return the measured steps, and their seconds for all remaining rows, whether conditions choose them or not."""
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
            own = _read_trial(step, figures)
            by_kind[""] += sum(own.sample.phases.values())
        else:
            continue
        known[step.name] = own
        each = [count * by_kind.get(kind, by_kind[""]) for kind, count in rows[step.name].items()]
        seconds[step.name] = np.sum([np.zeros(1 + DRAWS), *each], axis=0)
    return known, seconds


def _read_trial(step: Step, figures: StepFigures) -> SourceStep:
    """Return a step as the calibration measured it, at the batch nearest to the plan's."""
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


def _list_doubts(work: PlannedRun, known: Mapping[str, SourceStep]) -> list[str]:
    whole = [step.name for step in work.plan.second if step.stage.scope is Scope.DATASET and step.name in known]
    notes = []
    if shares := [
        f"{step.name} {source.chosen:.0%}"
        for step in work.plan.steps
        if step.is_narrowed and step.first_pass and step.name not in work.rows and (source := known.get(step.name))
    ]:
        notes.append(f"Conditions are assumed to choose as many rows as in the measured run: {', '.join(shares)}")
    if whole:
        notes.append(f"{', '.join(whole)}: they see all rows at once, and may take longer than in proportion")
    return notes


def _place_wave(wave: Wave, number: int, known: Mapping[str, SourceStep], *, local: bool) -> list[SourceStep]:
    """Return the measured steps of a wave, decoding first, with the plan's processes."""
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


def _scale(step: SourceStep, seconds: float) -> SourceStep:
    """Return a step with this many seconds a row."""
    whole = max(sum(step.sample.phases.values()), 1e-9)
    phases = {name: value * seconds / whole for name, value in step.sample.phases.items()}
    return replace(step, sample=step.sample.model_copy(update={"phases": phases}))
