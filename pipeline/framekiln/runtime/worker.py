"""The work of one process: an ordered list of steps, applied to packet after packet.

Each step's part is written at once, by the process that computed it. So results never travel between processes, and the
parts of a killed run stay. A step with an existing part is read instead of computed.
"""

from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import partial

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from framekiln.contract.columns import SOURCE
from framekiln.contract.errors import DamagedError, OutputError
from framekiln.contract.packet import HALO, Packet, RowSpan
from framekiln.contract.placement import Placement
from framekiln.device import Batches, CallScheduler
from framekiln.media.packets.decode import decode, keep_freed_memory, use_one_thread
from framekiln.media.packets.spared import NOTHING_SPARED, Spared
from framekiln.media.units import Segments, Unit
from framekiln.output.ledger import Part, tiling
from framekiln.output.object_store import Store
from framekiln.planning.gpu.calibration_file import fits_folder, settings_of
from framekiln.planning.processes.waves import combined_placement
from framekiln.planning.step import DecodeStep, Step
from framekiln.profiling.records import PACKET, SET_UP, Record, Report, now
from framekiln.profiling.step_work import Recorder, StepWork
from framekiln.profiling.tools.profilers import NO_PROFILERS, ProfilerOptions
from framekiln.runtime.chosen_rows import RowChooser
from framekiln.runtime.parts import Parts, part_of
from framekiln.runtime.recovery.attempt_log import Attempt, Reporter, begin_attempt
from framekiln.runtime.recovery.batch_limits import BatchLimits
from framekiln.runtime.recovery.decode_guard import DecodeGuard
from framekiln.runtime.spared_frames import adopt, find_left_out, spare
from framekiln.runtime.stage_setup import set_up, share_gpu
from framekiln.runtime.step_results import FAILED, Outcome, PacketCaller, advance


