"""Processor time that a container limits is seen as cores."""

from __future__ import annotations

import pytest

from framekiln.device import cores


@pytest.mark.parametrize(
    ("files", "own", "expected"),
    [
        ({"cpu.max": "150000 100000"}, "0::/", [1.5]),
        ({"cpu.max": "max 100000"}, "0::/", []),
        ({"a/cpu.max": "400000 100000", "a/b/cpu.max": "max 100000"}, "0::/a/b", [4.0]),
        ({"cpu/cpu.cfs_quota_us": "50000", "cpu/cpu.cfs_period_us": "100000"}, "4:cpu:/", [0.5]),
        ({"cpu/cpu.cfs_quota_us": "-1", "cpu/cpu.cfs_period_us": "100000"}, "4:cpu:/", []),
        ({"cpu/a/b/cpu.cfs_quota_us": "250000", "cpu/a/b/cpu.cfs_period_us": "100000"}, "4:cpu,cpuacct:/a/b", [2.5]),
        ({"cpu/a/cpu.cfs_quota_us": "300000", "cpu/a/cpu.cfs_period_us": "100000"}, "4:cpuacct,cpu:/a/b\n0::/", [3.0]),
        ({"cpu.max": "100000 0"}, "0::/", []),
        ({"cpu.max": "many 100000"}, "0::/\nno line", []),
        ({}, "0::/../elsewhere", []),
    ],
)
def test_quotas_of_control_groups(files, own, expected, tmp_path):
    groups, group = tmp_path / "groups", tmp_path / "group"
    group.write_text(own + "\n")
    for name, text in files.items():
        (groups / name).parent.mkdir(parents=True, exist_ok=True)
        (groups / name).write_text(text + "\n")
    assert cores._list_quotas(groups, group) == expected


@pytest.mark.parametrize(("quotas", "expected"), [([], 8), ([1.5], 2), ([0.2], 1), ([16.0], 8)])
def test_the_smaller_of_list_and_quota_counts(quotas, expected, monkeypatch):
    monkeypatch.setattr("os.sched_getaffinity", lambda _: set(range(8)))
    monkeypatch.setattr(cores, "_list_quotas", lambda *_: quotas)
    assert cores.usable_cores() == expected
