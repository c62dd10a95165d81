"""Smoothing of tracks calms what trembles without lagging behind, by the published filter and likeness."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from framekiln_stages.tracks.tracking import SIGMAS, one_euro, similarity
from tests.support.stages.faces.people_factory import FPS, middle, standing, track


def test_trembling_of_somebody_who_stands_is_calmed_and_measured():
    rng = np.random.default_rng(0)
    frames = [[standing(300, noise=2.0, rng=rng)] for _ in range(200)]
    (own,) = track(frames)[1]
    assert own["size"] == pytest.approx(np.hypot(0.38, 0.95) * 200, rel=0.05)
    assert own["jitter"] * own["size"] == pytest.approx(2.0, rel=0.03)
    assert own["jitter_smoothed"] < own["jitter"] / 4


@pytest.mark.parametrize("speed", [40, 120, 200])  # px a second; 200 is a body height
def test_somebody_who_walks_is_not_left_behind(speed):
    frames = [[standing(60 + speed / FPS * i)] for i in range(60)]
    rows, (own,) = track(frames)
    late = [60 + speed / FPS * row["frame_index"] - middle(row)[0] for row in rows]
    assert max(np.abs(late[25:])) < 0.02 * own["size"]
    assert own["jitter"] < 1e-3  # steady motion is no trembling


# Against the formulas


def scalar_one_euro(values, times, min_cutoff, beta):
    """The filter as the paper's algorithm 1 has it, for one number at a time."""

    def share(cutoff, rate):
        return 1.0 / (1.0 + rate / (2 * math.pi * cutoff))

    kept, slope, out = None, 0.0, []
    for x, (before, now) in zip(values, zip([None, *times], times, strict=False), strict=False):
        if kept is not None:
            rate = 1.0 / (now - before)
            a = share(1.0, rate)
            slope = a * (x - kept) * rate + (1 - a) * slope
            a = share(min_cutoff + beta * abs(slope), rate)
            kept = a * x + (1 - a) * kept
        else:
            kept = x
        out.append(kept)
    return out


@given(
    st.lists(st.tuples(st.floats(-5, 5), st.floats(0.005, 0.5)), min_size=1, max_size=20),
    st.floats(0.1, 5),
    st.floats(0, 20),
)
def test_the_filter_is_the_papers(steps, min_cutoff, beta):
    values, times = np.array([s[0] for s in steps]), np.cumsum([s[1] for s in steps])
    assert one_euro(values, times, min_cutoff, beta) == pytest.approx(
        scalar_one_euro(values.tolist(), times.tolist(), min_cutoff, beta), abs=1e-9
    )


def test_similarity_is_cocos():
    cocoeval = pytest.importorskip("pycocotools.cocoeval")
    assert pytest.approx(cocoeval.Params(iouType="keypoints").kpt_oks_sigmas) == SIGMAS


def test_similarity_follows_the_formula():
    one = np.concatenate([standing(300), np.zeros((33, 1)), np.ones((33, 2))], axis=1)
    other = one + np.array([10, 0, 0, 0, 0])
    width, height = np.ptp(one[:, 0]), np.ptp(one[:, 1])
    want = np.mean(np.exp(-(10**2) / (2 * width * height * (2 * SIGMAS) ** 2)))
    assert similarity(one[None], np.stack([one, other]))[0] == pytest.approx([1.0, want], rel=1e-4)
