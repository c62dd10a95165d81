"""MediaPipe's graphs for poses: quiet, named and given up where they fail, and whom they find twice is one."""

from __future__ import annotations

import threading

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from framekiln_stages.nets import mediapipe_tasks as task
from framekiln_stages.nets.mediapipe_tasks import BlazePose, FaceMesh, within
from framekiln_stages.pose.looks import distinct, scores
from framekiln_stages.pose.stage import LANDMARKS
from framekiln_stages.shared.masks import landmark_boxes
from tests.support.machine.command_line import script
from tests.support.media.photos import photo_file
from tests.support.stages.pose_factory import model_file


@pytest.mark.parametrize("network", [BlazePose, FaceMesh])
def test_a_file_that_mediapipe_refuses_is_named(network, tmp_path):
    path = tmp_path / "junk.task"
    path.write_bytes(b"no zip at all")
    with pytest.raises(RuntimeError, match=r"junk\.task"):
        network(path, count=1, min_detection=0.5, min_presence=0.5)


def test_set_up_that_takes_too_long_is_given_up(monkeypatch):
    path = model_file("pose_landmarker_full_bundled")
    monkeypatch.setattr(task, "SETUP_SECONDS", 0.0)
    with pytest.raises(TimeoutError, match="not ready within 0 s"):
        BlazePose(path, count=1, min_detection=0.5, min_presence=0.5)


def test_within_passes_on_what_happened():
    assert within(5, lambda: 3, "three") == 3
    with pytest.raises(KeyError, match="gone"):
        within(5, lambda: {}["gone"], "a key")
    never = threading.Event()
    with pytest.raises(TimeoutError, match="an answer was not ready"):
        within(0.05, never.wait, "an answer")
    never.set()


SCRIPT = """
import os, sys, cv2, pyarrow as pa
from pathlib import Path
from framekiln.contract.columns import pack
from framekiln.contract.placement import Placement
from framekiln_stages.pose import Pose
stage = Pose()
stage.setup({stage.config.model: Path(sys.argv[1])}, Placement())
start = os.times()
for _ in range(8):
    rows = {stage.pixels: pack([cv2.imread(sys.argv[2])[:, :, ::-1]]), "time_s": pa.array([None], pa.float64())}
    people = stage(pa.table(rows))["people"].to_pylist()
end = os.times()
print(people, (end.user + end.system - start.user - start.system) / (end.elapsed - start.elapsed))
"""


@pytest.mark.heavy
def test_a_process_is_quiet_ends_well_and_keeps_to_one_core():
    done = script(SCRIPT, model_file("pose_landmarker_full_bundled"), photo_file("grace_hopper.jpg"))
    assert (done.returncode, done.stderr) == (0, "")
    people, cores = done.stdout.rsplit(" ", 1)
    assert people == "[1]"
    assert float(cores) < 1.2  # a busy machine only makes it smaller


def test_a_graph_that_does_not_close_is_left_to_the_system(monkeypatch):
    opened, closed = threading.Event(), []

    class Stuck:
        def close(self) -> None:
            closed.append(opened.wait())

    monkeypatch.setattr(task, "CLOSE_SECONDS", 0.1)
    stuck = Stuck()
    task.close(stuck)
    stuck.close()  # does nothing now
    assert not closed  # neither call waited for it
    opened.set()


# People found twice


@settings(max_examples=60, deadline=None)
@given(shift=st.floats(0, 2), seed=st.integers(0, 99), height=st.integers(100, 2000), width=st.integers(100, 2000))
def test_only_people_on_the_same_spot_are_the_same(shift, seed, height, width):
    random = np.random.default_rng(seed)
    one = random.uniform(0.2, 0.4, (LANDMARKS, 5)).astype(np.float32)
    other = one.copy()
    other[:, 3] *= 0.9  # less visible
    left, top, right, bottom = landmark_boxes(one[None])[0] * [width, height, width, height]
    other[:, 0] += shift * 0.1 * np.hypot(right - left, bottom - top) / width
    expected = [1] if shift < 0.95 else [1, 0] if shift > 1.1 else None
    found = distinct(np.stack([other, one]), height, width)
    assert expected is None or found == expected


def test_nobody_is_nobody():
    nobody = np.empty((0, LANDMARKS, 5), np.float32)
    assert distinct(nobody, 100, 100) == []
    assert scores(nobody).shape == (0,)
