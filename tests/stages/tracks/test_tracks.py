"""Tracks are right when everybody keeps one id, and nobody gets another's."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from framekiln_stages.tracks.stage import Tracks
from tests.support.stages.faces.people_factory import batch, middle, owners, shots, standing, track


def crossing(order, noise=2.0):
    """Three people: two cross, and are 2 px apart vertically; one stands. By frame the people and their names."""
    rng = np.random.default_rng(3)
    frames, names = [], []
    for i in range(50):
        people = {
            "right": standing(100 + 8 * i, 300, 180, noise, rng),
            "left": standing(500 - 8 * i, 310, 200, noise, rng),
            "still": standing(560, 200, 150, noise, rng),
        }
        shown = [name for name in order(i) if not (name == "left" and 22 <= i <= 28)]  # hidden while they cross
        frames.append([people[name] for name in shown])
        names.append(shown)
    return frames, names


def test_people_who_cross_keep_their_ids():
    frames, names = crossing(lambda i: ["right", "left", "still"][:: 1 if i % 2 else -1])
    rows, summary = track(frames)
    assert sorted(map(sorted, owners(rows, names).values())) == [["left"], ["right"], ["still"]]
    assert sorted((s["frames"], s["missing"]) for s in summary) == [(43, 7), (50, 0), (50, 0)]
    assert {(s["first_frame"], s["last_frame"]) for s in summary} == {(0, 49)}


@given(st.lists(st.permutations(["right", "left", "still"]), min_size=50, max_size=50))
@settings(max_examples=10, deadline=None)
def test_the_order_of_poses_in_a_frame_does_not_matter(orders):
    plain, names = crossing(lambda _: ["right", "left", "still"])
    frames, mixed = crossing(lambda i: orders[i])
    # The noise is drawn before the order is chosen, so that the people are the same.
    expected, expected_summary = track(plain)
    rows, summary = track(frames)
    assert summary == expected_summary
    for row, want in zip(rows, expected, strict=True):
        assert row | {"pose_index": None} == want | {"pose_index": None}
        if want["pose_index"] is not None:
            at = row["frame_index"]
            assert mixed[at][row["pose_index"]] == names[at][want["pose_index"]]


def absent(start, stop):
    """Somebody who walks, and is gone from one frame to before another."""
    return [[] if start <= i < stop else [standing(100 + 5 * i)] for i in range(60)]


def test_a_gap_within_the_limit_is_bridged_and_a_longer_one_is_not():
    rows, summary = track(absent(20, 30), bridge_s=0.5)
    assert [(s["frames"], s["missing"]) for s in summary] == [(50, 10)]
    bridged = [row for row in rows if row["pose_index"] is None]
    assert [row["frame_index"] for row in bridged] == list(range(20, 30))
    walked = [middle(row)[0] - standing(100 + 5 * row["frame_index"]).mean(0)[0] for row in bridged]
    assert np.abs(walked).max() < 5  # one frame of walking
    assert [(s["frames"], s["missing"]) for s in track(absent(20, 40), bridge_s=0.5)[1]] == [(20, 0), (20, 0)]
    assert len(track(absent(20, 40), bridge_s=1.0)[1]) == 1


def test_gaps_are_counted_in_seconds_not_in_frames():
    slow = np.arange(60) / 10.0
    assert len(track(absent(20, 24), times=slow)[1]) == 1  # .5 s from sighting to sighting
    assert len(track(absent(20, 25), times=slow)[1]) == 2
    assert len(track(absent(60, 60), times=np.arange(60) * 2.0)[1]) == 1  # every frame is a sighting


def test_nobody_is_followed_over_a_cut():
    frames = [[standing(200), standing(450)] for _ in range(30)]
    rows, summary = track(frames, 0, 12)
    assert [(s["track"], s["shot"], s["first_frame"], s["last_frame"]) for s in summary] == [
        (0, 0, 0, 11), (1, 0, 0, 11), (2, 1, 12, 29), (3, 1, 12, 29),
    ]  # fmt: skip
    assert {row["track"] for row in rows if row["frame_index"] >= 12} == {2, 3}
    assert len(track([f if i not in (11, 12) else [] for i, f in enumerate(frames)], 0, 12)[1]) == 4


def test_somebody_else_at_another_place_gets_another_id():
    frames = [[standing(150 if i < 20 else 450)] for i in range(40)]
    assert [(s["first_frame"], s["last_frame"]) for s in track(frames)[1]] == [(0, 19), (20, 39)]


def test_order_of_rows_does_not_matter_and_results_repeat():
    frames, _ = crossing(lambda _: ["right", "left", "still"])
    stage, whole, given_shots = Tracks(), batch(frames), shots(0, 25, frames=50)
    expected = stage(whole, given_shots)
    mixed = whole.take(pa.array(np.random.default_rng(0).permutation(50)))
    turned = {"shots": given_shots["shots"].take(pa.array([1, 0]))}
    for made in (stage(whole, given_shots), Tracks()(mixed, turned)):
        assert all(made[name].equals(expected[name]) for name in expected)


def test_frames_without_people_failed_frames_and_no_frames():
    rows, summary = track([None, [], [standing(200)], None, [standing(200)]], least_s=0.08)
    assert [row["frame_index"] for row in rows] == [2, 3, 4] and summary[0]["missing"] == 1
    assert summary[0]["jitter"] is None
    assert track([[], []]) == ([], []) and track([None]) == ([], [])
    empty = batch([[]]).slice(0, 0)
    assert Tracks()(empty, {"shots": shots(0, frames=1)["shots"].slice(0, 0)})["tracks"].num_rows == 0


def test_a_photo_has_a_track_a_person():
    rows, _ = track([[standing(200), standing(450)]], times=[None])
    assert [(row["track"], row["pose_index"]) for row in rows] == [(0, 0), (1, 1)]
    assert [middle(row)[0] for row in rows] == pytest.approx([standing(x).mean(0)[0] for x in (200, 450)], abs=0.01)


def test_a_file_whose_shots_failed_is_refused():
    with pytest.raises(ValueError, match="'a.mp4'"):
        Tracks()(batch([[standing(200)]]), {"shots": shots(0, frames=1)["shots"].slice(0, 0)})


# An embrace, and people who were hardly seen


def embrace(gap, apart=24):
    """Two people who meet, of whom only one is found for `gap` frames, and who part to where they came from."""
    frames, names = [], []
    for i in range(40 + gap):
        distance = apart + 6 * max(0, 20 - i, i - 19 - gap)
        people = {"left": standing(320 - distance), "right": standing(320 + distance, tall=190)}
        shown = ["left"] if 20 <= i < 20 + gap else ["left", "right"]
        frames.append([people[name] for name in shown])
        names.append(shown)
    return frames, names


def test_who_is_missed_in_an_embrace_keeps_the_id():
    frames, names = embrace(gap=40)  # 1.6 s, three times the longest gap elsewhere
    rows, summary = track(frames)
    assert sorted(map(sorted, owners(rows, names).values())) == [["left"], ["right"]]
    assert sorted(s["missing"] for s in summary) == [0, 40]


def test_after_a_longer_embrace_it_may_be_another_person():
    frames, names = embrace(gap=40)
    rows, _ = track(frames, hidden_s=1.0)
    assert sorted(map(sorted, owners(rows, names).values())) == [["left"], ["right"], ["right"]]


def test_who_leaves_alone_is_not_awaited_longer():
    assert len(track(absent(20, 40), hidden_s=60.0)[1]) == 2


def test_a_track_needs_three_frames_and_a_short_shot_all_of_its_own():
    walk = [[standing(200)] for _ in range(30)]
    flash = [[standing(200), standing(500)] if i in (10, 11) else people for i, people in enumerate(walk)]
    assert [s["frames"] for s in track(flash)[1]] == [30]
    assert sorted(s["frames"] for s in track(flash, least_s=0)[1]) == [2, 30]
    assert [s["frames"] for s in track(flash[:1])[1]] == [1]  # a photo


# Rates


def walkers(times):
    """Two people who pass each other at 0.7 of their height a second, and one who stands: by frame."""
    return [
        [standing(80 + 140 * t, 330, 200), standing(560 - 140 * t, 190, 150), standing(330, 355, 110)] for t in times
    ]


RATES = {f"{fps} fps": np.arange(0, 3.5, 1 / fps) for fps in (1, 5, 12, 25, 60)}
RATES["every 10th of 25 fps"] = np.arange(0, 3.5, 0.4)
RATES["varying"] = np.cumsum(np.tile([0.02, 0.04, 0.3, 0.1, 0.5, 0.03, 0.75], 2)) - 0.02


@pytest.mark.parametrize("rate", RATES)
def test_the_same_people_are_followed_at_any_rate(rate):
    times = RATES[rate]
    frames = walkers(times)
    orders = [np.random.default_rng(i).permutation(3) for i in range(len(times))]
    mixed = [[people[i] for i in order] for people, order in zip(frames, orders, strict=True)]
    rows, summary = track(mixed, times=times)
    assert sorted(map(sorted, owners(rows, orders).values())) == [[0], [1], [2]]
    assert [(s["frames"], s["missing"]) for s in summary] == [(len(times), 0)] * 3


@pytest.mark.parametrize("fps", [12, 25, 60])
@pytest.mark.parametrize(("seconds", "followed"), [(0.05, False), (0.5, True)])
def test_somebody_is_followed_who_is_seen_for_long_enough_at_any_rate(fps, seconds, followed):
    frames = [[standing(200)] if 1 <= i / fps < 1 + seconds - 1e-9 else [] for i in range(3 * fps)]
    assert len(track(frames, times=np.arange(len(frames)) / fps)[1]) == followed


def test_one_sighting_is_a_track_where_a_frame_lasts_a_second():
    frames = [[], [standing(200)], []]
    assert [s["frames"] for s in track(frames, times=np.arange(3.0))[1]] == [1]


def test_far_and_differently_large_people_are_others():
    for other in (standing(560, 300, 200), standing(250, 300, 100)):
        assert len(track([[standing(80)], [other]], times=np.arange(2.0))[1]) == 2