class Worker:
    """Steps set up once in this process, and applied to packets."""

    def __init__(
        self,
        steps: Sequence[Step],
        store: Store,
        log: Reporter | None = None,
        key: str = "",
        profilers: ProfilerOptions = NO_PROFILERS,
    ) -> None:
        """Set up the steps, in the order of their use.

        `log` takes the events and attempts; without it, a dead process is not restarted. `key` names processes with
        these steps in the log.
        """
        self._parts, self._chooser = Parts(store), RowChooser(store)
        self._report: Report = log if log is not None else lambda _: None
        self.recorder = Recorder.of(store)
        self._log, self._key = log, key
        share_gpu(steps)
        folder = fits_folder() if log else None
        self._callers = [
            (step, PacketCaller(step, BatchLimits.load(step, folder), profilers.caller(step, store))) for step in steps
        ]
        Batches.calls = _make_call_scheduler(steps)
        for step in steps:
            if step.recalled:
                continue
            record = Record(kind=SET_UP, step=step.name, device=step.placement.device, started=now())
            record.unit = settings_of(step.facts)
            work = StepWork(record, self.recorder)
            # cuDNN's plans and settings of torch's compiler belong to the thread that calls the model
            Batches.calls.apart(partial(set_up, step))
            self._report(work.finish())
        self.recorder.idle()

    @contextmanager
    def packet(self) -> Iterator[None]:
        """Work on a packet in this block, from its arrival to its hand-on; other threads may do so too."""
        with self.recorder.working(), Batches.calls.packet():
            yield

    def apply(self, packet: Packet, waited: float | None = None, fetched: float = 0.0) -> Packet:
        """Apply all steps to a packet, and return it without the columns that no later step reads.

        `waited`: seconds without a packet before this one was opened; None if this process made it.
        `fetched`: seconds that opening it took.

        Raises FramekilnError: processes keep dying at it, and no single call explains it.
        """
        if not self._callers:
            return packet
        names = "+".join(step.name for step, _ in self._callers)
        work = f"{names} at row {packet.start} of unit {packet.unit} ({self._key})"
        arrival = {} if waited is None else {"wait": max(0.0, waited - fetched), "fetch": fetched}
        attempt = begin_attempt(self._log, work)
        for step, caller in self._callers:
            outcome = self._read_stored(step, part_of(packet)) or self._compute(step, caller, packet, attempt, arrival)
            packet, arrival = replace(packet, rows=advance(packet.rows, step, outcome)), {}
        attempt.end()
        return packet

    def decode(
        self,
        step: DecodeStep,
        unit: Unit,
        wanted: Segments,
        finished: Collection[RowSpan],
        known: Sequence[Part] = (),
        whole: Collection[str] = (),
    ) -> Iterator[Packet]:
        """Decode the wanted segments of a unit, and yield its packets after this process's steps.

        Decoding's own part of each packet is written here; an empty part, written last, ends the unit. Packets finished
        before the run are not yielded. This must not depend on the progress of this run: Ray repeats the task of a dead
        process, and skips as many results as it had. `known`: decoding's own parts, if steps need the pixels of some
        rows only, or none; `whole`: see `adopt`.
        """
        is_adopted = step.adopters and known
        if not is_adopted or not all(adopt(self._parts, self._chooser, step, part, whole) for part in known):
            yield from self._decode(step, unit, wanted, finished, known)

    def _decode(
        self, step: DecodeStep, unit: Unit, wanted: Segments, finished: Collection[RowSpan], known: Sequence[Part]
    ) -> Iterator[Packet]:
        use_one_thread()
        keep_freed_memory()
        attempt = begin_attempt(self._log, f"decoding of {wanted} of unit {unit.name}")
        guard = DecodeGuard(step, attempt)

        def is_done(start: int, stop: int) -> bool:  # some finished spans cover these rows end to end
            return tiling(((a - start, b - start) for a, b in finished if a >= start), stop - start) is not None

        spared = self._find_spared(step, unit, known)
        source = (unit, step.columns, step.halo, step.config, wanted)
        packets = decode(*source, is_done, guard, drops=step.drops, spared=spared)
        started, around, ended = now(), {"wait": self.recorder.waited()}, False
        while True:
            guard.resume()
            packet = next(packets, None)
            guard.pause()  # during the work on the packet
            if packet is None:
                break
            decoded = now()
            own = packet.rows.select(SOURCE.names).filter(pc.invert(packet.rows[HALO]))
            if not ended:  # otherwise this is the empty packet, and its part was written with the one before
                self._write_decoded(step, packet, own)
            ended = packet.ends
            around |= {"decode": decoded - started, "write": now() - decoded}
            self._report_decoded(step, packet, own.num_rows, started, around)
            if packet.start < packet.stop and (packet.start, packet.stop) not in finished:
                empty = pa.array([[]] * packet.rows.num_rows, pa.list_(pa.string()))
                yield self.apply(replace(packet, rows=packet.rows.append_column(FAILED, empty), failures=()))
            del packet, own  # otherwise its pixels stay in memory until the next packet is decoded
            started, around = now(), {}
        self.recorder.flush()
        self.recorder.idle()
        attempt.end()

    def _write_decoded(self, step: DecodeStep, packet: Packet, own: pa.Table) -> None:
        self._parts.put(step.folder, part_of(packet), own, packet.failures)
        if packet.ends:  # before the packet is handed on, which may take long: if killed then, the unit is finished
            self._parts.put(step.folder, Part(packet.unit, packet.stop, packet.stop), own.slice(0, 0), ())

    def _report_decoded(
        self, step: DecodeStep, packet: Packet, rows: int, started: float, around: Mapping[str, float]
    ) -> None:
        work = StepWork(_begin_record(step, packet, started), self.recorder, packet.rows)
        work.calls += [now() - started] * bool(rows)
        self._report(work.finish(rows=rows, failures=packet.failures, around=around, share=packet.share))

    def _find_spared(self, step: DecodeStep, unit: Unit, known: Sequence[Part]) -> Spared:
        if not step.narrowed:
            return NOTHING_SPARED
        names, read = [media.media_id for media in unit.media], partial(self._parts.read_decoded, step)
        return spare(self._chooser, names, step.narrowed, known if step.spares else (), read)

    def _read_stored(self, step: Step, part: Part) -> Outcome | None:
        """Return an earlier result; None if it is missing, or damaged and can be computed here."""
        try:
            outcome = self._parts.read(step, part)
        except DamagedError:
            if step.recalled:
                raise
            return None
        if outcome is None and step.recalled:
            raise OutputError(
                f"Results of step {step.name!r} are gone from the output. Run the same command again.",
                code="FK-PART-GONE",
            )
        return outcome

    def _compute(
        self, step: Step, caller: PacketCaller, packet: Packet, attempt: Attempt, arrival: Mapping[str, float]
    ) -> Outcome:
        """Compute and write a step's part; rows that are not retried keep their earlier results."""
        started, left_out = now(), find_left_out(self._chooser, step, packet.rows)
        retried, own = self._parts.retried_rows(step, packet), ~packet.rows[HALO].to_numpy()
        known = self._parts.find_known(step, packet, ~left_out[own]) if step.others and retried is None else None
        done = np.zeros(len(own), bool)
        done[own] = False if known is None else known.taken
        record = _begin_record(step, packet, started)
        record.device = step.placement.device
        work = StepWork(record, self.recorder, packet.rows)
        outcome = caller.run(packet.rows, left_out | done if retried is None else left_out | ~retried, attempt, work)
        outcome.unchosen = left_out[own] if step.is_narrowed else None
        before_write = now()
        if retried is None:
            self._parts.write(step, packet, outcome, known)
        else:
            self._parts.amend(step, packet, outcome, retried)
        computed = own & ~done if retried is None else retried
        rows = int((computed & ~left_out if step.is_narrowed else computed).sum())
        around = {**arrival, "write": now() - before_write}
        self._report(work.finish(rows=rows, failures=outcome.failures, around=around))
        return outcome if retried is None and known is None else self._parts.read(step, part_of(packet)) or outcome


def _make_call_scheduler(steps: Sequence[Step]) -> CallScheduler:
    """Return the scheduler of this process's calls, with an owner thread if packets share a GPU.

    On the CPU each packet's thread calls the models itself, on a core of its own. A compiled model has one thread for
    all calls: settings of torch's compiler belong to a thread or to the process.
    """
    with_models = [step for step in steps if step.keeps_model]
    place = combined_placement(with_models) if with_models else Placement()
    has_owner = place.device != "cpu" or any(step.placement.compile for step in with_models)
    if place.in_flight == 1 or not has_owner:
        return CallScheduler()
    return CallScheduler(place.device, place.linger_ms / 1000)


def _begin_record(step: Step | DecodeStep, packet: Packet, started: float) -> Record:
    record = Record(kind=PACKET, step=step.name, started=started)
    record.unit, record.start, record.stop = packet.unit, packet.start, packet.stop
    return record
