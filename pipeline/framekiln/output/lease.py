"""Exclusive writing: one run per output at a time, or the shards of one collection.

Every run writes a lease, an object of its own, and updates it by a heartbeat. No run writes another's lease, so there
is no lock to break. This needs atomic objects and listings that include earlier writes, which disks, S3 and GCS
provide. On the same machine a run is alive if its process is; elsewhere, if its lease changes. Clocks are never
compared. A run that is taken over may only be asleep. So it is fenced first, and can publish nothing when it wakes
(`Store.fence`). A run that ends without error removes its lease. Other runs leave it, so that the next run gathers
their records.
"""

import signal
import threading
import time
import uuid
from collections.abc import Callable
from dataclasses import replace

from framekiln.contract.errors import FramekilnError, OutputError
from framekiln.output.lease_record import LeaseRecord, Shard, lease_name, leases_of, machine_id, read_lease, write_lease
from framekiln.output.object_store import Store
from framekiln.output.publisher import TEMPORARY

HEARTBEAT_SECONDS = 5.0  # s; two small requests to a bucket are negligible
MAX_MISSED = 12  # heartbeats, a minute: an S3 client gives up a request after three tries of some seconds
_RUNS_HERE: set[str] = set()  # runs of this process, which share its number


class Lease:
    """A run's right to write into an output, as a context manager."""

    def __init__(
        self,
        store: Store,
        shard: Shard | None = None,
        *,
        on_wait: Callable[[str], None] = lambda _: None,
        heartbeat_seconds: float = HEARTBEAT_SECONDS,
        machine: str | None = None,
    ) -> None:
        """Prepare the lease; do not touch the output yet.

        Without a shard, the run covers everything. `on_wait` is called with a sentence if the start has to wait.
        All runs into one output must use the same `heartbeat_seconds`.
        """
        self.run = uuid.uuid4().hex[:12]
        self._store, self._on_wait, self._heartbeat_seconds = store.of_run(self.run), on_wait, heartbeat_seconds
        self._record = LeaseRecord.of_this_process(self.run, machine or machine_id(), shard)
        self._fatal: FramekilnError | None = None
        self._lost, self._replaced_handler = False, False
        self._compatible: set[str] = set()  # runs of other shards: read once, as there may be a hundred
        self._owner = threading.get_ident()
        self._writing, self._stop = threading.Lock(), threading.Event()
        self._thread = threading.Thread(target=self._heartbeat, daemon=True, name="lease")

    @property
    def taken_over(self) -> frozenset[str]:
        """Failed runs with records that nobody has gathered yet."""
        return frozenset(self._record.over)

    def __enter__(self) -> "Lease":
        _RUNS_HERE.add(self.run)
        self._store.begin()
        self._update()
        on_main = self._owner == threading.main_thread().ident
        self._replaced_handler = on_main and signal.getsignal(signal.SIGINT) is signal.SIG_IGN
        if self._replaced_handler:
            signal.signal(signal.SIGINT, self._on_interrupt)  # the script that started this process ignores Ctrl-C
        self._thread.start()
        try:
            for other in self._find_conflicts(leases_of(self._store.names(""))):
                self._resolve(other)
            self._update(state="holding")
            if self._is_replaced():
                self._lose("another run took it over")
            self.check()
        except BaseException:
            self._end()
            self._remove()
            raise
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        self._end()
        try:
            if kind is None or self._lost:
                self._remove()
            else:
                try:
                    self._update(state="left")
                finally:  # works on a full disk too
                    self._store.fence(self.run)  # its workers may live on for a moment
        except OutputError:
            if kind is None:
                raise
        if kind is KeyboardInterrupt:  # perhaps sent by `end_run`
            self.check()

    def check(self) -> None:
        """Check that this run still holds the output, and that no thread has ended the run.

        Raises OutputError: another run took the output over, or the lease could not be renewed for too long. Raises
        FramekilnError: the error given to `end_run`.
        """
        if self._fatal is not None:
            raise self._fatal

    def end_run(self, error: FramekilnError) -> None:
        """End the run from another thread: interrupt its main thread as Ctrl-C does. `__exit__` raises the error."""
        self._fatal = self._fatal or error
        if self._owner == threading.main_thread().ident and not self._stop.is_set():
            signal.pthread_kill(self._owner, signal.SIGINT)  # wherever the main thread waits

    def _resolve(self, other: LeaseRecord) -> None:
        """Take the output over from an ended run, or refuse to continue.

        If two runs start at once, the one with the smaller name waits until the other gives up or wins.
        """
        wait = MAX_MISSED * self._heartbeat_seconds
        first, timeout = other, time.monotonic() + wait
        announced = False
        while (now := read_lease(self._store, other.run)) is not None:
            yields = now.state == "asking" and now.run > self.run
            if now.has_ended(self._record.machine, _RUNS_HERE) or time.monotonic() > timeout:
                self._update(over=(*self._record.over, now.run, *now.over))
                for run in (now.run, *now.over):
                    self._store.fence(run)
                self._store.remove(lease_name(now.run))
                if now.state == "holding":
                    self._on_wait(_describe_end(now))
                return
            if not yields and (now.machine == self._record.machine or now.beat != first.beat):
                raise OutputError(self._describe_use(now), code="FK-OUTPUT-IN-USE")
            if not announced:
                self._on_wait(f"A run on {now.host} has a lease; waiting up to {wait:.0f} s for its heartbeat.")
                announced = True
            time.sleep(self._heartbeat_seconds / 10)

    def _describe_use(self, other: LeaseRecord) -> str:
        share = f", shard {other.shard[0] + 1}/{other.shard[1]}" if other.shard else ""
        owner = f"process {other.pid} on {other.host}, since {other.since}{share}"
        return (
            f"Another run writes into {self._store.root!r} ({owner}); wait for its end or stop it, or choose another "
            "output with --output."
        )

    def _heartbeat(self) -> None:
        renewed = time.monotonic()
        while not self._stop.wait(self._heartbeat_seconds):
            try:
                if self._is_replaced():
                    self._lose("another run took it over, or its lease was deleted")
                    return
                self._update(renew=True, beat=self._record.beat + 1)
                renewed = time.monotonic()
            except (OutputError, OSError, TypeError, ValueError) as error:
                if time.monotonic() - renewed > MAX_MISSED * self._heartbeat_seconds:  # from now on it counts as dead
                    self._lose(f"its lease could not be renewed: {error}")
                    return

    def _is_replaced(self) -> bool:
        names = self._store.names("", hidden=True)
        own = [lease_name(self.run), *([] if self._store.appends else [TEMPORARY + self.run])]
        if any(name not in names and not self._store.exists(name) for name in own):  # a listing may lag
            return True
        return any(self.run in other.over for other in self._find_conflicts(leases_of(names)))

    def _lose(self, reason: str) -> None:
        self._lost = True
        text = (
            f"This run no longer holds the output {self._store.root!r} ({reason}); check that only one run writes "
            "there, then run the same command again."
        )
        self.end_run(OutputError(text, code="FK-OUTPUT-LOST"))

    def _on_interrupt(self, *_: object) -> None:
        if self._fatal is not None:
            raise KeyboardInterrupt

    def _remove(self) -> None:
        """Remove the lease; no process of this run writes any more."""
        self._store.remove(lease_name(self.run))
        self._store.fence(self.run)

    def _end(self) -> None:
        self._stop.set()
        self._thread.join()
        if self._replaced_handler:
            signal.signal(signal.SIGINT, signal.SIG_IGN)
        _RUNS_HERE.discard(self.run)

    def _update(self, *, renew: bool = False, **changes: object) -> None:
        with self._writing:
            self._record = replace(self._record, **changes)  # type: ignore[arg-type]
            write_lease(self._store, self._record, renew=renew)

    def _find_conflicts(self, present: set[str]) -> list[LeaseRecord]:
        runs = sorted(present - self._compatible - {self.run})
        records = [record for run in runs if (record := read_lease(self._store, run)) is not None]
        self._compatible |= {record.run for record in records if not self._record.conflicts(record)}
        return [record for record in records if record.run not in self._compatible]


def _describe_end(other: LeaseRecord) -> str:
    return (
        f"The run of process {other.pid} on {other.host} ended without a message: it was killed, maybe by full memory, "
        "or a process of Ray was. This run continues from its finished work; `--engine local` does without Ray."
    )


def active_runs(store: Store) -> frozenset[str]:
    """Return the runs that still write into an output; a run that died on another machine is included."""
    records = (read_lease(store, run) for run in leases_of(store.names("")))
    machine = machine_id()
    return frozenset(
        record.run for record in records if record is not None and not record.has_ended(machine, _RUNS_HERE)
    )
