"""What a run measured of its steps, as a prediction needs it: seconds a row by phase, workers, batch, rates."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from pipeline.calibration.figures import settings_of
from pipeline.errors import ConfigError, OutputError, UserError
from pipeline.failure import DECODE
from pipeline.machines import ROOMY
from pipeline.plan import make_plan
from pipeline.step import Step
from pipeline.storage import Store
from pipeline.telemetry.compare.calls import run_of
from pipeline.telemetry.measures import INSIDE, measure
from pipeline.telemetry.records import PACKET, to_table
from pipeline.telemetry.run_file import order_of, read_whole
from pipeline.telemetry.streams import CALLS, read

COPIES, MODEL = ("upload", "download"), "infer"
"""Phases that take the bus, and the one that takes the card's arithmetic and memory; all others are the host's."""

_MOSTLY = 0.5  # of the processes of two steps are both's: then they share them
_FIRST = 4  # packets of a process beyond which its first one, with all that is loaded late, is left out


@dataclass(frozen=True, kw_only=True)
class StepTimes:
    """One first-pass step of a run."""

    name: str
    device: str
    workers: int
    batch: int
    megapixels: float  # of a row, on average
    seconds: Mapping[str, float]  # a row, by phase; `other` is the rest
    settings: str  # as `pipeline.calibration.figures.settings_of`; empty of decoding
    precision: str
    compile: bool
    process: str  # what it shares with the steps of its process
    gpus: float  # share of a card that its processes ask for together
    rows_per_s: float  # that came out of it, in the steady state where that is known

    @property
    def on_card(self) -> bool:
        """Whether its model ran on a GPU."""
        return self.device != "cpu"

    @property
    def model_s(self) -> float:
        """Seconds a row of the model."""
        return self.seconds.get(MODEL, 0.0)

    @property
    def copies_s(self) -> float:
        """Seconds a row of copies over the bus."""
        return sum(self.seconds.get(name, 0.0) for name in COPIES)

    @property
    def host_s(self) -> float:
        """Seconds a row of everything else."""
        return max(0.0, sum(self.seconds.values()) - self.model_s - self.copies_s)


@dataclass(frozen=True, kw_only=True)
class Source:
    """A run."""

    devices: tuple[str, ...]  # GPUs of its machine, as the driver calls them
    steps: tuple[StepTimes, ...]  # first pass, decoding first
    later: tuple[str, ...]  # steps of the second pass, which are not predicted
    waves: int = 1  # that it went over the media in
    planned: tuple[Step, ...] = ()  # its first pass as its run.json says it; empty where that cannot be planned again
    shared: float = 1.0  # by which processes stretched each other's time on the card; it is taken out of the steps'

    @property
    def on_card(self) -> list[StepTimes]:
        """Steps whose model ran on a GPU."""
        return [step for step in self.steps if step.on_card]

    @property
    def rows_per_s(self) -> float:
        """The run's rate: that of the step which had least come out."""
        return min(step.rows_per_s for step in self.steps)


def read_source(path: str) -> Source:
    """The last run into an output.

    Raises:
        ConfigError: no run into it has ended.
        OutputError: it kept no records.
    """
    store = Store(path).as_folder()
    try:
        record = read_whole(store)
    except FileNotFoundError as error:
        raise ConfigError(
            f"There is no run.json in {path!r}: give the output of a run that came to its end."
        ) from error
    name = run_of(store, record)
    calls = read(store, CALLS, name, to_table) if name else None
    packets = calls.filter(pc.equal(calls["kind"], PACKET)) if calls is not None else None
    if calls is None or packets is None or not packets.num_rows:
        raise OutputError(f"There are no records of a run in {path!r}, and nothing is predicted without them.")
    measures = {one.step: one for one in measure(calls)}
    later = tuple(name for name, one in measures.items() if one.later)
    first = {name: one for name, one in measures.items() if not one.later}
    processes = _processes({name: one.workers for name, one in first.items()})
    steps = []
    for step, one in first.items():
        rate, own = one.steady_rows_per_s or one.rows_per_s, packets.filter(pc.equal(packets["step"], step))
        steps.append(_step(step, record, own, len(one.workers), rate, processes[step]))
    gpus = tuple(str(one) for one in record.get("gpu_names") or ())
    ordered = tuple(sorted(steps, key=lambda step: step.name != DECODE))
    waves = max(1, len(record.get("waves") or ()))
    found = Source(devices=gpus, steps=ordered, later=later, waves=waves, planned=_planned(store))
    return _unshared(found) if waves == 1 else found


