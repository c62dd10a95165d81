"""Poses of films: those that looks everywhere at each frame find, from a fraction of the looks."""

from __future__ import annotations

import itertools

import cv2
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from framekiln.contract.placement import Placement
from framekiln_stages.pose.films import follow, key_frames, shots
from framekiln_stages.pose.looks import SAME_BODY, distances, tiles
from framekiln_stages.pose.stage import Pose
from tests.support.media.photos import photo
from tests.support.stages.pose_factory import clip, model_file

MODEL = "pose_landmarker_full_bundled"


class Counting:
    """A network that counts its calls."""

    def __init__(self, net):
        self.net, self.calls = net, 0

    def __call__(self, image):
        self.calls += 1
        return self.net(image)


@pytest.fixture(scope="module")
def made():
    """Return a function: the rows of a film's clip with a `look_s`, and the number of looks."""

    def run(frames, look_s, fps=25, **choices):
        stage = Pose(Pose.Config(look_s=look_s, **choices))
        stage.setup({MODEL: model_file(MODEL)}, Placement())
        stage._net = Counting(stage._net)
        return stage(clip(stage, frames, fps)).to_pylist(), stage._net.calls

    return run


def panned(count, step=6):
    """A real person over whom the camera moves: he comes in at the right, and goes at the left."""
    image = cv2.copyMakeBorder(photo("grace_hopper.jpg"), 0, 0, 400, 400, cv2.BORDER_CONSTANT, value=(120, 130, 140))
    return [np.ascontiguousarray(image[:, step * i : step * i + 512]) for i in range(count)]


def body(person):
    return np.array([list(mark.values()) for mark in person["landmarks"]], np.float32)


def missed(rows, reference, shape):
    """The frames in which somebody of the reference is not found."""
    result = []
    for i, (row, expected) in enumerate(zip(rows, reference, strict=True)):
        found = np.array([body(person) for person in row["poses"]], np.float32).reshape(-1, 33, 5)
        if any(not (distances(body(one), found, *shape) < SAME_BODY).any() for one in expected["poses"]):
            result.append(i)
    return result


@pytest.mark.heavy
def test_followed_people_are_those_of_looks_everywhere_from_a_fifth_of_the_looks(made):
    frames = panned(64, step=12)
    reference, all_looks = made(frames, 0.0)
    rows, looks = made(frames, 0.5)
    assert sum(row["people"] for row in reference) > 20
    assert len(missed(rows, reference, frames[0].shape[:2])) <= 1
    assert len(missed(reference, rows, frames[0].shape[:2])) <= 2  # he is seen a frame earlier and later
    assert looks < all_looks / 3  # of three fifths of the frames, where nobody is, only tiles are looked at


def test_who_comes_in_between_two_looks_is_followed_back(made):
    empty = np.full((600, 512, 3), 128, np.uint8)
    frames = [empty] * 4 + [np.ascontiguousarray(np.roll(photo("grace_hopper.jpg"), i, axis=1)) for i in range(5)]
    soft = [cv2.addWeighted(empty, 0.15, frame, 0.85, 0) for frame in frames]  # no cut is seen between them
    rows, _ = made(soft, 0.5, tile=0.0)
    assert [row["people"] for row in rows] == [0] * 4 + [1] * 5


def test_who_is_gone_is_found_no_more(made):
    person = np.ascontiguousarray(photo("grace_hopper.jpg"))
    gone = cv2.blur(person, (201, 201))
    rows, _ = made([person] * 5 + [gone] * 4, 0.5, tile=0.0)
    assert [row["people"] for row in rows] == [1] * 5 + [0] * 4


def test_a_clip_without_times_is_looked_at_at_both_ends(made):
    rows, _ = made([photo("grace_hopper.jpg")] * 3, 0.5, fps=None, tile=0.0)
    assert [row["people"] for row in rows] == [1] * 3


@given(st.lists(st.floats(0.001, 2.0), max_size=40), st.floats(0.05, 3.0))
@settings(deadline=None)
def test_looks_are_as_near_as_asked_whatever_the_times_of_frames(gaps, seconds):
    times = [0.0, *np.cumsum(gaps).tolist()]
    keys = sorted(key_frames(times, seconds))
    assert (keys[0], keys[-1]) == (0, len(times) - 1)
    followed = [times[b] - times[a + 1] for a, b in itertools.pairwise(keys)]
    assert max(followed, default=0.0) <= seconds + 1e-6


