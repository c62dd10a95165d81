"""The cores that this process may use. A container limits processor time and still lists all cores."""

import math
import os
from pathlib import Path

_GROUPS = Path("/sys/fs/cgroup")
_GROUP = Path("/proc/self/cgroup")


def usable_cores() -> int:
    """Return the cores of this process, at least 1: the cores it is bound to, or its quota if that is less.

    Docker's `--cpus 2` and Kubernetes' limits are such quotas. More processes than cores wait for one another.
    """
    return max(1, min([len(bound_cores()), *map(math.ceil, _list_quotas(_GROUPS, _GROUP))]))


def bound_cores() -> frozenset[int]:
    """Return the numbers of the cores that this process is bound to, as by Slurm, taskset or Docker's --cpuset-cpus."""
    if hasattr(os, "sched_getaffinity"):
        return frozenset(os.sched_getaffinity(0))
    return frozenset(range(os.cpu_count() or 1))


def _list_quotas(groups: Path, group: Path) -> list[float]:
    """Return the limits, in cores, of a process's control group and of all groups around it (cgroup v1 and v2).

    A line of `group` is `0::/a/b` for v2, and `4:cpu,cpuacct:/a/b` for v1, whose groups lie below `groups/cpu`. A
    container may see its own group as the root.
    """
    try:
        lines = [line.split(":", 2) for line in group.read_text(errors="replace").splitlines()]
    except OSError:
        return []
    own = {name: line[2].strip("/") for line in lines if len(line) == 3 for name in line[1].split(",")}
    pairs = [_read(place / "cpu.max") for place in _list_places(groups, own.get("", ""))]
    first = _list_places(groups / "cpu", own.get("cpu", ""))
    pairs += [[*_read(place / "cpu.cfs_quota_us"), *_read(place / "cpu.cfs_period_us")] for place in first]
    # "200000 100000", or "max 100000", or "-1" and "100000"
    limits = (pair for pair in pairs if len(pair) == 2 and all(map(str.isdecimal, pair)) and int(pair[1]))
    return [int(quota) / int(period) for quota, period in limits]


def _list_places(root: Path, own: str) -> list[Path]:
    folder = root / own
    return [place for place in (folder, *folder.parents) if place.is_relative_to(root)]


def _read(path: Path) -> list[str]:
    try:
        return path.read_text(errors="replace").split()
    except OSError:
        return []