def _planned(store: Store) -> tuple[Step, ...]:
    """First-pass steps of the run, producers before readers."""
    try:
        order = order_of(store)
        choices = replace(order.choices, calibration=None, vram_cap=None)
        files = order.pipeline, order.profile.model_copy(update={"waves": "auto"})
        return make_plan(*files, choices, [ROOMY], check_weights=False, check_fit=False, calibrated=False).first
    except UserError:  # written by another version, or with stages that are not here
        return ()


def _unshared(found: Source) -> Source:
    """The run without what its processes waited for each other on the card.

    A card's clock goes on while another process has its turn. A second of the run has one second of the card, so where
    the steps' times on it add up to more, they are shortened alike.
    """
    shared = max(1.0, found.rows_per_s * sum(step.model_s + step.copies_s for step in found.on_card))
    phases = (MODEL, *COPIES)
    steps = tuple(
        replace(step, seconds={name: s / shared if name in phases else s for name, s in step.seconds.items()})
        if step.on_card
        else step
        for step in found.steps
    )
    return replace(found, steps=steps, shared=shared)


def _processes(workers: Mapping[str, Collection[str]]) -> dict[str, str]:
    """By step, the first step that ran in mostly the same processes: loaders run steps without a model too."""
    found: dict[str, str] = {}
    for name, mine in workers.items():
        both = {other: (set(mine) & set(workers[other]), set(mine) | set(workers[other])) for other in found}
        alike = (other for other, (shared, all_) in both.items() if len(shared) >= _MOSTLY * len(all_))
        found[name] = found.get(next(alike, ""), name)
    return found


def _step(
    name: str, record: Mapping[str, Any], packets: pa.Table, workers: int, rate: float, process: str
) -> StepTimes:
    told = (record.get("steps") or {}).get(name) or {}
    place = told.get("placement") or {}
    steady = _without_first(packets)
    rows = max(1, int(pc.sum(steady["rows"]).as_py()))
    seconds = {phase: float(pc.sum(steady[phase]).as_py() or 0.0) / rows for phase in INSIDE}
    whole = float(pc.sum(steady["seconds"]).as_py()) / rows
    return StepTimes(
        name=name,
        device=str(steady["device"][0].as_py()),
        workers=workers,
        batch=int(place.get("batch_rows", 1)),
        megapixels=float(pc.sum(steady["cost"]).as_py() or 0) / rows / 1e6,
        seconds={phase: value for phase, value in seconds.items() if value}
        | {"other": max(0.0, whole - sum(seconds.values()))},
        settings=settings_of(told) if {"use", "version", "settings"} <= told.keys() else "",
        precision=str(place.get("precision", "full")),
        compile=bool(place.get("compile", False)),
        process=process,
        gpus=workers * float(place.get("gpus", 0.0)),
        rows_per_s=rate,
    )


def _without_first(packets: pa.Table) -> pa.Table:
    """Packets but for each process's first one, where there are enough of them."""
    workers = np.array(packets["worker"].to_pylist())
    first = [int(np.flatnonzero(workers == one)[0]) for one in np.unique(workers)]
    if packets.num_rows < _FIRST * len(first):
        return packets
    keep = np.ones(packets.num_rows, bool)
    keep[first] = False
    left = packets.filter(pa.array(keep))
    return left if int(pc.sum(left["rows"]).as_py() or 0) else packets
