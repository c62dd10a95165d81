"""Flow is right when it finds a known motion, and honest when it says the same wherever clips are cut."""

from __future__ import annotations

import math
import pickle
from functools import cache
from itertools import pairwise

import av
import cv2
import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from pipeline.columns import PIXELS, pack, reduction
from pipeline.stage import Placement
from stages.flow import Flow
from stages.nets import wheel
from stages.nets.kitti import decode, encode
from tests.material import media


def ready(**config) -> Flow:
    stage = Flow(Flow.Config(**config))
    stage.setup({}, Placement())
    return stage


def table(frames, size: int = 224) -> pa.Table:
    height, width = frames[0].shape[:2]
    by = reduction(height, width, size or None)
    small = [cv2.resize(f, (-(-width // by), -(-height // by)), interpolation=cv2.INTER_AREA) for f in frames]
    sides = {
        "height": pa.array([height] * len(frames), pa.int32()),
        "width": pa.array([width] * len(frames), pa.int32()),
    }
    return pa.table({f"frame_{size}" if size else "frame": pack(small)} | sides)


@cache
def video(name: str, start: int, stop: int) -> list[np.ndarray]:
    with av.open(str(media(name))) as container:
        frames = [
            frame.to_ndarray(format="rgb24") for _, frame in zip(range(stop), container.decode(video=0), strict=False)
        ]
    return frames[start:]


@cache
def photo(name: str) -> np.ndarray:
    return cv2.cvtColor(cv2.imread(str(media(name))), cv2.COLOR_BGR2RGB)


def window(image, x: int, y: int, height: int = 360, width: int = 540) -> np.ndarray:
    return np.ascontiguousarray(image[y : y + height, x : x + width])


def rubberwhale() -> tuple[list[np.ndarray], np.ndarray]:
    """Two RGB frames and the true flow, huge where it is not known."""
    frames = [photo(f"flow/rubberwhale/rubberwhale{i}.png") for i in (1, 2)]
    raw = media("flow/rubberwhale/flow10.flo").read_bytes()
    width, height = np.frombuffer(raw, np.int32, 2, offset=4)
    return frames, np.frombuffer(raw, np.float32, offset=12).reshape(height, width, 2)


def off(flow: np.ndarray, truth: np.ndarray) -> float:
    """Mean end-point error in px where the truth is known."""
    known = (np.abs(truth) < 1e9).all(-1)
    return float(np.linalg.norm(flow - truth, axis=-1)[known].mean())


def error(backend: str, preset: str = "medium") -> float:
    """Mean end-point error in px on RubberWhale at full size."""
    frames, truth = rubberwhale()
    grays = [cv2.cvtColor(frame, cv2.COLOR_RGB2GRAY) for frame in frames]
    return off(ready(backend=backend, preset=preset, size=0).between(*grays), truth)


def test_the_default_follows_rubberwhale_within_a_third_of_a_pixel():
    default = Flow.Config()
    assert error(default.backend, default.preset) <= 0.30


def test_presets_and_methods_differ_in_accuracy_as_documented():
    assert error("dis", "medium") < error("dis", "fast") < error("dis", "ultrafast") < 0.60
    assert error("farneback") < 0.40


@pytest.mark.parametrize("name", ["building.jpg", "coffee.png", "dragonfly.bmp", "parrot.jpg"])
@pytest.mark.parametrize("size", [0, 224])
@pytest.mark.parametrize(("dx", "dy"), [(6, 0), (0, 6), (-5, 5), (3, -4), (-16, 0)])
def test_a_known_shift_is_found_in_pixels_of_the_full_frame(name, size, dx, dy):
    row = shifted(ready(size=size), name, dx, dy)
    assert row["motion_mean"] == pytest.approx(math.hypot(dx, dy), rel=0.05)
    assert angle_between(row["motion_direction"], math.degrees(math.atan2(-dy, dx))) < 2
    assert row["cut"] < 0.1


@pytest.mark.parametrize(("dx", "dy"), [(6, 0), (0, -6), (-4, 3)])
def test_farneback_finds_a_known_shift_too(dx, dy):
    row = shifted(ready(backend="farneback"), "dragonfly.bmp", dx, dy)
    assert row["motion_mean"] == pytest.approx(math.hypot(dx, dy), rel=0.05)
    assert angle_between(row["motion_direction"], math.degrees(math.atan2(-dy, dx))) < 2


def shifted(stage: Flow, name: str, dx: int, dy: int) -> dict:
    """What a stage says of a photo whose content moves by dx, dy."""
    image = photo(f"categories/{name}")
    height, width = image.shape[0] - 32, image.shape[1] - 32
    frames = [window(image, 16, 16, height, width), window(image, 16 - dx, 16 - dy, height, width)]
    return stage(table(frames, stage.config.size)).to_pylist()[0]


def angle_between(one: float, other: float) -> float:
    return abs((one - other + 180) % 360 - 180)


def test_frames_without_a_successor_have_no_motion():
    frames = video("av/nasa_13013.mp4", 0, 4)
    rows = ready()(table(frames)).to_pylist()
    assert rows[-1] == dict.fromkeys(rows[-1])
    assert rows[-2]["shake"] is None and rows[-2]["motion_mean"] is not None
    assert rows[-3]["shake"] is not None
    assert ready()(table(frames[:1])).to_pylist() == [dict.fromkeys(rows[-1])]


def test_a_still_scene_has_no_direction():
    frame = photo("categories/coffee.png")
    row = ready()(table([frame, frame, frame])).to_pylist()[0]
    assert (row["motion_mean"], row["motion_direction"], row["cut"]) == (
        pytest.approx(0, abs=0.01),
        None,
        pytest.approx(0, abs=1e-3),
    )
    assert row["shake"] == pytest.approx(0, abs=1e-5)


def test_an_empty_batch_and_frames_too_small_or_of_other_sizes_give_nulls():
    ints = pa.array([], pa.int32())
    empty = pa.table({"frame_224": pa.array([], PIXELS), "height": ints, "width": ints})
    stage = ready()
    assert stage(empty).num_rows == 0 and stage(empty).schema == stage.outputs
    for shapes in ([(15, 40)] * 3, [(40, 40), (40, 50)]):
        frames = [np.zeros((*shape, 3), np.uint8) for shape in shapes]
        sides = {"height": [40] * len(frames), "width": [40] * len(frames)}
        rows = stage(pa.table({"frame_224": pack(frames)} | sides)).to_pylist()
        assert all(value is None for row in rows for value in row.values())


def test_shake_is_the_change_of_motion_over_the_diagonal():
    image = photo("categories/building.jpg")
    shifts = [(0, 0), (4, 1), (9, -3), (5, 2), (6, 2)]
    at = np.array([(60, 60)] + [(60 + x, 60 + y) for x, y in shifts])
    rows = ready()(table([window(image, x, y) for x, y in at])).to_pylist()
    moves = [after - before for before, after in pairwise(at)]
    want = [float(np.hypot(*(b - a))) / math.hypot(360, 540) for a, b in pairwise(moves)]
    assert [row["shake"] for row in rows[:-2]] == pytest.approx(want, rel=0.1)


def test_a_steady_pan_does_not_shake_but_a_roll_from_side_to_side_does():
    image = photo("categories/building.jpg")
    pan = [window(image, 40 + 7 * i, 60) for i in range(5)]
    turns = [cv2.getRotationMatrix2D((434.0, 300.0), angle, 1.0) for angle in (0, 1, 0, 1, 0)]
    roll = [window(cv2.warpAffine(image, turn, image.shape[1::-1]), 160, 120) for turn in turns]
    steady, rolling = (ready()(table(frames))["shake"].to_pylist()[:3] for frames in (pan, roll))
    assert max(steady) < 3e-4
    # One degree there and one back, seen at a mean distance of .29 diagonals from the centre.
    assert rolling == pytest.approx(
        [2 * math.radians(1) * math.hypot(360, 540) / math.sqrt(12) / math.hypot(360, 540)] * 3, rel=0.15
    )


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


@pytest.mark.parametrize(
    ("first", "second"),
    [
        ("av/grid/bbaf2n.mpg", "av/grid/lbax4n.mpg"),
        ("av/grid/sbwe5n.mpg", "av/nasa_13013.mp4"),
        ("vos/bedroom.mp4", "av/grid/sbwe5n.mpg"),
    ],
)
def test_two_clips_joined_are_cut_at_the_joint_only(first, second):
    head, tail = video(first, 0, 4), video(second, 0, 4)
    height, width = head[0].shape[:2]
    frames = [*head, *(cv2.resize(frame, (width, height), interpolation=cv2.INTER_AREA) for frame in tail)]
    found = ready()(table(frames))["cut"].to_pylist()[:-1]
    assert [value > 0.5 for value in found] == [False] * 3 + [True] + [False] * 3


@pytest.mark.parametrize("stops", [-2, -1, 1])
def test_a_flash_is_not_a_cut(stops):
    now, then = video("av/grid/bbaf2n.mpg", 0, 2)
    brighter = (np.clip((then / 255.0) ** 2.2 * 2.0**stops, 0, 1) ** (1 / 2.2) * 255).astype(np.uint8)
    assert ready()(table([now, brighter]))["cut"].to_pylist()[0] < 0.3


def shot() -> list[np.ndarray]:
    return video("av/nasa_13013.mp4", 195, 207)  # with the cut after 201


@cache
def uncut() -> pa.Table:
    return ready(cache=True)(table(shot()))


@given(st.sets(st.integers(1, 11)))
@settings(max_examples=10, deadline=None)
def test_where_clips_are_cut_does_not_matter(cuts):
    stage, frames, parts = ready(cache=True), table(shot()), []
    for start, stop in pairwise([0, *sorted(cuts), frames.num_rows]):
        parts.append(stage(frames.slice(start, stop - start + Flow.halo)).slice(0, stop - start))
    assert pa.concat_tables(parts).equals(uncut())


def test_results_do_not_depend_on_threads_or_on_what_came_before():
    stage = ready(cache=True)
    stage(table(shot()[::-1]))
    cv2.setNumThreads(2)
    assert stage(table(shot())).equals(uncut())
    cv2.setNumThreads(1)


@given(
    hnp.arrays(
        np.float32, st.tuples(st.integers(1, 9), st.integers(1, 9), st.just(2)), elements=st.floats(-511, 511, width=32)
    )
)
def test_a_field_survives_the_file_within_a_64th_of_a_pixel(flow):
    again = decode(encode(flow))
    assert again.shape == flow.shape
    assert np.abs(again - flow).max() <= 1 / 64


def test_the_file_is_laid_out_as_kitti_has_it_and_marks_what_it_cannot_say():
    flow = np.array([[[1.5, -2.0], [600.0, 0.0], [np.nan, 0.0], [0.0, -np.inf]]], np.float32)
    blue, green, red = cv2.split(cv2.imdecode(np.frombuffer(encode(flow), np.uint8), cv2.IMREAD_UNCHANGED))
    assert (red[0, 0], green[0, 0]) == (2**15 + 96, 2**15 - 128)
    assert blue.tolist() == [[1, 0, 0, 0]]
    again = decode(encode(flow))
    assert again[0, 0].tolist() == [1.5, -2.0] and np.isnan(again[0, 1:]).all()


@pytest.mark.parametrize("data", [b"", b"noise", cv2.imencode(".png", np.zeros((4, 4, 3), np.uint8))[1].tobytes()])
def test_another_file_is_refused(data):
    with pytest.raises(ValueError, match="KITTI"):
        decode(data)


def test_the_kept_field_is_the_one_the_numbers_come_from():
    row = uncut().to_pylist()[0]
    assert np.linalg.norm(decode(row["flow_field"]), axis=-1).mean() == pytest.approx(row["motion_mean"], abs=1 / 64)
    assert "flow_field" not in Flow().outputs.names


@pytest.mark.parametrize("config", [{"preset": "slow"}, {"backend": "horn"}, {"model": "raft-large"}])
def test_an_unknown_setting_is_refused(config):
    with pytest.raises(ValueError, match="is none of"):
        Flow.Config(**config)


def test_it_asks_for_the_size_it_computes_at_and_pickles():
    assert Flow(Flow.Config(size=0)).inputs[0] == "frame" and Flow().inputs[0] == "frame_224"
    assert pickle.loads(pickle.dumps(Flow())).outputs == Flow().outputs


def test_the_drawing_points_where_things_move():
    image = photo("categories/building.jpg")
    row = ready()(table([window(image, 60, 60), window(image, 66, 60)])).to_pylist()
    (x0, y0, x1, y1), *_ = Flow().preview(row[0]).lines
    assert x1 < x0 and y1 == pytest.approx(y0, abs=0.02)  # the camera moves right, so the picture moves left
    assert Flow().preview(row[1]) is None


def test_colours_of_the_drawing_are_those_of_the_middlebury_wheel():
    still = np.zeros((2, 2, 2), np.float32)
    assert (wheel.colours(still, 1.0) == 255).all()
    moving = np.zeros((1, 5, 2), np.float32)
    moving[0] = [(1, 0), (0, 1), (-1, 0), (0, -1), (np.nan, 0)]  # right, down, left, up
    right, down, left, up, unknown = wheel.colours(moving, 1.0)[0].tolist()
    assert right == [255, 0, 0]  # red is where the published wheel begins
    assert down[0] == 255 and down[1] > 150 and down[2] == 0  # between yellow and red
    assert left[0] == 0 and left[1] > 200 and left[2] > 200  # about cyan
    assert up[2] == 255 and up[1] == 0 and up[0] > 50  # between blue and magenta
    assert unknown == [0, 0, 0]
    half, fast = wheel.colours(np.array([[[0.5, 0], [2, 0]]], np.float32), 1.0)[0].tolist()
    assert half == [255, 127, 127] and fast == [191, 0, 0]


def test_the_drawing_shows_the_field_where_it_was_kept_and_else_the_mean():
    image = photo("categories/building.jpg")
    row = ready(cache=True)(table([window(image, 60, 60), window(image, 66, 60)])).to_pylist()[0]
    whole, mean = (
        cv2.imdecode(np.frombuffer(drawing.overlay, np.uint8), cv2.IMREAD_UNCHANGED)
        for drawing in (Flow().preview(row), Flow().preview({**row, "flow_field": None}))
    )
    assert whole.shape[2] == 4 and min(whole.shape[:2]) > 100 and mean.shape == (1, 1, 4)
    for blue, green, red in (whole[..., :3].reshape(-1, 3).mean(axis=0), mean[0, 0, :3]):
        assert blue > red and green > red  # to the left: about cyan
    legend = Flow().preview(row).legend
    assert "wheel" in legend.text and legend.picture.startswith(b"\x89PNG")
