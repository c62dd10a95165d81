"""A part of a film is found in another film to within a frame, whatever its size and frame rate, and nothing else."""

from __future__ import annotations

import cv2
import numpy as np
import pyarrow as pa
import pytest

from framekiln.contract.columns import DIGEST, pack
from framekiln_stages.duplicates.fingerprint import Fingerprint
from framekiln_stages.duplicates.stage import Duplicates
from framekiln_stages.quality.stage import BARS
from tests.support.media.photos import PHOTOS, photo


def pan(name: str, seconds: float, fps: float, start: float = 0.0) -> list[np.ndarray]:
    """A camera that moves over a photo, 30 px a second."""
    image, frames = photo(name), []
    for number in range(round(seconds * fps)):
        move = np.float32([[1, 0, -30 * (start + number / fps)], [0, 1, -40]])
        frames.append(cv2.warpAffine(image, move, (320, 240), flags=cv2.INTER_AREA, borderMode=cv2.BORDER_REFLECT))
    return frames


def find(
    films: dict[str, tuple[list[np.ndarray], float | np.ndarray]],
    least_s: float = 3.0,
    **columns: dict[str, float | list[float]],
) -> list[dict]:
    rows = []
    for name, (frames, fps) in films.items():
        count = len(frames)
        kinds = pa.array(["video"] * count)
        index, digests = pa.array(range(count), pa.int32()), pa.nulls(count, DIGEST)
        times = pa.array(np.arange(count) / fps if isinstance(fps, float | int) else fps)
        rate = count / (times[-1].as_py() + 0.04)
        given = {"frame_224": pack(frames), "time_s": times, "media_type": kinds, "digest": digests}
        given["fps"] = pa.array([rate] * count, pa.float32())
        prints = Fingerprint()(pa.table(given))
        own = {
            "media_id": pa.array([name] * count),
            "frame_index": index,
            "media_type": kinds,
            "time_s": times,
            "height": pa.array([240] * count, pa.int32()),
            "width": pa.array([320] * count, pa.int32()),
            "sharpness": pa.nulls(count, pa.float32()),
            "blockiness": pa.nulls(count, pa.float32()),
            "noise": pa.nulls(count, pa.float32()),
            "bars": pa.nulls(count, BARS),
            "change": pa.array([2.5 if number % 2 and rate > 26 else 20.0 for number in range(count)], pa.float32()),
        }
        given = {column: np.full(count, of[name], np.float32) for column, of in columns.items() if name in of}
        own |= {column: pa.array(values).cast(own[column].type) for column, values in given.items()}
        rows.append(pa.table(own | dict(zip(prints.column_names, prints.columns, strict=True))))
    stage = Duplicates(Duplicates.Config(least_s=least_s))
    return stage(pa.concat_tables(rows))["film_copies"].to_pylist()


@pytest.mark.parametrize("is_mirrored", [False, True])
@pytest.mark.parametrize("fps", [12.5, 30.0])
def test_a_part_is_found_in_another_film(fps, is_mirrored):
    whole = pan("china.jpg", 4, 25) + pan("flower.jpg", 6, 25) + pan("grace_hopper.jpg", 3, 25)
    part = pan("grace_hopper.jpg", 2, fps, 3) + pan("flower.jpg", 5, fps, 0.5)
    frames = [np.ascontiguousarray(cv2.resize(frame, (256, 192))[:, :: -1 if is_mirrored else 1]) for frame in part]
    found = find({"whole": (whole, 25), "part": (frames, fps)})
    assert len(found) == 1
    (row,) = found
    assert row["reason"] == ("distinct" if fps > 25 else "first") and row["keep"] == (fps < 25)
    assert (row["media_id"], row["other_media_id"], row["mirrored"]) == ("part", "whole", is_mirrored)
    assert (row["start_s"], row["end_s"]) == pytest.approx((2, 7 - 1 / fps), abs=1 / fps)
    assert (row["other_start_s"], row["other_end_s"]) == pytest.approx((4.5, 9.5 - 0.04), abs=1 / min(fps, 25))


def roll(name: str, times: np.ndarray, start: float = 0.0) -> list[np.ndarray]:
    """A camera that turns by 12 degrees a second; a crop of a pan is the pan a moment later."""
    image, frames = photo(name), []
    for time in times:
        move = cv2.getRotationMatrix2D((240, 200), 12 * (start + time), 1) - np.float32([[0, 0, 80], [0, 0, 80]])
        frames.append(cv2.warpAffine(image, move, (320, 240), flags=cv2.INTER_AREA, borderMode=cv2.BORDER_REFLECT))
    return frames


