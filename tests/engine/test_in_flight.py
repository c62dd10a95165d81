"""A process that works on several packets at a time: the same rows and failures, and the same rows set aside."""

from __future__ import annotations

from dataclasses import replace

import pytest

from framekiln.contract.output_names import ERRORS, FRAMES
from framekiln.job import Job
from framekiln.output.object_store import Store
from framekiln.profiling.record_log import CALLS, read, runs
from tests.support.media.collections_factory import clip
from tests.support.runs.engine_factory import order, table

# Packets in flight are Ray's: a process of the local engine works on one packet at a time.
pytestmark = [pytest.mark.usefixtures("on_ray"), pytest.mark.heavy]

CLIPS, FRAMES_EACH = 8, 10  # a packet each


@pytest.fixture
def clips(tmp_path):
    for i in range(CLIPS):
        clip(tmp_path / "in" / f"{i}.png", i, FRAMES_EACH)
    return tmp_path / "in"


@pytest.mark.parametrize("joint", [True, False])
def test_packets_in_flight_keep_their_rows_and_their_failures(joint, clips, tmp_path, machines):
    settings = {"joint": joint, "meet": 2, "raises": (4,)}
    Job(order(clips, tmp_path / "out", {"ten": ("Meeting", settings)}, missing_weights="dummy")).run()
    tenfold = table(tmp_path / "out", FRAMES)["tenfold"].to_pylist()
    assert tenfold == [None if i == 4 else 10 * i for i in range(FRAMES_EACH)] * CLIPS
    errors = table(tmp_path / "out", ERRORS).to_pylist()
    assert [(e["media_id"], e["frame_index"], e["kind"]) for e in errors] == [
        (f"{i}.png", 4, "ValueError") for i in range(CLIPS)
    ]
    store = Store(str(tmp_path / "out"))
    (run,) = runs(store)
    calls = read(store, CALLS, run)
    # the wait for the model is told from the model; on the CPU each thread calls it itself
    assert (max(calls["queue"].to_pylist()) > 0) == joint


def test_a_process_whose_owner_thread_ended_is_replaced_and_no_row_is_lost(clips, tmp_path, machines):
    settings = {"joint": True, "ends": str(tmp_path / "ended")}
    result = Job(order(clips, tmp_path / "out", {"ten": ("Meeting", settings)}, missing_weights="dummy")).run()
    assert (tmp_path / "ended").exists() and result.errors == {}
    assert table(tmp_path / "out", FRAMES)["tenfold"].to_pylist() == [10 * i for i in range(FRAMES_EACH)] * CLIPS


@pytest.mark.parametrize("joint", [True, False])
def test_a_row_that_kills_is_set_aside_and_its_neighbours_in_flight_are_not(joint, clips, tmp_path, machines):
    settings = {"joint": joint, "kills": (7,)}
    wanted = order(clips, tmp_path / "out", {"ten": ("Meeting", settings)}, missing_weights="dummy")
    wanted = replace(wanted, limit=2)
    Job(wanted).run()
    tenfold = table(tmp_path / "out", FRAMES)["tenfold"].to_pylist()
    assert tenfold == [None if i == 7 else 10 * i for i in range(FRAMES_EACH)] * 2
    errors = table(tmp_path / "out", ERRORS).to_pylist()
    assert [(e["media_id"], e["frame_index"], e["kind"]) for e in errors] == [(f"{i}.png", 7, "Died") for i in range(2)]
    assert not Job(wanted).run().work.left
