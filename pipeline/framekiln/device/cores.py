"""The cores that this process may use: containers limit processor time where the list of cores stays whole."""

import math
import os
from pathlib import Path

_GROUPS = Path("/sys/fs/cgroup")
_GROUP = Path("/proc/self/cgroup")


def usable_cores() -> int:
    """Return the cores of this process, at least 1: those it is bound to, or fewer by the quota of a control group.

    Docker's `--cpus 2` and Kubernetes' limits are such quotas. More processes than that wait for one another.
    """
    bound = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return max(1, min([bound, *map(math.ceil, _list_quotas(_GROUPS, _GROUP))]))


def _list_quotas(groups: Path, group: Path) -> list[float]:
    """Return the limits of a process's control group and of all that contain it, in cores (cgroup-v2, and v1's)."""
    try:
        own = next((line[3:] for line in group.read_text().splitlines() if line.startswith("0::")), "/")
    except OSError:
        return []
    folder = groups / own.strip("/")
    places = [place for place in (folder, *folder.parents) if place.is_relative_to(groups)]
    pairs = [_read(place / "cpu.max") for place in places]  # "200000 100000", or "max 100000"
    first = groups / "cpu"
    pairs.append([*_read(first / "cpu.cfs_quota_us"), *_read(first / "cpu.cfs_period_us")])
    return [int(quota) / int(period) for quota, period in (pair for pair in pairs if len(pair) == 2) if quota.isdigit()]


def _read(path: Path) -> list[str]:
    try:
        return path.read_text().split()
    except OSError:
        return []
