"""The stored form of a lease: `run.lease-RUN.json` in the output, one object for each run."""

import json
import os
import re
import socket
from collections.abc import Collection, Iterable
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Literal

import psutil

from framekiln.contract.errors import DamagedError
from framekiln.contract.output_names import LEASE_PREFIX
from framekiln.output.object_store import Store

_NAME = re.compile(re.escape(LEASE_PREFIX) + r"(?P<run>[0-9a-f]+)\.json")
_DAMAGE = (AttributeError, DamagedError, KeyError, TypeError, ValueError)

Shard = tuple[int, int]
"""Number of the shard, from 0, and of all shards."""


@dataclass(frozen=True, kw_only=True)
class LeaseRecord:
    """The owner and state of one lease. Its keys are stored, so other versions can read them."""

    run: str
    host: str
    machine: str  # host, boot and container: process numbers are unique within one
    pid: int
    born: float  # `birth` of the process: a later process may get the same number
    since: str  # ISO 8601, UTC; for people only
    shard: Shard | None = None
    state: Literal["asking", "holding", "left"] = "asking"
    beat: int = 0  # heartbeats so far
    over: tuple[str, ...] = ()  # runs whose output it took over

    @classmethod
    def of_this_process(cls, run: str, machine: str, shard: Shard | None) -> "LeaseRecord":
        """Return the first record of a run of this process."""
        process, since = psutil.Process(), datetime.now(UTC).isoformat(timespec="seconds")
        here = {"host": socket.gethostname(), "machine": machine, "pid": process.pid, "born": birth(process)}
        return cls(run=run, since=since, shard=shard, **here)

    def conflicts(self, other: "LeaseRecord") -> bool:
        """Return whether two runs exclude each other: always, except different shards of the same division."""
        mine, theirs = self.shard, other.shard
        return mine is None or theirs is None or mine[1] != theirs[1] or mine[0] == theirs[0]

    def has_ended(self, machine: str, runs_here: Collection[str]) -> bool:
        """Return whether the run has certainly ended, as seen from a machine; false if only time can show it.

        Runs of the checking process share its number; `runs_here` names the live ones.
        """
        if self.state == "left":
            return True
        if self.machine != machine:
            return False
        if self.pid == os.getpid():
            return self.run not in runs_here
        try:
            process = psutil.Process(self.pid)
            return abs(birth(process) - self.born) > 1 or process.status() == psutil.STATUS_ZOMBIE
        except psutil.NoSuchProcess:
            return True


def birth(process: psutil.Process) -> float:
    """Return when a process was created: ticks since the boot, or seconds since 1970 on systems without /proc.

    psutil's time follows the wall clock: a step of the clock would change every living process's time.

    Raises psutil.NoSuchProcess: it has ended.
    """
    try:
        stat = Path(f"/proc/{process.pid}/stat").read_text(errors="replace")
    except OSError:
        return process.create_time()
    return float(stat.rpartition(")")[2].split()[19])  # field 22 of proc(5); the name before it may contain anything


def lease_name(run: str) -> str:
    """Return the name of a run's lease."""
    return f"{LEASE_PREFIX}{run}.json"


def leases_of(names: Iterable[str]) -> set[str]:
    """Return the runs that have a lease among these names."""
    return {match["run"] for name in names if (match := _NAME.fullmatch(name))}


def read_lease(store: Store, run: str) -> LeaseRecord | None:
    """Return a run's lease; None if it was removed, or a lease without owner if it is damaged."""
    try:
        values = store.read_json(lease_name(run))
        shard = tuple(values.pop("shard") or ()) or None
        return LeaseRecord(**values | {"over": tuple(values["over"]), "run": run}, shard=shard)
    except FileNotFoundError:
        return None
    except _DAMAGE:  # perhaps a lease of another version: alive if it is renewed
        return LeaseRecord(run=run, host="an unknown machine", machine="", pid=0, born=0.0, since="", beat=-1)


def write_lease(store: Store, record: LeaseRecord, *, renew: bool = False) -> None:
    """Write or replace a run's lease; `renew`: it existed a moment ago."""
    (store.rewrite if renew else store.write)(lease_name(record.run), json.dumps(asdict(record)).encode())


def machine_id() -> str:
    """Return an id of this host since its boot, and of this container."""
    paths = [path for path in map(Path, ("/proc/sys/kernel/random/boot_id", "/proc/self/ns/pid")) if path.exists()]
    facts = [str(path.readlink()) if path.is_symlink() else path.read_text().strip() for path in paths]
    return " ".join([socket.gethostname(), *facts])
