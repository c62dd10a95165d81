"""One run into one output: refused, taken over, lost."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time

import pytest

from pipeline.errors import OutputError
from pipeline.lease import MISSED, Lease, conflict
from pipeline.storage import Store

QUICK = 0.05  # seconds between beats


@pytest.fixture
def store(tmp_path):
    made = Store(str(tmp_path / "out"))
    made.prepare()
    return made


def lease(store, shard=None, **more):
    return Lease(store, shard, **{"beat_seconds": QUICK, **more})


def notes(store):
    return [json.loads(store.read(name)) for name in store.names("") if name.startswith("run.lease")]


def left_by(store, code: str, shard=None) -> dict:
    """The note of a process that took the lease and ended as the code says."""
    program = "import os, signal\nfrom pipeline.lease import Lease\nfrom pipeline.storage import Store\n"
    program += f"with Lease(Store({store.root!r}), {shard!r}, beat_seconds={QUICK}):\n    {code}"
    subprocess.run([sys.executable, "-c", program], capture_output=True)
    return notes(store)[0]


def test_which_shards_go_together():
    assert conflict(None, None) and conflict(None, (0, 2)) and conflict((0, 2), (0, 2)) and conflict((0, 2), (1, 3))
    assert not conflict((0, 2), (1, 2))


def test_a_second_run_is_refused_in_one_sentence(store):
    with lease(store) as first:
        with pytest.raises(OutputError, match=rf"process {os.getpid()} on .*, since 20.*; wait for its end .*--output"):
            lease(store).__enter__()
        assert [note["run"] for note in notes(store)] == [first.run]
    assert notes(store) == []
    with lease(store) as second:
        assert second.taken_over == frozenset()


def test_other_shards_are_let_in_and_the_same_one_is_not(store):
    with lease(store, (0, 2)), lease(store, (1, 2)):
        with pytest.raises(OutputError, match="shard 2/2"):
            lease(store, (1, 2)).__enter__()
        with pytest.raises(OutputError):
            lease(store).__enter__()
    assert notes(store) == []


def test_a_dead_process_is_taken_over_at_once_and_its_half_written_files_go(store, tmp_path):
    dead = left_by(store, "os.kill(os.getpid(), signal.SIGKILL)")
    assert dead["state"] == "holding"
    half = tmp_path / "out" / "t" / f".tmp-{dead['run']}-1-x.parquet"
    half.parent.mkdir()
    other = half.with_name(".tmp-0123456789ab-1-y.parquet")
    for path in (half, other):
        path.write_bytes(b"half")
    with Lease(store) as mine:  # with the beat of a real run: waiting for it would take a minute
        store.sweep(mine.taken_over)
    assert not half.exists() and other.exists()


def test_who_is_killed_while_sweeping_leaves_the_rest_to_the_next(store):
    first = left_by(store, "os.kill(os.getpid(), signal.SIGKILL)")
    second = left_by(store, "os.kill(os.getpid(), signal.SIGKILL)")
    with lease(store) as third:
        assert third.taken_over == {first["run"], second["run"]}


@pytest.mark.parametrize("error", [KeyboardInterrupt, OSError])
def test_a_run_that_ended_badly_leaves_word_of_it(store, error):
    with pytest.raises(error), lease(store) as first:
        raise error
    with lease(store) as second:
        assert second.taken_over == {first.run}


def test_elsewhere_a_lease_that_changes_is_alive_and_one_that_does_not_is_dead(store):
    with lease(store, machine="there", beat_seconds=0.5):
        said = []
        with pytest.raises(OutputError, match="Another run"):
            lease(store, machine="here", beat_seconds=0.5, on_wait=said.append).__enter__()
        assert len(said) == 1 and "to show that it is alive" in said[0]
    dead = {**left_by(store, "os.kill(os.getpid(), signal.SIGKILL)"), "machine": "there", "since": "2999-01-01"}
    store.write(f"run.lease-{dead['run']}.json", json.dumps(dead).encode())
    start = time.monotonic()
    with lease(store, machine="here") as mine:
        assert mine.taken_over == {dead["run"]}
    assert time.monotonic() - start > MISSED * QUICK


@pytest.fixture(params=["Ctrl-C heard", "Ctrl-C ignored"])
def keyboard(request):
    """As in a terminal, and as in what a script starts in the background."""
    ignored = request.param == "Ctrl-C ignored"
    before = signal.signal(signal.SIGINT, signal.SIG_IGN if ignored else signal.default_int_handler)
    yield
    assert (signal.getsignal(signal.SIGINT) is signal.SIG_IGN) == ignored
    signal.signal(signal.SIGINT, before)


@pytest.mark.usefixtures("keyboard")
@pytest.mark.parametrize("trace", ["taken", "deleted"])
def test_a_run_that_lost_its_lease_stops_wherever_it_waits(store, trace):
    sentence = "does not hold the output .* any more .*; see that only one run"
    with pytest.raises(OutputError, match=sentence), lease(store) as mine:
        if trace == "deleted":
            store.remove(f"run.lease-{mine.run}.json")
        else:
            note = {**notes(store)[0], "run": "ffff", "over": [mine.run]}
            store.write("run.lease-ffff.json", json.dumps(note).encode())
        time.sleep(20)
    assert all(note["run"] == "ffff" for note in notes(store))


def test_of_many_that_ask_at_once_one_gets_it(store):
    held, most, refused, lock = [], [], [], threading.Lock()

    def ask():
        try:
            with lease(store) as mine:
                with lock:
                    held.append(mine.run)
                    most.append(len(held))
                time.sleep(20 * QUICK)
                with lock:
                    held.remove(mine.run)
        except OutputError:
            refused.append(1)

    for _ in range(5):
        threads = [threading.Thread(target=ask) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert set(most) == {1} and len(most) >= 5 and len(most) + len(refused) == 20
