"""Advice names the step that holds a run up, the steps that wait for it, and the change to try."""

from __future__ import annotations

import pytest

from framekiln.planning.processes.placement import Room
from tests.support.runs.run_records import GPU, Made

FINDINGS = {
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
        "raise decode's workers (`decode: {workers: 2}` in the profile), or read smaller images",
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
        "--set faces.pin_memory=true",
    ),
    "disk": (Made().step("faces", 9.0, phases={"infer": 2.0, "write": 7.0}, **GPU), "busy", "faces", "faster disk"),
    "processor": (
        Made().step("decode", 2.0).step("pose", 9.0),
        "busy",
        "pose",
        "raise pose's workers (`--set pose.workers=2`)",
    ),
    "beside decode": (
        Made().step("decode", 2.0, worker="h:1").step("light", 7.5, worker="h:1", at=2.0),
        "busy",
        "light",
        "raise decode's workers (`decode: {workers: 2}` in the profile), as it runs in their processes",
    ),
    "all in one process": (
        Made()
        .step("decode", 0.3, worker="h:1")
        .step("light", 0.2, worker="h:1", at=0.3)
        .step("pose", 9.5, worker="h:1", at=0.5, packets=4),
        "busy",
        "pose",
        "raise decode's workers (`decode: {workers: 2}` in the profile), as it runs in their processes",
    ),
    "busy, and ended first": (
        Made().step("decode", 3.0).step("flow", 9.0, packets=6, **GPU).step("faces", 8.0, packets=20, **GPU),
        "busy",
        "faces",
        "raise its batch",
    ),
    "held": (Made().step("decode", 4.0, seal=5.5).step("faces", 5.0, **GPU), "held", "decode", "object store"),
    "idle": (Made().step("decode", 4.0).step("faces", 5.0, wait=4.0, **GPU), "idle", "", "more files in one run"),
}


@pytest.mark.parametrize("name", FINDINGS)
def test_findings(name):
    run, rule, step, change = FINDINGS[name]
    advice = run.bottleneck()
    assert (advice.rule, advice.step) == (rule, step), str(advice)
    assert change in advice.change


@pytest.mark.parametrize(("own", "told"), [(30.0, "Other programs took 60 % "), (75.0, ""), (None, ""), (95.0, "")])
def test_what_other_programs_take_is_said_first(own, told):
    advice = Made().step("decode", 9.7).bottleneck(cpu=90.0, own=own)
    assert advice.others.startswith(told) and bool(advice.others) == bool(told)
    assert str(advice).startswith(told or "decode is busy")


def test_advice_names_the_step_that_waits():
    advice = Made().step("decode", 9.7).step("faces", 3.0, wait=6.2, **GPU).bottleneck()
    assert "faces waits 58 % of its time for input while decode is busy 97 % of its time: raise decode's" in str(advice)


def test_only_hand_ons_of_earlier_steps_are_blamed_on_a_later_step():
    """Ray gives an early step no input while a later one is slow, so its wait is no evidence."""
    slow = {"at": 1.0, **GPU}
    assert str(Made().step("decode", 3.0, wait=6.2).step("faces", 9.7, **slow).bottleneck()).startswith(
        "faces is busy 97 %"
    )
    stuck = Made().step("decode", 3.0, seal=6.2).step("faces", 9.7, **slow).bottleneck()
    assert str(stuck).startswith("decode spends 58 % of its time handing packets on while faces is busy 97 %")


FULL = Room(processes=1, is_full=True)
TAKEN = {
    "decode": Made().step("decode", 9.7).step("faces", 3.0, wait=6.2, **GPU),
    "pose": Made().step("decode", 2.0).step("pose", 9.0),
    "light": Made().step("decode", 2.0, worker="h:1").step("light", 7.5, worker="h:1", at=2.0),
    "identities": Made().step("decode", 0.5).step("identities", 15.0, unit="all.parquet"),
    "faces": Made().step("decode", 2.0).step("faces", 9.0, phases={"infer": 2.0, "postprocess": 7.0}, **GPU),
}


@pytest.mark.parametrize("step", TAKEN)
def test_with_saturated_cores_no_more_workers_are_advised(step):
    run = TAKEN[step]
    assert "worker" in run.bottleneck(cpu=60.0).change and "more workers" not in run.bottleneck(cpu=60.0).change
    busy, placed = run.bottleneck(cpu=98.0), run.bottleneck(cpu=60.0, rooms={step: FULL})
    for advice, why in (
        (busy, "all cores are taken (CPU 98 %)"),
        (placed, "the plan has no core for another process (CPU 60 %)"),
    ):
        assert advice.step == step and advice.reason.endswith(f", and {why}")
        assert ("smaller images" if step == "decode" else "cost ") in advice.change
        assert "raise" not in advice.change
    assert busy.change.startswith("more workers will not help; ") and "a machine with more cores" in busy.change
    assert "fewer frames" in busy.change and "run it on a GPU" not in busy.change  # which the machine may lack
    is_alone = step in ("pose", "identities", "faces")  # others lie in decoding's processes
    assert ("cpus=..." in placed.change) == is_alone and "cpus" not in busy.change


def test_other_changes_are_advised_on_saturated_cores_too():
    copies = Made().step("faces", 9.0, phases={"infer": 2.0, "upload": 7.0}, **GPU)
    assert "pin_memory" in copies.bottleneck(cpu=99.0, rooms={"faces": FULL}).change


def film(worker, packets):
    return {"worker": worker, "packets": packets}


def test_a_process_that_began_late_was_not_without_work():
    run = Made().step("decode", 9.7, **film("h:1", 20)).step("decode", 9.7, at=90.0, **film("h:2", 11))
    assert run.bottleneck(rooms={"decode": Room(processes=2, is_full=False)}).rule == "busy"


UNEVEN = {  # a long film beside short ones, a film that one process had alone, and a second pass over two files
    "one ends early": (Made().step("decode", 9.7, **film("h:1", 20)).step("decode", 9.7, **film("h:2", 4)), 40),
    "one never begins": (Made().step("decode", 9.7, **film("h:1", 20)), 50),
    "later": (
        Made().step("decode", 0.1).step("sync", 9.9, unit="a.parquet", **film("h:1", 20)),
        50,
    ),
}


@pytest.mark.parametrize("case", UNEVEN)
def test_processes_without_work_are_told_of_instead_of_cores(case):
    run, idle = UNEVEN[case]
    step = "sync" if case == "later" else "decode"
    for is_full in (True, False):
        advice = run.bottleneck(cpu=55.0, rooms={step: Room(processes=2, is_full=is_full)})
        assert advice.rule == ("later" if case == "later" else "uneven") and advice.step == step
        assert advice.reason.endswith(f"not fill 2 processes, which were idle for {idle} % of their time")
        assert "more files" in advice.change and "worker" not in str(advice) and "core" not in advice.reason


def test_processes_that_share_their_work_are_not_uneven():
    run = Made().step("decode", 9.7, **film("h:1", 20)).step("decode", 9.7, **film("h:2", 18))
    assert run.bottleneck(rooms={"decode": Room(processes=2, is_full=True)}).rule == "busy"


def test_a_step_over_all_rows_needs_cpus_not_workers():
    run = Made().step("decode", 9.0, worker="h:1").step("decode", 9.0, worker="h:2")
    advice = run.step("identities", 90.0, packets=1, unit="all.parquet").bottleneck()
    assert advice.step == "identities" and advice.change == "raise its cpus"
