"""One process's work: an ordered list of steps on one packet after another.

Each step's part is written as soon as it is made, by the process that made it. So results never travel, what a killed
run has finished stays finished, and a step whose part is already there is read instead of computed.
"""

from __future__ import annotations

import time
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from pipeline.calls import Caller, Outcome
from pipeline.ceilings import Ceilings, ceilings_folder
from pipeline.columns import KEYS, SOURCE
from pipeline.errors import OutputError
from pipeline.failure import Failure, reasons
from pipeline.guarding import DecodeGuard
from pipeline.instruments import NONE, Instruments
from pipeline.journal import Care, Journal, Unkept, take_up, worker_name
from pipeline.ledger import Part, Span, tiling
from pipeline.media.decode import decode
from pipeline.media.pixels import keep_to_one_thread
from pipeline.media.units import Unit
from pipeline.packet import HALO, Packet
from pipeline.parts import Parts, part_of
from pipeline.readiness import set_up, share_gpu
from pipeline.recorder import Notes, Recorder, pixels
from pipeline.sample import SET_UP, Report, Sample
from pipeline.step import DecodeStep, Step
from pipeline.storage import Store
from pipeline.telemetry.records import PACKET, Record
from pipeline.telemetry.records import SET_UP as SETTING_UP

FAILED = "failed"
"""Private column of a packet: for each row, the steps that failed on it."""


class Worker:
    """Steps set up once in this process, and applied to packets."""

    def __init__(
        self,
        steps: Sequence[Step],
        store: Store,
        report: Report,
        journal: Journal | None = None,
        key: str = "",
        instruments: Instruments = NONE,
    ) -> None:
        """Set the steps up.

        Args:
            steps: in the order they are applied.
            store: where their parts go.
            report: takes a sample of each packet.
            journal: where this process says what it does; None where nobody starts it again.
            key: what the journal calls processes with these steps.
            instruments: what looks at their calls.
        """
        self._parts, self._report = Parts(store), report
        self.recorder = Recorder.of(store)
        self._journal, self._key = journal or Unkept(), key
        self._name = worker_name()
        share_gpu(steps)
        remembered = ceilings_folder() if journal else None
        probed = ((step, instruments.probe(step, store)) for step in steps)
        self._callers = [(step, Caller(step, Ceilings.of(step, remembered), probe)) for step, probe in probed]
        for step in steps:
            if step.recalled:
                continue
            started = time.time()
            set_up(step)
            took = time.time() - started
            device = step.placement.device
            self.recorder.write(Record(kind=SETTING_UP, step=step.name, device=device, started=started, seconds=took))
            report(Sample(step=f"{step.name}{SET_UP}", worker=self._name, started=started, seconds=took))
        self.recorder.free()

    def apply(self, packet: Packet, fetched: float | None = None) -> Packet:
        """The packet after all steps, without the columns that nobody reads any more.

        Args:
            packet: whole.
            fetched: seconds that it took to open it; None where this process has made it.

        Raises:
            FramemillError: processes keep dying at it, and no call is to blame.
        """
        if not self._callers:
            return packet
        names = "+".join(step.name for step, _ in self._callers)
        work = f"{names} at row {packet.start} of unit {packet.unit} ({self._key})"
        arrival = {} if fetched is None else {"wait": max(0.0, self.recorder.waited() - fetched), "fetch": fetched}
        care = take_up(self._journal, work, self._name)
        for step, caller in self._callers:
            packet, arrival = self._step(step, caller, packet, care, arrival), {}
        self._journal.end(work)
        return packet

    def decode(self, step: DecodeStep, unit: Unit, share: int, finished: Collection[Span]) -> Iterator[Packet]:
        """Packets of a unit's share, after this process's steps, but for those that were finished before the run.

        The decoder's own part of each packet is written here, the empty one that ends the unit last. What is left out
        must not depend on what this run has done: when a task dies, Ray runs it again and goes on at the same number
        of its results.
        """
        keep_to_one_thread()
        work = f"decoding of share {share} of unit {unit.name}"
        guard = DecodeGuard(step, take_up(self._journal, work, self._name))
        tiled = partial(_tiled, finished)
        packets = decode(unit, step.columns, step.halo, step.config, share, tiled, guard, drops=step.drops)
        started, took = time.time(), {"wait": self.recorder.waited()}
        for packet in _by_turns(packets, guard):
            decoded = time.time()
            own = packet.rows.select(SOURCE.names).filter(pc.invert(packet.rows[HALO]))
            self._parts.put(step.folder, part_of(packet), own, packet.failures)
            if packet.ends:  # who is killed while this is handed on, which may take long, has finished the unit
                self._parts.put(step.folder, Part(packet.unit, packet.stop, packet.stop), own.slice(0, 0), ())
            took |= {"decode": decoded - started, "write": time.time() - decoded}
            told = Record(kind=PACKET, step=step.name, started=started, rows=own.num_rows, durations=took)
            told.cost = int(pixels(own).sum())
            self._tell(told, packet, packet.failures, share=packet.share)
            if packet.start < packet.stop and (packet.start, packet.stop) not in finished:
                empty = pa.array([[]] * packet.rows.num_rows, pa.list_(pa.string()))
                yield self.apply(replace(packet, rows=packet.rows.append_column(FAILED, empty), failures=()))
            started, took = time.time(), {}
        self.recorder.flush()
        self._journal.end(work)

    def _step(self, step: Step, caller: Caller, packet: Packet, care: Care, arrival: Mapping[str, float]) -> Packet:
        part = part_of(packet)
        carried = [name for name in step.stage.outputs.names if name not in step.drops]
        if self._parts.done(step, part):
            outcome = self._parts.read(step, part, carried)
        elif step.recalled:
            raise OutputError(f"What {step.name!r} has written is gone from the output; run the same command again.")
        else:
            outcome = self._computed(step, caller, packet, care, carried, arrival)
        return replace(packet, rows=_advance(packet.rows, step, outcome, carried))

    def _computed(
        self,
        step: Step,
        caller: Caller,
        packet: Packet,
        care: Care,
        carried: Sequence[str],
        arrival: Mapping[str, float],
    ) -> Outcome:
        """What the step says of the packet, written down; of rows that are not tried again, what it said before."""
        started, left_out = time.time(), failed_rows(packet.rows, step.depends)
        chosen = self._parts.marked(step, packet)
        told = Record(kind=PACKET, step=step.name, device=step.placement.device, unit=packet.unit, started=started)
        told.start = packet.start
        notes = Notes(self.recorder, told, packet.rows)
        outcome = caller.run(packet.rows, left_out if chosen is None else left_out | ~chosen, care, notes)
        made = time.time()
        if chosen is None:
            self._parts.write(step, packet, outcome)
        else:
            self._parts.renew(step, packet, outcome, chosen)
        told.rows = outcome.columns.num_rows if chosen is None else int(chosen.sum())
        told.cost, told.items, told.durations = notes.cost, notes.items, {**arrival, "write": time.time() - made}
        told.memory, told.retries = notes.memory, notes.retries
        self._tell(told, packet, outcome.failures, notes)
        return outcome if chosen is None else self._parts.read(step, part_of(packet), carried)

    def _tell(
        self, told: Record, packet: Packet, failures: Sequence[Failure], notes: Notes | None = None, share: float = 0.0
    ) -> None:
        """Hand in a packet's record, whose durations are those outside of calls, and the sample of it."""
        told.unit, told.start, told.stop = packet.unit, packet.start, packet.stop
        told.seconds = time.time() - told.started
        around, phases = told.durations, notes.phases if notes else {}
        told.durations = {**phases, **around}
        self.recorder.write(told)
        self._report(
            Sample(
                step=told.step,
                worker=self._name,
                unit=told.unit,
                rows=told.rows,
                failures=len(failures),
                reasons=reasons(failures),
                share=share,
                started=told.started,
                seconds=told.seconds,
                phases=phases,
                around=around,
                calls=tuple(notes.calls) if notes else (told.seconds,) * bool(told.rows),
                device=told.device,
                memory=told.memory,
                retries=told.retries,
            )
        )


