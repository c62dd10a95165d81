"""One run per output: leases are refused, taken over and lost."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import psutil
import pytest

from framekiln.contract.errors import OutputError
from framekiln.output.lease import MAX_MISSED, Lease
from framekiln.output.lease_record import LeaseRecord, birth, write_lease
from framekiln.output.object_store import Store
from tests.support.errors import fails

QUICK = 0.05  # seconds between heartbeats


@pytest.fixture
def store(tmp_path):
    output = Store(str(tmp_path / "out"))
    output.prepare()
    return output


@pytest.fixture(autouse=True)
def _patient(monkeypatch):
    """A minute without a heartbeat counts as death, as in production; on a busy machine a second is soon gone."""
    monkeypatch.setattr("framekiln.output.lease.MAX_MISSED", round(60 / QUICK))


def lease(store, shard=None, **more):
    return Lease(store, shard, **{"heartbeat_seconds": QUICK, **more})


def records(store):
    return [json.loads(store.read(name)) for name in store.names("") if name.startswith("run.lease")]


def left_by(store, code: str, shard=None) -> dict:
    """Return the lease of a process that took it and ended by running the code."""
    program = (
        "import os, signal\nfrom framekiln.output.lease import Lease\nfrom framekiln.output.object_store import Store\n"
    )
    program += f"with Lease(Store({store.root!r}), {shard!r}, heartbeat_seconds={QUICK}):\n    {code}"
    subprocess.run([sys.executable, "-c", program], capture_output=True)
    return records(store)[0]


@pytest.mark.parametrize(
    ("one", "other", "conflict"),
    [(None, None, True), (None, (0, 2), True), ((0, 2), (0, 2), True), ((0, 2), (1, 3), True), ((0, 2), (1, 2), False)],
)
def test_only_different_shards_of_one_number_write_at_once(one, other, conflict):
    first, second = (
        LeaseRecord(run="a", host="h", machine="m", pid=1, born=0.0, since="", shard=shard) for shard in (one, other)
    )
    assert first.conflicts(second) is second.conflicts(first) is conflict


def test_a_second_run_is_refused_in_one_sentence(store):
    with lease(store) as first:
        with fails("FK-OUTPUT-IN-USE", f"process {os.getpid()} on "):
            lease(store).__enter__()
        assert [record["run"] for record in records(store)] == [first.run]
    assert records(store) == []
    with lease(store) as second:
        assert second.taken_over == frozenset()


def test_other_shards_are_accepted_and_the_same_one_is_refused(store):
    with lease(store, (0, 2)), lease(store, (1, 2)):
        with fails("FK-OUTPUT-IN-USE", "shard 2/2"):
            lease(store, (1, 2)).__enter__()
        with pytest.raises(OutputError):
            lease(store).__enter__()
    assert records(store) == []


def test_a_dead_process_is_replaced_at_once_and_its_incomplete_files_are_deleted(store, tmp_path):
    dead = left_by(store, "os.kill(os.getpid(), signal.SIGKILL)")
    assert dead["state"] == "holding"
    half = tmp_path / "out" / f".tmp-{dead['run']}" / "1"
    half.write_bytes(b"half")
    told = []
    with Lease(store, on_wait=told.append):  # with the heartbeat of a real run: waiting for it would take a minute
        assert not half.parent.exists()
    assert len(told) == 1 and f"process {dead['pid']} " in told[0]
    assert list((tmp_path / "out").iterdir()) == []


@pytest.mark.parametrize("shard", [None, (0, 2)])
def test_a_run_that_wakes_after_a_takeover_publishes_and_deletes_nothing(store, shard):
    asleep = left_by(store, "os.kill(os.getpid(), signal.SIGKILL)", shard)["run"]  # its workers wake later
    late = store.of_run(asleep)
    late.write("frames/old", b"1")
    with lease(store, shard) as mine:
        store.of_run(mine.run).write("frames/new", b"2")
        for act in (
            lambda: late.write("frames/late", b"3"),
            lambda: late.remove("frames/new"),
            lambda: late.append("profile/late", b"3"),
        ):
            with fails("FK-OUTPUT-LOST"):
                act()
        assert store.names("frames") == ["new", "old"] and store.names("profile") == []


def test_a_run_killed_during_cleanup_leaves_the_rest_to_the_next(store):
    first = left_by(store, "os.kill(os.getpid(), signal.SIGKILL)")
    second = left_by(store, "os.kill(os.getpid(), signal.SIGKILL)")
    with lease(store) as third:
        assert third.taken_over == {first["run"], second["run"]}


@pytest.mark.parametrize("error", [KeyboardInterrupt, OSError])
def test_a_failed_run_leaves_its_lease(store, error):
    with pytest.raises(error), lease(store) as first:
        raise error
    told = []
    with lease(store, on_wait=told.append) as second:
        assert second.taken_over == {first.run} and told == []  # it has said why


def test_a_step_of_the_clock_ends_no_run(monkeypatch):
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as other:
        process = psutil.Process(other.pid)
        record = LeaseRecord(run="a", host="h", machine="m", pid=other.pid, born=birth(process), since="")
        monkeypatch.setattr(psutil.Process, "create_time", lambda _: time.time() + 3600)
        assert not record.has_ended("m", ())
        assert replace(record, born=record.born - 100).has_ended("m", ())  # another process had this number
        other.communicate(b"\n")
    assert record.has_ended("m", ())


def elsewhere(store, **changes) -> LeaseRecord:
    """Write the lease of a run on another machine: nobody renews it."""
    record = LeaseRecord(run="eeee", host="h", machine="there", pid=1, born=0.0, since="2999-01-01", state="holding")
    write_lease(store, replace(record, **changes))
    return record


def test_on_another_machine_a_lease_that_changes_is_alive(store):
    elsewhere(store)
    messages = []

    def renew(message):
        messages.append(message)
        elsewhere(store, beat=1)

    with fails("FK-OUTPUT-IN-USE"):
        lease(store, machine="here", on_wait=renew).__enter__()
    assert len(messages) == 1


def test_on_another_machine_a_lease_that_does_not_change_is_dead(store, monkeypatch):
    dead = elsewhere(store)
    monkeypatch.setattr("framekiln.output.lease.MAX_MISSED", MAX_MISSED)
    start = time.monotonic()
    with lease(store, machine="here") as mine:
        assert mine.taken_over == {dead.run}
    assert time.monotonic() - start > MAX_MISSED * QUICK


@pytest.fixture(params=["Ctrl-C handled", "Ctrl-C ignored"])
def keyboard(request):
    """As in a terminal, and as in a process that a script starts in the background."""
    ignored = request.param == "Ctrl-C ignored"
    before = signal.signal(signal.SIGINT, signal.SIG_IGN if ignored else signal.default_int_handler)
    yield
    assert (signal.getsignal(signal.SIGINT) is signal.SIG_IGN) == ignored
    signal.signal(signal.SIGINT, before)


@pytest.mark.usefixtures("keyboard")
@pytest.mark.parametrize("trace", ["taken", "deleted"])
def test_a_run_without_its_lease_stops_wherever_it_waits(store, trace):
    with fails("FK-OUTPUT-LOST"), lease(store) as mine:
        if trace == "taken":
            record = {**records(store)[0], "run": "ffff", "over": [mine.run]}
            store.write("run.lease-ffff.json", json.dumps(record).encode())
        for _ in range(600):  # ended by the loss
            if trace == "deleted":  # again and again: a heartbeat may be writing it
                store.remove(f"run.lease-{mine.run}.json")
            time.sleep(4 * QUICK)
    assert all(record["run"] == "ffff" for record in records(store))


def test_one_of_many_concurrent_runs_gets_the_lease(store):
    held, ended = [], threading.Semaphore(0)

    def enter():
        try:
            with lease(store) as mine:
                held.append(mine.run)
                assert all(ended.acquire(timeout=60) for _ in range(3)), "the others are refused meanwhile"
        except OutputError:
            ended.release()

    for number in range(1, 6):
        with ThreadPoolExecutor(4) as pool:
            for run in [pool.submit(enter) for _ in range(4)]:
                run.result()
        assert len(held) == number
