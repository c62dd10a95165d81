"""The verdict names the step that keeps a run back, says who waits for whom, and what to change."""

from __future__ import annotations

import pytest

from tests.run_records import GPU, Made

VERDICTS = {
    "nothing": (Made(), "too-short", "", "more files"),
    "three packets": (Made().step("decode", 9.0, packets=3), "too-short", "", "more files"),
    "set-up": (Made().step("decode", 9.0).step("faces", 1.0, set_up=80.0), "start-up", "faces", "more files"),
    "set-up is long but the run is longer": (Made().step("decode", 9.0, set_up=50.0), "busy", "decode", ""),
    "second pass": (
        Made().step("decode", 0.5).step("identities", 15.0, unit="all.parquet"),
        "later",
        "identities",
        "raise identities's workers",
    ),
    "second pass that is short": (
        Made().step("decode", 9.0).step("identities", 1.0, packets=1, unit="all.parquet"),
        "busy",
        "decode",
        "",
    ),
    "decode": (
        Made().step("decode", 9.7).step("faces", 3.0, wait=6.2, **GPU),
        "busy",
        "decode",
        "raise decode's workers, or lower its cost with smaller pictures such as frame_1024",
    ),
    "model": (Made().step("decode", 2.0, seal=8.0).step("faces", 9.9, **GPU), "busy", "faces", "raise its batch"),
    "postprocess": (
        Made().step("decode", 2.0).step("faces", 9.0, phases={"infer": 2.0, "postprocess": 7.0}, **GPU),
        "busy",
        "faces",
        "one more worker",
    ),
    "copies": (
        Made().step("faces", 9.0, phases={"infer": 2.0, "upload": 7.0}, **GPU),
        "busy",
        "faces",
        "pin_memory: true",
    ),
    "disk": (Made().step("faces", 9.0, phases={"infer": 2.0, "write": 7.0}, **GPU), "busy", "faces", "faster disk"),
    "processor": (Made().step("decode", 2.0).step("pose", 9.0), "busy", "pose", "raise pose's workers"),
    "beside decode": (
        Made().step("decode", 2.0, worker="h:1").step("light", 7.5, worker="h:1", at=2.0),
        "busy",
        "light",
        "raise decode's workers, whose processes it shares",
    ),
    "held": (Made().step("decode", 4.0, seal=5.5).step("faces", 5.0, **GPU), "held", "decode", "object store"),
    "idle": (Made().step("decode", 4.0).step("faces", 5.0, wait=4.0, **GPU), "idle", "", "more files at once"),
}


@pytest.mark.parametrize("name", VERDICTS)
def test_verdicts(name):
    made, rule, step, change = VERDICTS[name]
    found = made.verdict()
    assert (found.rule, found.step) == (rule, step), str(found)
    assert change in found.change


def test_a_verdict_says_who_waits_for_whom():
    found = Made().step("decode", 9.7).step("faces", 3.0, wait=6.2, **GPU).verdict()
    assert "faces waits 58 % of its time for input while decode is busy 97 % of its time: raise decode's" in str(found)


def test_a_verdict_lays_nothing_on_a_later_step_but_that_packets_are_not_taken():
    """Ray gives an early step no input while a late one is slow, which is not what that step waits for."""
    slow = {"at": 1.0, **GPU}
    assert str(Made().step("decode", 3.0, wait=6.2).step("faces", 9.7, **slow).verdict()).startswith(
        "faces is busy 97 %"
    )
    stuck = Made().step("decode", 3.0, seal=6.2).step("faces", 9.7, **slow).verdict()
    assert str(stuck).startswith("decode spends 58 % of its time handing packets on while faces is busy 97 %")


TAKEN = {
    "decode": Made().step("decode", 9.7).step("faces", 3.0, wait=6.2, **GPU),
    "pose": Made().step("decode", 2.0).step("pose", 9.0),
    "light": Made().step("decode", 2.0, worker="h:1").step("light", 7.5, worker="h:1", at=2.0),
    "identities": Made().step("decode", 0.5).step("identities", 15.0, unit="all.parquet"),
    "faces": Made().step("decode", 2.0).step("faces", 9.0, phases={"infer": 2.0, "postprocess": 7.0}, **GPU),
}


@pytest.mark.parametrize("step", TAKEN)
def test_where_all_cores_are_taken_no_more_workers_are_asked_for(step):
    made = TAKEN[step]
    assert "worker" in made.verdict(cpu=60.0).change and "more workers" not in made.verdict(cpu=60.0).change
    busy, placed = made.verdict(cpu=98.0), made.verdict(cpu=60.0, full=[step])
    for found, why in (
        (busy, "all cores are taken (CPU 98 %)"),
        (placed, "no core is left for one more worker (CPU 60 %)"),
    ):
        assert found.step == step and found.reason.endswith(f", and {why}")
        assert found.change.startswith(f"more workers will not help; lower {step}'s cost ")
        assert "a machine with more cores" in found.change and "raise" not in found.change
    assert ("GPU" in busy.change) == (step in ("pose", "light", "identities"))
    assert "`cpus`" in placed.change and "`cpus`" not in busy.change


def test_what_else_helps_is_said_on_full_cores_too():
    copies = Made().step("faces", 9.0, phases={"infer": 2.0, "upload": 7.0}, **GPU)
    assert "pin_memory" in copies.verdict(cpu=99.0, full=["faces"]).change


def test_a_step_over_all_rows_is_not_given_more_workers():
    made = Made().step("decode", 9.0, worker="h:1").step("decode", 9.0, worker="h:2")
    found = made.step("identities", 90.0, packets=1, unit="all.parquet").verdict()
    assert found.step == "identities" and found.change == "raise its cpus"
