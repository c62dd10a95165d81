"""Who may write into an output: one run at a time, or the shards of one collection, each its own share.

Every run puts down a lease, an object of its own, and changes it in a heartbeat; nobody writes another's. So there is
no lock to break: it takes whole objects, and listings that show what was written before them, which disks, S3 and GCS
give. Whether another run is alive is told by its process on the same machine, and elsewhere by whether its lease
changes; clocks are never compared. A run that ends well takes its lease along. Any other leaves it behind, and so tells
the next run whose half-written files it may sweep.
"""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import threading
import time
import uuid
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from types import FrameType, TracebackType
from typing import Literal

import psutil

from pipeline.errors import OutputError
from pipeline.storage import Store

BEAT_SECONDS = 5.0  # two small requests to a bucket: nothing beside a run's own
MISSED = (
    12  # a minute: a client of S3 gives a request up after three tries of some seconds; a person still waits for it
)
_NAME = re.compile(r"run\.lease-(?P<run>[0-9a-f]+)\.json")
_HERE: set[str] = set()  # runs of this process: its number says nothing of those

Shard = tuple[int, int]


@dataclass(frozen=True, kw_only=True)
class Note:
    """What a lease says."""

    run: str
    host: str
    machine: str  # where process numbers mean the same
    pid: int
    born: float  # of the process, so that a later one with its number is not taken for it
    since: str  # ISO 8601, UTC; for people only
    shard: Shard | None = None
    state: Literal["asking", "holding", "left"] = "asking"
    beat: int = 0
    over: tuple[str, ...] = ()  # runs it took the output over from


def conflict(one: Shard | None, other: Shard | None) -> bool:
    """Whether two runs may not write at the same time: all but different shards of the same number of shards."""
    return one is None or other is None or one[1] != other[1] or one[0] == other[0]


