"""When memory counts as full for so long that a run is stopped, and whose limit holds."""

from __future__ import annotations

import os

import psutil
import pytest

from framekiln.runtime.recovery import memory_pressure
from framekiln.runtime.recovery.memory_pressure import MemoryState, Standstill, read_memory

FULL = {"limit": 1000, "left": 20, "rate": 25_000}


@pytest.mark.parametrize(
    ("looks", "lasts"),
    [
        ([FULL] * 3, True),
        ([FULL], False),  # 10 s
        ([FULL, FULL | {"progress": True}], False),
        ([FULL | {"left": 60}] * 6, False),  # full of cached files, which Linux gives back
        ([FULL | {"rate": 3000}] * 6, False),  # a model as large as the machine that computes
    ],
    ids=["standstill", "for a moment", "progress", "cache", "code stays in memory"],
)
def test_memory_is_full_where_nothing_is_computed_and_code_is_read_again(looks, lasts):
    now, read = 0.0, 0

    def state():
        return MemoryState(limit=look["limit"], left=look["left"], refaults=read)

    look = looks[0]
    standstill = Standstill(state, lambda: now)
    for look in looks:
        now, read = now + 10, read + 10 * look["rate"]
        found = standstill.lasts(progress=look.get("progress", False))
    assert found is lasts


@pytest.mark.parametrize(
    ("controllers", "names", "prefix"),
    [
        ("", ("memory.max", "memory.current"), ""),
        ("memory", ("memory.limit_in_bytes", "memory.usage_in_bytes"), "total_"),
    ],
    ids=["version 2", "version 1"],
)
@pytest.mark.parametrize("inside", [False, True], ids=["host", "container"])
def test_the_limit_of_a_control_group_holds(tmp_path, monkeypatch, controllers, names, prefix, inside):
    group = tmp_path if inside else tmp_path / "a"
    group.mkdir(exist_ok=True)
    lines = ("active_file 100", "inactive_file 50", "workingset_refault_file 7", "anon 800")
    (group / "memory.stat").write_text("".join(f"{prefix}{line}\n" for line in lines))
    for name, value in zip(names, ("1000", "950"), strict=True):
        (group / name).write_text(f"{value}\n")
    (tmp_path / "cgroup").write_text(f"3:cpu:/other\n0:{controllers}:/a\n")
    monkeypatch.setattr(memory_pressure, "_OWN_GROUPS", tmp_path / "cgroup")
    monkeypatch.setattr(memory_pressure, "_GROUPS", {controllers: (str(tmp_path), *names, prefix)})
    assert read_memory() == MemoryState(limit=1000, left=200, refaults=7)


@pytest.mark.parametrize("limit", ["max", str(2**63 - 4096)], ids=["version 2", "version 1"])
def test_a_group_without_a_limit_is_limited_by_the_machine(tmp_path, monkeypatch, limit):
    for name, value in (("max", limit), ("use", "5"), ("memory.stat", "")):
        (tmp_path / name).write_text(value)
    monkeypatch.setattr(memory_pressure, "_GROUPS", {"": (str(tmp_path), "max", "use", "")})
    (tmp_path / "cgroup").write_text("0::/\n")
    monkeypatch.setattr(memory_pressure, "_OWN_GROUPS", tmp_path / "cgroup")
    found = read_memory()
    assert found.limit == psutil.virtual_memory().total == os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    assert 0 < found.left < found.limit
