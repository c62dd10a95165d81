"""Tracks are right when everybody keeps one id, nobody gets another's, and smoothing calms without lagging."""

from __future__ import annotations

import math

import cv2
import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pipeline.columns import pack
from pipeline.errors import WeightsError
from pipeline.job import Job
from pipeline.manifest import PipelineFile, ProfileFile
from pipeline.order import Order
from pipeline.plan import Choices
from pipeline.stage import Placement
from pipeline.storage import Store
from pipeline.weights import resolve
from stages.nets.tracking import SIGMAS, one_euro, similarity
from stages.pose import Pose
from stages.shots import Shots
from stages.tracks import Tracks
from tests.material import media
from tests.media_factory import film
from tests.people_factory import FPS, HEIGHT, WIDTH, batch, shots, standing


def track(frames, *starts, times=None, **config):
    """Both tables of Tracks, as rows."""
    stage = Tracks(Tracks.Config(**config))
    made = stage(batch(frames, times), shots(*(starts or (0,)), frames=len(frames)))
    assert all(made[name].schema.equals(table.schema) for name, table in stage.tables.items())
    return made["tracks"].to_pylist(), made["track_summary"].to_pylist()


def owners(rows, truth):
    """By track, the people whom it held: `truth` gives the names of a frame's poses in order."""
    found = {}
    for row in rows:
        if row["pose_index"] is not None:
            found.setdefault(row["track"], set()).add(truth[row["frame_index"]][row["pose_index"]])
    return found


def middle(row):
    """The mean of a row's landmarks, in px."""
    return np.array([(mark["x"] * WIDTH, mark["y"] * HEIGHT) for mark in row["landmarks"]]).mean(0)


# Who is who


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
    rows, summary = track([None, [], [standing(200)], None, [standing(200)]])
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
    with pytest.raises(ValueError, match="no shots are known of 'a.mp4'"):
        Tracks()(batch([[standing(200)]]), {"shots": shots(0, frames=1)["shots"].slice(0, 0)})


@pytest.mark.parametrize(
    "config", [{"least_likeness": 0}, {"bridge_s": -1}, {"min_cutoff": 0}, {"beta": -1}, {"least_likeness": 1.1}]
)
def test_settings_that_make_no_sense_are_refused(config):
    with pytest.raises(ValueError, match="must"):
        Tracks.Config(**config)


# Smoothing


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


def scalar_one_euro(values, times, min_cutoff, beta):
    """The filter as the paper's algorithm 1 has it, for one number at a time."""
    kept, slope, out = None, 0.0, []
    for x, (before, now) in zip(values, zip([None, *times], times, strict=False), strict=False):
        if kept is not None:
            rate = 1.0 / (now - before)
            alpha = lambda cutoff: 1.0 / (1.0 + (rate / (2 * math.pi * cutoff)))  # noqa: B023, E731
            slope = alpha(1.0) * (x - kept) * rate + (1 - alpha(1.0)) * slope
            a = alpha(min_cutoff + beta * abs(slope))
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


# Real people, by the real network


@pytest.fixture(scope="module")
def pose():
    try:
        found = resolve(["pose_landmarker_full_bundled"], weights_dir=None)
    except WeightsError as error:
        pytest.skip(str(error))
    stage = Pose(Pose.Config(max_people=3))
    stage.setup(found, Placement())
    return stage


def real(name):
    return cv2.cvtColor(cv2.imread(str(media(name))), cv2.COLOR_BGR2RGB)


def centre(person):
    return (person["box"]["x0"] + person["box"]["x1"]) / 2


def sized(found, height, width):
    """A batch of poses in frames of this size."""
    whole = batch(found.combine_chunks())
    for name, side in (("height", height), ("width", width)):
        whole = whole.set_column(whole.column_names.index(name), name, pa.array([side] * len(whole), pa.int32()))
    return whole


@pytest.mark.slow
def test_a_real_person_panned_then_mirrored_after_a_cut_has_one_id_a_shot(pose):
    image = real("pose/squat.bmp")
    height, width = image.shape[:2]
    wide = cv2.copyMakeBorder(image, 0, 0, 80, 80, cv2.BORDER_REPLICATE)
    views = [wide[:, 6 * i : 6 * i + width] for i in range(12)]
    views += [np.ascontiguousarray(view[:, ::-1]) for view in views]
    found = pose(pa.table({"frame_512": pack([np.ascontiguousarray(view) for view in views])}))["poses"]
    made = Tracks()(sized(found, height, width), shots(0, 12, frames=24))
    summary = made["track_summary"].to_pylist()
    assert [(s["shot"], s["frames"], s["missing"]) for s in summary] == [(0, 12, 0), (1, 12, 0)]
    # The camera moves by 6 px a frame, so that everybody else does.
    xs = [np.mean([mark["x"] * width for mark in row["landmarks"]]) for row in made["tracks"].to_pylist()[:12]]
    assert np.diff(xs)[4:].mean() == pytest.approx(-6, abs=1.5)
    assert all(s["jitter_smoothed"] < s["jitter"] for s in summary)


