"""Full memory: every process then reads its own code from the disk again and again, and none computes.

Neither Linux nor Ray ends such a run. With 1.1 GB for all processes, one made no progress for ten minutes at a load of
79.
"""

import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from operator import attrgetter
from pathlib import Path

import psutil

from framekiln.contract.errors import SetupError

_STANDSTILL_S = 20.0  # s; with 1.1 GB a run ended 30 s after its start; with 45 s here, after 155 s
_LEFT = 0.05  # share of the limit
_REFAULTS = 5000  # pages read again each second, 20 MB; 25,000 at a standstill, up to 5,000 while work still ended
_CACHES = ("active_file", "inactive_file")  # lines of `memory.stat`
_READ_AGAIN = "workingset_refault_file"  # a line there and in /proc/vmstat
_OWN_GROUPS = Path("/proc/self/cgroup")
_GROUPS = {  # by the controllers on a line there: folder, files of limit and use, prefix in `memory.stat`
    "": ("/sys/fs/cgroup", "memory.max", "memory.current", ""),  # version 2
    "memory": ("/sys/fs/cgroup/memory", "memory.limit_in_bytes", "memory.usage_in_bytes", "total_"),  # version 1
}


@dataclass(frozen=True, kw_only=True)
class MemoryState:
    """The memory for this process and its children: the machine's, or their control group's."""

    limit: int  # bytes
    left: int  # bytes, including cached files
    refaults: int  # dropped pages that were read again since the start


def read_memory() -> MemoryState:
    """Return the state of the narrowest limit here."""
    whole = psutil.virtual_memory()
    found = MemoryState(
        limit=whole.total, left=whole.available, refaults=_read_counts(Path("/proc/vmstat")).get(_READ_AGAIN, 0)
    )
    with suppress(OSError):
        for line in _OWN_GROUPS.read_text(encoding="utf-8").splitlines():
            _, controllers, path = line.split(":", 2)
            root, *names = _GROUPS.get(controllers, ("",))
            for folder in (root + path, root) if root else ():  # a container may see its own group as the root
                with suppress(OSError, ValueError):  # no limit
                    found = min(found, _read_group(Path(folder), *names), key=attrgetter("limit"))
    return found


def more_memory() -> str:
    """Return sentences with the limit, and the fix if it was too small."""
    total = read_memory().limit / 1e9
    return (
        f"this machine lets its processes use {total:.1f} GB together. Give it more, or compute fewer steps at once "
        "with --stages."
    )


def memory_full(held: str = "") -> SetupError:
    """Return the error of a run at a standstill; `held` describes its processes' memory."""
    return SetupError(
        "Memory is full, and no work ends: every process reads its code from the disk again and "
        f"again{held and f': {held}'}. Too little memory: {more_memory()}",
        code="FK-MEMORY-FULL",
    )


def _read_group(folder: Path, limit_name: str, use_name: str, prefix: str) -> MemoryState:
    limit, use = (int((folder / name).read_text(encoding="ascii")) for name in (limit_name, use_name))
    counts = _read_counts(folder / "memory.stat")
    *cached, refaults = (counts.get(prefix + name, 0) for name in (*_CACHES, _READ_AGAIN))
    return MemoryState(limit=limit, left=limit - use + sum(cached), refaults=refaults)


def _read_counts(file: Path) -> dict[str, int]:
    with suppress(OSError, ValueError):
        return {name: int(count) for name, count in map(str.split, file.read_text(encoding="ascii").splitlines())}
    return {}


class Standstill:
    """Detector of thrashing: memory is full, and no work ends for a while."""

    def __init__(
        self, read: Callable[[], MemoryState] = read_memory, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._read, self._clock = read, clock
        self._at = self._since = clock()
        self._refaults = read().refaults

    def lasts(self, *, progress: bool) -> bool:
        """Check once; `progress`: whether anything was computed since the last check."""
        state, now = self._read(), self._clock()
        rate = (state.refaults - self._refaults) / max(now - self._at, 1e-3)
        self._at, self._refaults = now, state.refaults
        if progress or state.left > _LEFT * state.limit or rate < _REFAULTS:
            self._since = now
        return now - self._since >= _STANDSTILL_S
