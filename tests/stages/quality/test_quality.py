"""Quality is measured right when a made flaw of known size moves its own column, and no other, in the right order."""

from __future__ import annotations

import io

import av
import cv2
import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from framekiln.contract.columns import pack
from framekiln.contract.placement import Placement
from framekiln_stages.quality.frozen import Frozen
from framekiln_stages.quality.measures import edge_blur
from framekiln_stages.quality.stage import Quality
from tests.support.media.photos import PHOTOS, photo


def measure(*images: np.ndarray, halo: int = 0, **config) -> list[dict]:
    stage = Quality(Quality.Config(**config))
    stage.setup({}, Placement())
    clips = [0] * (len(images) - halo) + [-1] * halo
    return stage(pa.table({"frame": pack(images), "clip_index": clips})).to_pylist()


def measure_photo(image: np.ndarray) -> dict:
    (row,) = measure(image)
    return row


def blurred(image: np.ndarray, deviation: float) -> np.ndarray:
    return cv2.GaussianBlur(image, (0, 0), deviation)


def noisy(image: np.ndarray, deviation: float) -> np.ndarray:
    noise = np.random.default_rng(0).normal(0, deviation, image.shape[:2])[..., None]
    return np.clip(np.rint(image + noise), 0, 255).astype(np.uint8)


def jpeg(image: np.ndarray, quality: int) -> np.ndarray:
    return cv2.imdecode(cv2.imencode(".jpg", image, [cv2.IMWRITE_JPEG_QUALITY, quality])[1], cv2.IMREAD_COLOR)


@pytest.mark.parametrize("name", PHOTOS)
def test_sharpness_is_the_short_side_that_the_detail_needs(name):
    """A blur of s px leaves the detail of a picture that is s / 0.4 times smaller, whose edges have 0.4 px."""
    image = photo(name)
    short = min(image.shape[:2])
    sharp, *soft = (measure_photo(blurred(image, s) if s else image)["sharpness"] for s in (0, 2, 4))
    assert sharp >= 0.75 * short
    assert soft == [pytest.approx(short * 0.4 / s, rel=0.4) for s in (2, 4)]


@pytest.mark.parametrize("name", PHOTOS)
def test_sharpness_compares_across_sizes(name):
    image = photo(name)
    double = cv2.resize(image, None, fx=3, fy=3, interpolation=cv2.INTER_CUBIC)
    assert measure_photo(double)["sharpness"] == pytest.approx(min(image.shape[:2]), rel=0.45)


def test_sharpness_is_the_same_wherever_its_arrays_lie_in_memory():
    luma, random, kept = cv2.cvtColor(photo("china.jpg"), cv2.COLOR_RGB2GRAY), np.random.default_rng(0), []
    for side in range(150, 420, 14):
        part, found = np.ascontiguousarray(luma[:side, : side + 13]), set()
        for _ in range(12):
            kept.append(np.empty(8 * random.integers(1, 3000), np.uint8))  # moves the arrays that are made after it
            found.add(edge_blur(part, 1.0))
        assert len(found) == 1


def on_crooked_page(image: np.ndarray, scanner: int) -> np.ndarray:
    page = np.pad(image, ((60, 60), (60, 60), (0, 0)), constant_values=255)
    turn = cv2.getRotationMatrix2D((page.shape[1] / 2, page.shape[0] / 2), 3, 1)
    return cv2.warpAffine(page, turn, page.shape[1::-1], borderValue=(scanner,) * 3)


def dated(image: np.ndarray) -> np.ndarray:
    return cv2.putText(image.copy(), "2019 08 24", (250, 390), cv2.FONT_HERSHEY_SIMPLEX, 0.7, (255, 140, 30), 2)


@pytest.mark.parametrize("name", PHOTOS)
def test_hard_lines_do_not_make_a_blurred_picture_sharp(name):
    soft = cv2.resize(blurred(photo(name), 3), (600, 450), interpolation=cv2.INTER_AREA)
    framed = cv2.rectangle(soft.copy(), (20, 20), (580, 430), (255, 255, 255), 2)
    own = measure_photo(soft)["sharpness"]
    for marked in (dated(soft), framed, np.hstack([soft[:, :300], soft[::-1, :300]])):
        assert measure_photo(marked)["sharpness"] == pytest.approx(own, rel=0.25)
    for scanner in (255, 0):
        page = on_crooked_page(soft, scanner)
        assert measure_photo(page)["sharpness"] / len(page) == pytest.approx(own / len(soft), rel=0.25)