class Lease:
    """A run's right to write into an output, as a context: taken at its start and given back at its end."""

    def __init__(
        self,
        store: Store,
        shard: Shard | None = None,
        *,
        on_wait: Callable[[str], None] = lambda _: None,
        beat_seconds: float = BEAT_SECONDS,
        machine: str | None = None,
    ) -> None:
        """Bind; nothing is touched yet.

        Args:
            store: the output.
            shard: number from 0, of how many; None for a run over everything.
            on_wait: told, in a sentence, why the start takes a while.
            beat_seconds: between heartbeats; all runs into one output must agree on it.
            machine: where process numbers mean the same; None: this machine.
        """
        process = psutil.Process()
        self.run = uuid.uuid4().hex[:12]
        self._store, self._on_wait, self._beat_seconds = store.of_run(self.run), on_wait, beat_seconds
        self._note = Note(
            run=self.run,
            host=socket.gethostname(),
            machine=machine or _machine(),
            pid=process.pid,
            born=process.create_time(),
            since=datetime.now(UTC).isoformat(timespec="seconds"),
            shard=shard,
        )
        self._lost, self._deaf = "", False
        self._friends: set[str] = set()  # runs of other shards: read once, where there may be a hundred of them
        self._owner = threading.get_ident()
        self._writing, self._stop = threading.Lock(), threading.Event()
        self._thread = threading.Thread(target=self._keep, daemon=True, name="lease")

    @property
    def taken_over(self) -> frozenset[str]:
        """Runs that did not end well, whose half-written files may be swept."""
        return frozenset(self._note.over)

    def __enter__(self) -> Lease:
        _HERE.add(self.run)
        self._put()
        self._listen()
        self._thread.start()
        try:
            for other in self._others():
                self._settle(other)
            self._put(state="holding")
            if self._replaced():
                self._lose("another run took it over")
            self.check()
        except BaseException:
            self._end()
            self._store.remove(_name(self.run))
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._end()
        try:
            if kind is None or self._lost:
                self._store.remove(_name(self.run))
            else:
                self._put(state="left")
        except OutputError:
            if kind is None:
                raise
        if kind is KeyboardInterrupt:  # it may be ours
            self.check()

    def check(self) -> None:
        """Make sure that the output is still ours.

        Raises:
            OutputError: another run took it over, or nobody could be told for too long that this one lives.
        """
        if self._lost:
            raise OutputError(self._lost)

    def _settle(self, other: Note) -> None:
        """Take the output over from a run that is dead, or refuse to go on.

        Of two that ask at the same time the one with the smaller name waits until the other, which sees it, has given
        up or was first.
        """
        first, deadline = other, time.monotonic() + MISSED * self._beat_seconds
        told = False
        while (now := _read(self._store, other.run)) is not None:
            gives_up = now.state == "asking" and now.run > self.run
            if _dead(now, self._note.machine) or time.monotonic() > deadline:
                self._put(over=(*self._note.over, now.run, *now.over))
                self._store.remove(_name(now.run))
                return
            if not gives_up and (now.machine == self._note.machine or now.beat != first.beat):
                raise OutputError(self._refusal(now))
            if not told:
                wait = MISSED * self._beat_seconds
                self._on_wait(f"A run on {now.host} has left a lease; it has {wait:.0f} s to show that it is alive.")
                told = True
            time.sleep(self._beat_seconds / 10)

    def _refusal(self, other: Note) -> str:
        share = f", shard {other.shard[0] + 1}/{other.shard[1]}" if other.shard else ""
        who = f"process {other.pid} on {other.host}, since {other.since}{share}"
        return (
            f"Another run is writing into {self._store.root!r} ({who}); wait for its end or stop it, or choose another "
            "output with --output."
        )

    def _keep(self) -> None:
        """Show that we live, and see whether others believe it."""
        told = time.monotonic()
        while not self._stop.wait(self._beat_seconds):
            try:
                if self._replaced():
                    self._lose("another run took it over, or its lease was deleted")
                    return
                self._put(beat=self._note.beat + 1)
                told = time.monotonic()
            except (OutputError, OSError, TypeError, ValueError) as error:
                if time.monotonic() - told > MISSED * self._beat_seconds:  # others take us for dead by now
                    self._lose(f"its lease could not be renewed: {error}")
                    return

    def _replaced(self) -> bool:
        if not self._store.exists(_name(self.run)):
            return True
        return any(self.run in other.over for other in self._others())

    def _lose(self, why: str) -> None:
        self._lost = (
            f"This run does not hold the output {self._store.root!r} any more ({why}); see that only one run writes "
            "there, then run the same command again."
        )
        if self._owner == threading.main_thread().ident and not self._stop.is_set():
            signal.pthread_kill(self._owner, signal.SIGINT)  # it ends as by Ctrl-C, wherever it waits

    def _listen(self) -> None:
        """Hear our own Ctrl-C where the user's is ignored, as in what a script starts in the background."""
        on_main = self._owner == threading.main_thread().ident
        self._deaf = on_main and signal.getsignal(signal.SIGINT) is signal.SIG_IGN
        if self._deaf:
            signal.signal(signal.SIGINT, self._heard)

    def _heard(self, _number: int, _frame: FrameType | None) -> None:
        if self._lost:
            raise KeyboardInterrupt

    def _end(self) -> None:
        self._stop.set()
        self._thread.join()
        if self._deaf:
            signal.signal(signal.SIGINT, signal.SIG_IGN)
        _HERE.discard(self.run)

    def _put(self, **changes: object) -> None:
        with self._writing:
            self._note = replace(self._note, **changes)  # type: ignore[arg-type]
            self._store.write(_name(self.run), json.dumps(asdict(self._note)).encode())

    def _others(self) -> list[Note]:
        """What the leases say that do not go with ours."""
        wanted = sorted(_there(self._store) - self._friends - {self.run})
        notes = [note for run in wanted if (note := _read(self._store, run)) is not None]
        self._friends |= {note.run for note in notes if not conflict(self._note.shard, note.shard)}
        return [note for note in notes if note.run not in self._friends]


def at_work(store: Store) -> frozenset[str]:
    """Runs into an output that go on, as far as can be told at once; one that died on another machine is among them."""
    notes = (_read(store, run) for run in _there(store))
    return frozenset(note.run for note in notes if note is not None and not _dead(note, _machine()))


def _there(store: Store) -> set[str]:
    return {match["run"] for name in store.names("") if (match := _NAME.fullmatch(name))}


def _read(store: Store, run: str) -> Note | None:
    try:
        said = json.loads(store.read(_name(run)))
    except FileNotFoundError:
        return None
    shard = tuple(said.pop("shard") or ()) or None
    return Note(**said | {"over": tuple(said["over"])}, shard=shard)


def _name(run: str) -> str:
    return f"run.lease-{run}.json"


def _dead(note: Note, machine: str) -> bool:
    """Whether a run has certainly ended; false where only time can tell."""
    if note.state == "left":
        return True
    if note.machine != machine:
        return False
    if note.pid == os.getpid():
        return note.run not in _HERE
    try:
        process = psutil.Process(note.pid)
        return abs(process.create_time() - note.born) > 1 or process.status() == psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return True


def _machine() -> str:
    """This host since it was started, and in it this container."""
    facts = [socket.gethostname()]
    for path in ("/proc/sys/kernel/random/boot_id", "/proc/self/ns/pid"):
        found = Path(path)
        if found.exists():
            facts.append(str(found.readlink()) if found.is_symlink() else found.read_text().strip())
    return " ".join(facts)
