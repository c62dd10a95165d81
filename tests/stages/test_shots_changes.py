"""Cuts of edited films are found where they are, and neither motion nor light is taken for one."""

from __future__ import annotations

import math
from itertools import permutations

import cv2
import numpy as np
import pyarrow as pa
import pytest

from framekiln.contract.columns import pack
from framekiln.contract.placement import Placement
from framekiln_stages.shots.stage import Features, Shots
from tests.support.media.photos import PHOTOS, photo, take
from tests.support.stages.flow_factory import lit, striped, table, video
from tests.support.stages.shots_factory import clip, described


def scores(frames):
    """The score of a cut before each frame but the first."""
    stage = Features()
    stage.setup({}, Placement())
    found = stage(frames if isinstance(frames, pa.Table) else table(frames))["cut"].to_pylist()
    assert found[-1] is None
    return found[:-1]


def exposed(frame, stops):
    """A frame under so many stops more light."""
    return (np.clip((frame / 255.0) ** 2.2 * 2.0**stops, 0, 1) ** (1 / 2.2) * 255).astype(np.uint8)


@pytest.mark.parametrize(("name", "cuts"), [("av/nasa_13013.mp4", [201]), ("video/test_clip_10s.mp4", [103, 213])])
@pytest.mark.heavy
def test_the_cuts_of_edited_videos_are_found_and_no_others(name, cuts):
    assert [i for i, value in enumerate(scores(video(name, 0, 10_000))) if value > 0.5] == cuts


@pytest.mark.parametrize("name", ["video/cockatoo.mp4", "vos/06_pingpong.mp4", "vos/bedroom.mp4", "av/grid/bbaf2n.mpg"])
@pytest.mark.heavy
def test_nothing_inside_a_continuous_shot_looks_like_a_cut(name):
    # Frames 130 to 190 of the cockatoo are the hardest: its beak fills the frame and moves by 100 px.
    assert max(scores(video(name, 0, 190)[-60:])) < 0.3


@pytest.mark.parametrize(("first", "second"), permutations(PHOTOS, 2))
def test_two_clips_joined_are_cut_at_the_joint_only(first, second):
    found = scores([*take(first, 4), *take(second, 4)])
    assert [value > 0.5 for value in found] == [False] * 3 + [True] + [False] * 3


@pytest.mark.parametrize("stops", [-2, -1, 1])
def test_a_flash_is_not_a_cut(stops):
    now, then = take("grace_hopper.jpg", 2)
    assert scores([now, exposed(then, stops)])[0] < 0.3


@pytest.mark.parametrize("rows", [slice(-90, -20), slice(0, 60)])
def test_a_caption_that_comes_and_goes_is_not_a_cut_and_an_equal_sky_hides_none(rows):
    for name in PHOTOS:
        frames = [frame.copy() for frame in take(name, 4)]
        rows_of_text = np.random.default_rng(0).integers(0, 255, (4, 60, 3), dtype=np.uint8)
        for frame in frames[1:3]:
            frame[rows] = cv2.resize(rows_of_text, frame[rows].shape[1::-1], interpolation=cv2.INTER_NEAREST)
        assert max(scores(frames)) < 0.5
    shots = [frame.copy() for name in PHOTOS[:2] for frame in take(name, 1)]
    for frame in shots:
        frame[: len(frame) * 2 // 3] = 180
    assert scores(shots)[0] > 0.5


@pytest.mark.parametrize(("name", "dx", "dy"), [(PHOTOS[0], -16, 0), (PHOTOS[1], -5, 5), (PHOTOS[2], 3, -4)])
def test_a_frame_that_moved_is_not_a_cut(name, dx, dy):
    image = photo(name)
    moved = image[16 - dy : image.shape[0] - 16 - dy, 16 - dx : image.shape[1] - 16 - dx]
    assert scores([image[16:-16, 16:-16], moved])[0] < 0.1
    assert scores([image, image])[0] == pytest.approx(0, abs=1e-3)


@pytest.mark.parametrize(("period", "angle"), [(8, 0.0), (14, math.pi / 2), (30, 0.6)])
@pytest.mark.parametrize("name", PHOTOS)
def test_stripes_of_light_are_not_a_cut(name, period, angle):
    image = cv2.resize(photo(name)[:420, :510], (410, 244), interpolation=cv2.INTER_AREA)
    views = [image[10:234, 10:400], image[7:231, 15:405]]
    assert scores([lit(view, striped(period, angle, 0.3 * period * i), i) for i, view in enumerate(views)])[0] < 0.5


def banded(frame, wide, phase):
    """A frame under a lamp that is dark for half of the time, as a rolling shutter shows it."""
    rows = np.arange(len(frame))[:, None] / wide + phase
    level = cv2.blur(np.where(rows % 1 < 0.5, 1.0, 0.3), (1, 7))
    return (255 * ((frame / 255.0) ** 2.2 * level[:, :, None]) ** (1 / 2.2)).astype(np.uint8)


@pytest.mark.parametrize(("wide", "phase"), [(130, 0.25), (130, 0.7), (280, 0.5)])
def test_wide_bands_of_a_rolling_shutter_are_not_a_cut(wide, phase):
    """Between frames a second apart they are anywhere, and the camera moves; it may lie on its side."""
    image = cv2.resize(photo("flower.jpg")[:420, :510], (410, 244), interpolation=cv2.INTER_AREA)
    other = cv2.resize(photo("china.jpg")[:420, :510], (410, 244), interpolation=cv2.INTER_AREA)
    views = [(image[10:234, 10:400], 0), (image[5:229, 16:406], phase), (other[10:234, 10:400], phase)]
    for axes in ((0, 1, 2), (1, 0, 2)):
        now, then, cut = (banded(view, wide, at).transpose(axes) for view, at in views)
        found = [scores([now, frame])[0] for frame in (then, cut)]
        assert [value > 0.5 for value in found] == [False, True]


@pytest.mark.parametrize("stops", [-3.5, 2.5, 3.5])
@pytest.mark.parametrize("step", [0.7, 10.0])
def test_a_step_of_the_exposure_is_no_cut_even_if_the_camera_moves(stops, step):
    for name in PHOTOS:
        frames = clip(name, 0, 12, step)
        made = [*frames[:6], *(exposed(frame, stops) for frame in frames[6:])]
        assert Shots()(described(made))["transitions"].num_rows == 0, name


def test_a_cut_to_another_image_under_other_light_is_one():
    for first, second in permutations(PHOTOS, 2):
        for stops in (-3.5, 2.5):
            made = [*clip(first, 0, 6), *(exposed(frame, stops) for frame in clip(second, 0, 6))]
            assert Shots()(described(made))["transitions"]["kind"].to_pylist() == ["cut"], (first, second, stops)


def test_frames_of_other_or_no_size_have_no_score():
    shapes = [(40, 40), (40, 40), (40, 50), (15, 50), (15, 50)]
    found = scores(pa.table({"frame_224": pack([np.zeros((*shape, 3), np.uint8) for shape in shapes])}))
    assert [score is None for score in found] == [False, True, True, True]