def _by_turns(packets: Iterator[Packet], guard: DecodeGuard) -> Iterator[Packet]:
    """Packets, while the guard rests in what is done with each."""
    while True:
        guard.resume()
        packet = next(packets, None)
        guard.rest()
        if packet is None:
            return
        yield packet


def _tiled(finished: Collection[Span], start: int, stop: int) -> bool:
    """Whether some spans cover the rows from one number to another end to end."""
    return tiling(((a - start, b - start) for a, b in finished if a >= start), stop - start) is not None


def failed_rows(rows: pa.Table, depends: frozenset[str]) -> NDArray[np.bool_]:
    """For each row, whether one of the given steps failed on it."""
    result = np.zeros(rows.num_rows, dtype=bool)
    lists = rows[FAILED].combine_chunks()
    if depends and len(lists.flatten()):
        result[:] = [bool(depends & set(names)) for names in lists.to_pylist()]
    return result


def _advance(rows: pa.Table, step: Step, outcome: Outcome, carried: Sequence[str]) -> pa.Table:
    """The packet's rows after a step: what is read later is added, what is not is dropped."""
    halo = rows[HALO].to_numpy()
    place = np.where(halo, -1, np.cumsum(~halo) - 1)
    for name in carried:
        rows = rows.append_column(name, outcome.columns[name].take(pa.array(place, mask=halo)).combine_chunks())
    if outcome.failures:
        rows = rows.set_column(rows.column_names.index(FAILED), FAILED, _mark(rows, step.name, outcome.failures))
    return rows.drop_columns([name for name in step.drops if name in rows.column_names])


def _mark(rows: pa.Table, name: str, failures: Sequence[Failure]) -> pa.Array:
    keys = {(failure.media_id, failure.frame_index) for failure in failures}
    hit = [
        (row["media_id"], row["frame_index"]) in keys and not row[HALO]
        for row in rows.select([*KEYS, HALO]).to_pylist()
    ]
    before: list[list[str]] = rows[FAILED].to_pylist()
    return pa.array(
        [[*names, name] if bad else names for names, bad in zip(before, hit, strict=True)], pa.list_(pa.string())
    )
