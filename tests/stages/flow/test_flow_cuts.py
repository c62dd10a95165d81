"""Cuts of edited films are found where they are, and neither motion nor a flash is taken for one."""

from __future__ import annotations

from itertools import permutations

import numpy as np
import pytest

from tests.support.media.photos import PHOTOS, take
from tests.support.stages.flow_factory import ready, table, video


@pytest.mark.parametrize(("name", "cuts"), [("av/nasa_13013.mp4", [201]), ("video/test_clip_10s.mp4", [103, 213])])
@pytest.mark.heavy
def test_the_cuts_of_edited_videos_are_found_and_no_others(name, cuts):
    found = ready()(table(video(name, 0, 10_000)))["cut"].to_pylist()[:-1]
    assert [i for i, value in enumerate(found) if value > 0.5] == cuts


@pytest.mark.parametrize("name", ["video/cockatoo.mp4", "vos/06_pingpong.mp4", "vos/bedroom.mp4", "av/grid/bbaf2n.mpg"])
@pytest.mark.heavy
def test_nothing_inside_a_continuous_shot_looks_like_a_cut(name):
    # Frames 130 to 190 of the cockatoo are the hardest: its beak fills the frame and moves by 100 px.
    found = ready()(table(video(name, 0, 190)[-60:]))["cut"].to_pylist()[:-1]
    assert max(found) < 0.3


@pytest.mark.parametrize(("first", "second"), permutations(PHOTOS, 2))
def test_two_clips_joined_are_cut_at_the_joint_only(first, second):
    found = ready()(table([*take(first, 4), *take(second, 4)]))["cut"].to_pylist()[:-1]
    assert [value > 0.5 for value in found] == [False] * 3 + [True] + [False] * 3


@pytest.mark.parametrize("stops", [-2, -1, 1])
def test_a_flash_is_not_a_cut(stops):
    now, then = take("grace_hopper.jpg", 2)
    brighter = (np.clip((then / 255.0) ** 2.2 * 2.0**stops, 0, 1) ** (1 / 2.2) * 255).astype(np.uint8)
    assert ready()(table([now, brighter]))["cut"].to_pylist()[0] < 0.3