@pytest.mark.slow
def test_two_real_people_side_by_side_who_trade_places_in_the_list_keep_their_ids(pose):
    image = real("pose/squat.bmp")
    height, width = image.shape[:2]
    frames = []
    for i in range(10):
        light = 0.6 + 0.08 * i  # one darkens while the other brightens, so that the more visible one changes
        pair = [image * light, image[:, ::-1] * (1.92 - light)]
        frames.append(np.hstack([np.roll(one, 4 * i, axis=1).clip(0, 255).astype(np.uint8) for one in pair]))
    found = pose(pa.table({"frame_512": pack(frames)}))["poses"]
    sides = [["left" if centre(p) < 0.5 else "right" for p in people] for people in found.to_pylist()]
    made = Tracks()(sized(found, height, 2 * width), shots(0, frames=10))
    assert sorted(map(sorted, owners(made["tracks"].to_pylist(), sides).values())) == [["left"], ["right"]]
    assert sum(s["frames"] for s in made["track_summary"].to_pylist()) == sum(map(len, sides))


def apart(number):
    """Two real people on one grey wall, who walk through each other's places: the picture of one frame."""
    image = cv2.resize(real("pose/squat.bmp"), None, fx=0.6, fy=0.6, interpolation=cv2.INTER_AREA)
    height, width = image.shape[:2]
    wall = np.full((height, 3 * width, 3), 128, np.uint8)
    for person, x in ((image[:, ::-1], 2 * width - 2 * width * number // 29), (image, 2 * width * number // 29)):
        wall[:, x : x + width] = person
    return wall


@pytest.mark.slow
def test_two_real_people_who_cross_keep_their_ids(pose):
    frames = [apart(i) for i in range(30)]
    height, width = frames[0].shape[:2]
    found = pose(pa.table({"frame_512": pack(frames)}))["poses"]
    made = Tracks()(sized(found, height, width), shots(0, frames=30))["tracks"].to_pylist()
    boxes = found.to_pylist()
    ids = [
        {("left" if centre(boxes[i][row["pose_index"]]) < 0.5 else "right"): row["track"]
         for row in made if row["frame_index"] == i and row["pose_index"] is not None}
        for i in range(30)
    ]  # fmt: skip
    early = {side: {ids[i][side] for i in range(8) if side in ids[i]} for side in ("left", "right")}
    late = {side: {ids[i][side] for i in range(22, 30) if side in ids[i]} for side in ("left", "right")}
    assert len(early["left"]) == len(early["right"]) == 1 and early["left"] != early["right"]
    assert (late["right"], late["left"]) == (early["left"], early["right"])
    assert {row["track"] for row in made} == {0, 1}


@pytest.mark.slow
def test_through_the_engine_tables_are_what_the_stages_say(machines, tmp_path):
    image = cv2.resize(real("pose/squat.bmp"), None, fx=0.5, fy=0.5, interpolation=cv2.INTER_AREA)
    views = [np.ascontiguousarray(np.roll(image, 3 * i, axis=1)) for i in range(8)]
    other = cv2.resize(real("categories/coffee.png"), image.shape[1::-1], interpolation=cv2.INTER_AREA)
    (tmp_path / "in").mkdir()
    film(tmp_path / "in" / "a.mkv", [*views, *[other] * 6, *(view[:, ::-1].copy() for view in views)])
    cv2.imwrite(str(tmp_path / "in" / "b.png"), image[..., ::-1])
    uses = {
        "tracks": "stages.tracks:Tracks",
        "shots": "stages.shots:Shots",
        "features": "stages.shots:Features",
        "flow": "stages.flow:Flow",
        "pose": "stages.pose:Pose",
    }
    steps = {name: {"use": use} for name, use in uses.items()}
    Job(
        Order(
            input=str(tmp_path / "in"),
            output=str(tmp_path / "out"),
            pipeline=PipelineFile.model_validate({"steps": steps}),
            profile=ProfileFile(),
            profile_name="none",
            choices=Choices(),
        )
    ).run()
    store = Store(str(tmp_path / "out"))

    def written(folder):
        found = pa.concat_tables([store.read_table(f"{folder}/{name}") for name in store.names(folder)])
        return {name: found.filter(pa.compute.equal(found["media_id"], name)) for name in ("a.mkv", "b.png")}

    frames = written("frames")
    for name in ("a.mkv", "b.png"):
        direct = Shots()(frames[name].select(Shots().inputs))
        direct |= Tracks()(frames[name].select(Tracks().inputs), {"shots": direct["shots"]})
        for table in ("shots", "transitions", "tracks", "track_summary"):
            assert written(table)[name].equals(direct[table]), (name, table)
    assert [row["first_frame"] for row in written("shots")["a.mkv"].to_pylist()] == [0, 8, 14]
    figures = written("track_summary")["a.mkv"].to_pylist()
    assert [(row["shot"], row["frames"]) for row in figures] == [(0, 8), (2, 8)]