@pytest.mark.parametrize("name", PHOTOS)
def test_a_subject_before_a_soft_background_is_sharp_and_noise_is_no_detail(name):
    image = photo(name)
    height, width = image.shape[:2]
    portrait = blurred(image, 6)
    middle = (slice(height // 4, height // 4 * 3), slice(width // 4, width // 4 * 3))
    portrait[middle] = image[middle]
    assert measure_photo(portrait)["sharpness"] >= 0.6 * min(height, width)
    soft = measure_photo(noisy(blurred(image, 3), 6))
    assert soft["sharpness"] <= 0.2 * min(height, width)


@pytest.mark.parametrize("name", PHOTOS)
def test_noise_is_the_noise_that_was_added(name):
    image = cv2.resize(photo(name), None, fx=0.5, fy=0.5, interpolation=cv2.INTER_AREA)
    own, *added = (measure_photo(noisy(image, deviation))["noise"] for deviation in (0, 5, 10))
    assert own < 2.5
    assert added == [pytest.approx(np.hypot(deviation, own), rel=0.2) for deviation in (5, 10)]


@pytest.mark.parametrize("name", PHOTOS)
def test_blocks_rise_with_compression_wherever_the_grid_begins(name):
    image = photo(name)
    rising = [measure_photo(jpeg(image, quality))["blockiness"] for quality in (90, 50, 20, 8)]
    assert rising == sorted(rising) and rising[0] < 0.4 and rising[-1] > 2
    cropped = measure_photo(jpeg(image, 8)[3:, 5:])["blockiness"]
    assert cropped == pytest.approx(rising[-1], rel=0.1)


def test_bars_are_found_to_the_pixel_and_a_dark_scene_has_none():
    image = photo("china.jpg")
    boxed = np.pad(image, ((53, 61), (0, 0), (0, 0)))
    assert measure_photo(boxed)["bars"] == {"top": 53, "bottom": 61, "left": 0, "right": 0}
    inner = measure_photo(boxed)
    assert inner["sharpness"] == pytest.approx(measure_photo(image)["sharpness"]) and inner["noise"] > 0
    framed = np.pad(image, ((10, 10), (40, 44), (0, 0)))
    grey = np.pad(image, ((20, 20), (40, 44), (0, 0)), constant_values=64)
    faint = [  # bars of nearly the tone of what they enclose
        np.pad(photo(name), ((20, 20), (40, 44), (0, 0)), constant_values=tone)
        for name, tone in (("flower.jpg", 64), ("grace_hopper.jpg", 128))
    ]
    for frame, high in ((framed, 10), *((frame, 20) for frame in (grey, *faint))):
        expected = {"top": high, "bottom": high, "left": 40, "right": 44}
        assert measure_photo(jpeg(frame, 60))["bars"] == pytest.approx(expected, abs=2)
    two = np.repeat(np.uint8([[255], [0]]), 240, axis=0)[..., None] * np.ones((1, 320, 3), np.uint8)
    assert measure_photo(two)["bars"]["bottom"] == 0  # what is left is a picture
    night = (image * np.linspace(0, 1, len(image))[:, None, None]).astype(np.uint8)
    sky = np.linspace(250, 90, len(image)).astype(np.uint8)[:, None, None] * np.ones_like(image)
    for plain in (image, night, sky, np.zeros_like(image) + 90):
        assert set(measure_photo(plain)["bars"].values()) == {0}
    assert measure_photo(np.zeros_like(image))["bars"] is None


def test_bars_of_a_film_are_those_of_the_clip():
    """A scene that is dark above is no letterbox, where other frames of the clip are light there."""
    image = photo("china.jpg")
    dark = image.copy()
    dark[:100] = 0
    assert [set(row["bars"].values()) for row in measure(dark, image)] == [{0}, {0}]
    other = measure(dark, np.pad(image, ((20, 20), (0, 0), (0, 0))))
    assert [row["bars"]["top"] for row in other] == [100, 20]  # each size of its own
    flash = image.copy()
    flash[:100] = 250
    assert {size for row in measure(flash, image) for size in row["bars"].values()} == {0}


def test_shots_with_and_without_bars_in_one_clip_have_their_own():
    """A shot whose sky is black has no letterbox, as long as another shot of the clip is light there."""
    image, night = photo("china.jpg"), photo("china.jpg").copy()
    night[:100] = 0
    wide = np.pad(photo("flower.jpg")[50:-50], ((50, 50), (0, 0), (0, 0)))
    tall = np.pad(image[:, 100:-100], ((0, 0), (100, 100), (0, 0)))
    rows = measure(wide, wide, image, night, tall, np.zeros_like(wide))
    found = [tuple(row["bars"].values()) for row in rows]
    assert found == [(50, 50, 0, 0), (50, 50, 0, 0), *[(0, 0, 0, 0)] * 2, (0, 0, 100, 100), (0, 0, 0, 0)]
    assert rows[0]["blockiness"] == pytest.approx(measure(wide, wide)[0]["blockiness"])


def test_the_next_clips_first_frame_has_no_part_in_the_bars_of_a_clip():
    image = photo("china.jpg")
    boxed = np.pad(image[50:-50], ((50, 50), (0, 0), (0, 0)))
    first, second, _ = measure(boxed, boxed, image, halo=1)
    assert first["bars"] == second["bars"] == {"top": 50, "bottom": 50, "left": 0, "right": 0}
    assert second["change"] > 2  # it is still looked at for the change


def test_black_and_even_frames_are_named():
    image = photo("china.jpg")
    title = np.zeros_like(image)
    cv2.putText(title, "THE END", (100, 250), cv2.FONT_HERSHEY_SIMPLEX, 3.0, (255, 255, 255), 12)
    wall = noisy(np.full_like(image, 130), 8)
    rows = [measure_photo(frame) for frame in (image, np.full_like(image, 20), title, wall)]
    assert [(row["is_black"], row["is_uniform"]) for row in rows] == [
        (False, False),
        (True, True),
        (False, False),
        (False, True),
    ]
    assert rows[1]["sharpness"] is None and rows[3]["sharpness"] is None


def film(frames: list[np.ndarray], crf: int) -> list[np.ndarray]:
    """Frames as they come out of x264, with a key frame twice a second."""
    file = io.BytesIO()
    with av.open(file, "w", format="mp4") as container:
        video = container.add_stream("libx264", rate=25)
        video.height, video.width, video.pix_fmt = *frames[0].shape[:2], "yuv420p"
        video.options = {"crf": str(crf), "g": "12", "threads": "1"}
        for frame in frames:
            container.mux(video.encode(av.VideoFrame.from_ndarray(frame, format="rgb24")))
        container.mux(video.encode(None))
    file.seek(0)
    with av.open(file) as container:
        return [frame.to_ndarray(format="rgb24") for frame in container.decode(video=0)]


def spans(frames: list[np.ndarray], fps: float = 25.0, **config) -> list[dict]:
    rows = pa.Table.from_pylist(measure(*frames))
    times = pa.array(np.arange(len(frames)) / fps)
    rows = rows.append_column("time_s", times).append_column("media_id", pa.array(["film"] * len(frames)))
    rows = rows.append_column("frame_index", pa.array(range(len(frames)), pa.int32()))
    stage = Frozen(Frozen.Config(**config))
    return stage(rows.select(stage.inputs))["frozen"].to_pylist()


@pytest.mark.parametrize("crf", [20, 30])
def test_a_held_picture_is_one_span_and_a_slow_pan_is_none(crf):
    image = photo("china.jpg")
    pan = [np.ascontiguousarray(image[100:260, i : i + 240]) for i in range(20)]
    held, black = [pan[-1]] * 30, [np.zeros_like(pan[0])] * 30
    found = spans(film([*pan, *held, *black, *pan], crf), least_s=1.0)
    assert [(span["first_frame"], span["last_frame"], span["is_black"]) for span in found] == [
        (pytest.approx(19, abs=5), 49, False),
        (pytest.approx(50, abs=1), 79, True),
    ]
    assert spans(film(pan, crf), least_s=0.2) == []
    assert len(spans([image[:64, :64]] * 25, least_s=1.0)) == 1  # 25 frames last a second
    slide = held[0].copy()
    cv2.putText(slide, "2. Results", (10, 80), cv2.FONT_HERSHEY_SIMPLEX, 1.0, (255, 255, 255), 2)
    assert len(spans(film([*held, *[slide] * 30], crf), least_s=1.0)) == 2  # text that appears is another picture
    assert [span["end_s"] - span["start_s"] for span in found] == pytest.approx([1.2, 1.16], abs=0.21)


def test_a_photo_and_the_last_frame_have_no_change():
    image = photo("flower.jpg")
    first, last = measure(image, image)
    assert (first["change"], first["repeats"], last["change"], last["repeats"]) == (0, True, None, None)
    small = cv2.resize(image, None, fx=0.5, fy=0.5)
    assert measure(image, small)[0]["repeats"] is False  # another size is another picture
    assert spans([image]) == []


@given(
    hnp.arrays(np.uint8, hnp.array_shapes(min_dims=2, max_dims=2, max_side=70).map(lambda shape: (*shape, 3))),
    st.sampled_from([None, 0, 255]),
)
@settings(max_examples=60)
def test_any_picture_has_values_in_their_ranges(image, even):
    row = measure_photo(image if even is None else np.full_like(image, even))
    assert row["sharpness"] is None or 0 < row["sharpness"] <= min(image.shape[:2])
    assert row["noise"] is None or 0 <= row["noise"] < 255
    assert row["blockiness"] is None or row["blockiness"] >= 0
    assert row["bars"] is None or all(size >= 0 for size in row["bars"].values())


def test_a_wrong_pixel_column_is_refused():
    with pytest.raises(ValueError, match="pixels"):
        Quality.Config(pixels="frames")


def test_the_report_counts_what_is_left_out_first():
    bars, none = {"top": 9, "bottom": 0, "left": 0, "right": 0}, {"top": 0, "bottom": 0, "left": 0, "right": 0}
    frames = [
        (True, True, None, None),
        (False, True, 90.0, none),
        (False, False, 24.0, bars),
        (False, False, 25.0, none),
    ]
    rows = [
        {"height": 100, "width": 200, "is_black": black, "is_uniform": even, "sharpness": sharp, "bars": around}
        for black, even, sharp, around in frames
    ]
    table = pa.Table.from_pylist(rows)
    assert Quality().summarize(table, 10.0) == ["frames: 10 black, 10 of one tone, 10 blurred, 10 with bars"]
    assert Quality().summarize(table.slice(3), 1.0) == []