@pytest.mark.parametrize("fps", [1, 5, 12, 25, 60])
def test_looks_are_as_many_a_second_at_any_rate(fps):
    count = 2 * fps + 1
    keys = sorted(key_frames([i / fps for i in range(count)], 0.5))
    assert len(keys) == min(count, 5), keys


def test_a_shot_ends_at_a_cut_and_every_frame_is_one_if_all_are_searched():
    frames = [np.zeros((8, 8, 3), np.uint8)] * 5 + [np.full((8, 8, 3), 200, np.uint8)] * 4
    assert shots(frames, 0.5) == [slice(0, 5), slice(5, 9)]
    assert shots(frames[:2], 0.0) == [slice(0, 1), slice(1, 2)]
    assert shots([], 0.5) == []


# Looks, by a network that takes red rectangles for people. Its poses are symmetric, so that mirrored looks agree.

POINTS = np.linspace(0, 1, 33)[:, None] * [0, 1] + [0.5, 0]
POINTS[[11, 12, 23, 24], 0] = [0, 1, 0, 1]


def red_people(image):
    """The network: a body as high and wide as each red rectangle that the edge does not cut."""
    bodies, (image_height, image_width) = [], image.shape[:2]
    for part in cv2.connectedComponentsWithStats((image[..., 0] > 200).astype(np.uint8))[2][1:]:
        x, y, width, height, _ = part
        if min(x, y, image_width - x - width, image_height - y - height) == 0:
            continue
        points = (POINTS * [width, height] + [x, y]) / [image_width, image_height]
        bodies.append(np.column_stack([points, np.zeros(33), np.ones((33, 2))]))
    return np.array(bodies, np.float32).reshape(-1, 33, 5), np.zeros((len(bodies), 33, 3), np.float32)


def red(*boxes):
    """A grey image with red rectangles: x, y, width, height."""
    image = np.full((240, 320, 3), 100, np.uint8)
    for x, y, width, height in boxes:
        image[y : y + height, x : x + width] = (255, 0, 0)
    return image


def looks_at(frames, keys):
    """The number of people in each frame of a shot, and of looks once the first frame is searched."""
    net = Counting(red_people)
    seen = follow(net, frames, keys, 0.5)
    counts, first = [len(next(seen).found)], net.calls
    counts += [len(one.found) for one in seen]
    return counts, net.calls - first


TILES = len(list(tiles(240, 320, 0.5)))


def test_a_followed_person_costs_one_look_and_at_a_search_none_but_those_everywhere():
    counts, looks = looks_at([red((20 + i, 150, 30, 60)) for i in range(4)], {0, 3})
    assert counts == [1] * 4
    assert looks == 2 + 1 + TILES  # the whole image shows the person again: no second look


def test_a_followed_person_is_searched_for_no_pieces():
    counts, looks = looks_at([red((40, 10, 240, 220))] * 3, {0, 2})
    assert counts == [1] * 3
    filled = sum(part.share_in(np.array([[40, 10, 280, 230]], np.float64)) >= 0.9 for part in tiles(240, 320, 0.5))
    assert filled > 0
    assert looks == 1 + 1 + TILES - filled


def test_who_is_lost_is_searched_where_he_was_and_others_stay():
    frames = [red((20, 20, 30, 60), (250, 150, 30, 60)), red((250, 150, 30, 60)), red((250, 150, 30, 60))]
    counts, looks = looks_at(frames, {0, 2})
    assert counts == [2, 1, 1]
    near = sum(part.share_in(np.array([[20, 20, 50, 80]], np.float64)) > 0 for part in tiles(240, 320, 0.5))
    assert 0 < near < TILES
    assert looks == 2 + 1 + 1 + near + 1 + TILES


def test_who_comes_while_somebody_is_lost_is_followed_back_to_the_search_before():
    one, other = (20, 20, 30, 60), (250, 150, 30, 60)
    frames = [red(one), red(one, other), red(other), red(other)]
    assert looks_at(frames, {0, 3})[0] == [1, 2, 1, 1]


def test_nobody_is_found_in_a_shot_without_people():
    counts, looks = looks_at([red()] * 3, {0, 2})
    assert (counts, looks) == ([0] * 3, 1 + TILES)