def cropped(frames: list[np.ndarray], top: int, left: int) -> list[np.ndarray]:
    return [np.ascontiguousarray(frame[top : top + 216, left : left + 288]) for frame in frames]


@pytest.mark.parametrize(("top", "left"), [(12, 16), (6, 25)])
def test_a_part_that_was_cropped_by_a_tenth_is_found(top, left):
    whole = roll("china.jpg", np.arange(0, 4, 0.04)) + roll("flower.jpg", np.arange(0, 6, 0.04))
    part = cropped(roll("flower.jpg", np.arange(0, 5, 0.04), 0.5), top, left)
    (row,) = find({"whole": (whole, 25), "part": (part, 25)})
    assert (row["media_id"], row["other_media_id"]) == ("part", "whole")
    assert row["end_s"] - row["start_s"] > 3
    shifts = [row[f"other_{end}"] - row[end] for end in ("start_s", "end_s")]
    assert shifts == pytest.approx([4.5, 4.5], abs=0.32)


UNEVEN = np.sort(np.random.default_rng(0).choice(np.arange(0, 5, 0.02), 90, replace=False))


@pytest.mark.parametrize("times", [*(np.arange(0, 5, 1 / fps) for fps in (5, 12, 60)), UNEVEN])
def test_a_crop_of_a_film_of_any_rate_is_found(times):
    part = cropped(roll("flower.jpg", np.arange(0, 4, 0.04), 0.5), 12, 16)
    (row,) = find({"part": (part, 25), "whole": (roll("flower.jpg", times), times)})
    assert (row["media_id"], row["start_s"], row["end_s"]) == ("part", 0, 3.96)
    assert (row["other_start_s"], row["other_end_s"]) == pytest.approx((0.5, 4.46), abs=0.4)


@pytest.mark.parametrize("first", [70, 75, 79])
def test_a_cropped_film_is_found_with_all_its_frames_where_bars_end_in_it(first):
    """In a shot with bars another window of the film is its crop."""
    whole = roll("china.jpg", np.arange(0, 3, 0.04)) + roll("flower.jpg", np.arange(0, 3, 0.04))
    boxed = [np.pad(frame[24:-24], ((24, 24), (0, 0), (0, 0))) for frame in whole[:first]] + whole[first:]
    found = find({"whole": (boxed, 25), "part": (cropped(boxed, 24, 32), 25)}, least_s=2.0)
    assert {row["media_id"] for row in found} == {"part"}
    starts, ends = (sorted(row[name] for row in found) for name in ("start_s", "end_s"))
    assert starts == pytest.approx([0, ends[0] + 0.04]) and ends[1] == 5.96


def take(seed: int) -> list[np.ndarray]:
    """Four seconds before a fixed camera: somebody moves a little."""
    rng, frames = np.random.default_rng(seed), []
    x, y = np.cumsum(rng.integers(-2, 3, (2, 100)), axis=1)
    for right, down in zip(x, y, strict=True):
        image = cv2.resize(photo("grace_hopper.jpg"), (240, 320))
        cv2.circle(image, (int(120 + right), int(200 + down)), 20, (230, 200, 180), -1)
        frames.append(image)
    return frames


def test_a_copy_before_a_fixed_camera_is_found_and_another_take_is_not():
    one, other = take(0), take(1)
    copy = [cv2.resize(frame, (180, 240), interpolation=cv2.INTER_AREA) for frame in one]
    found = find({"copy": (copy, 25), "one": (one, 25), "other": (other, 25)})
    assert [(row["media_id"], row["other_media_id"]) for row in found] == [("copy", "one")]
    assert [found[0][name] for name in ("start_s", "end_s", "other_start_s", "other_end_s")] == [0, 3.96, 0, 3.96]


def test_other_films_and_still_ones_share_nothing():
    still = [np.zeros((240, 320, 3), np.uint8)] * 100
    films = {
        "a": (pan("china.jpg", 5, 10), 10),
        "b": (pan("flower.jpg", 5, 10), 10),
        "c": (still, 10),
        "d": (still, 10),
    }
    assert find(films) == []


def test_a_copy_of_a_short_film_is_found_with_all_its_frames():
    short = pan("china.jpg", 1.6, 25) + [np.zeros((240, 320, 3), np.uint8)] * 5  # no look comes after 1.5 s
    found = find(
        {"a": (short, 25), "b": (pan("flower.jpg", 4, 12), 12), "c": ([cv2.resize(f, (200, 150)) for f in short], 25)}
    )
    assert [(row["media_id"], row["other_media_id"]) for row in found] == [("a", "c")]
    assert [found[0][name] for name in ("start_s", "end_s", "other_start_s", "other_end_s")] == [0, 1.76, 0, 1.76]


@pytest.mark.parametrize(
    ("sharpness", "best", "reason"),
    [
        ({"a": 100, "b": 200, "c": 150}, "b", "sharper"),
        ({"a": 200, "b": 197, "c": 203}, "a", "first"),
        ({}, "a", "first"),
    ],
)
def test_of_films_that_share_a_part_one_is_kept_by_the_rules_of_photos(sharpness, best, reason):
    part = pan("flower.jpg", 4, 10)
    found = find(
        {name: (pan(other, 2, 10) + part, 10) for name, other in zip("abc", PHOTOS, strict=False)}, sharpness=sharpness
    )
    assert len(found) == 3
    lost = [row["other_media_id" if row["keep"] else "media_id"] for row in found]
    assert {*"abc"} - {*lost} == {best}
    assert {row["reason"] for row in found if best in (row["media_id"], row["other_media_id"])} == {reason}


@pytest.mark.parametrize(("sharpest", "best", "reason"), [(386, "large", "sharper"), (270, "small", "original")])
def test_a_film_is_enlarged_only_if_its_sharpest_frames_have_no_more_detail(sharpest, best, reason):
    part = pan("flower.jpg", 4, 10)
    (row,) = find(
        {"large": (part, 10), "small": (part, 10)},
        sharpness={"large": [114] * 36 + [sharpest] * 4, "small": [101] * 36 + [265] * 4},  # of a film and its half
        noise={"large": 0.023, "small": 0.088},
        height={"large": 720, "small": 360},
        width={"large": 1280, "small": 640},
    )
    assert (row["media_id" if row["keep"] else "other_media_id"], row["reason"]) == (best, reason)


def test_what_was_put_between_two_shared_parts_is_in_neither():
    start, end = pan("flower.jpg", 4 / 15, 300), pan("flower.jpg", 4 / 3, 75, 4 / 15)  # slow: 2 and 8 px a second
    films = {"a": (start + end, 20), "b": (start + pan("grace_hopper.jpg", 3, 20) + end, 20)}
    ends = [[row[name] for name in ("start_s", "end_s", "other_start_s", "other_end_s")] for row in find(films)]
    assert ends == [[0, 3.95, 0, 3.95], [4, 8.95, 7, 11.95]]


@pytest.mark.parametrize(("least_s", "count"), [(2.6, 1), (3.0, 1), (3.05, 0)])
def test_a_part_lasts_to_the_end_of_its_last_frame(least_s, count):
    moving = pan("flower.jpg", 2.2, 10)
    part = moving + moving[-1:] * 8
    films = {"a": (part + pan("china.jpg", 1, 10), 10), "b": (part + pan("grace_hopper.jpg", 1, 10), 10)}
    found = find(films, least_s)
    assert [(row["start_s"], row["end_s"]) for row in found] == [(0, 2.9)] * count


def swing(name: str, seconds: float) -> list[np.ndarray]:
    """A camera that turns, and trembles: frames 0.1 s apart differ."""
    times = np.arange(0, seconds, 0.04)
    return roll(name, times + 0.5 * np.sin(4 * np.pi * times))


@pytest.mark.parametrize("begin", [0.0, 0.12, 0.56])
@pytest.mark.parametrize("seconds", [4.0, 3.88, 3.72])
def test_a_film_that_is_wholly_a_crop_is_a_copy_to_its_first_and_last_frame(begin, seconds):
    whole = swing("flower.jpg", 5) + roll("china.jpg", np.arange(0, 4, 0.04))
    part = cropped(whole[round(25 * begin) : round(25 * (begin + seconds))], 12, 16)
    (row,) = find({"whole": (whole, 25), "part": (part, 25)})
    assert (row["media_id"], row["start_s"], row["end_s"]) == ("part", 0, (len(part) - 1) / 25)
    assert (row["other_start_s"], row["other_end_s"]) == pytest.approx((begin, begin + seconds - 0.04), abs=0.041)


@pytest.mark.parametrize("is_first", [False, True])
def test_what_a_crop_alone_has_at_its_end_for_longer_is_in_no_part(is_first):
    whole = swing("flower.jpg", 4)
    own = roll("china.jpg", np.arange(0, 0.68, 0.04))
    part = own + cropped(whole, 12, 16) if is_first else cropped(whole, 12, 16) + own
    (row,) = find({"whole": (whole + roll("grace_hopper.jpg", np.arange(0, 4, 0.04)), 25), "part": (part, 25)})
    assert row["media_id"] == "part"
    assert (row["start_s"] >= 0.64) if is_first else (row["end_s"] <= 4)
