"""Copies are found when a photo that was changed as people change photos is grouped with it, and strangers are not."""

from __future__ import annotations

from functools import cache

import cv2
import numpy as np
import pyarrow as pa
import pytest

from framekiln.contract.columns import DIGEST, pack
from framekiln.contract.placement import Placement
from framekiln_stages.duplicates import earlier, search
from framekiln_stages.duplicates.fingerprint import Fingerprint
from framekiln_stages.duplicates.stage import Duplicates
from framekiln_stages.quality.stage import BARS
from tests.support.media.photos import PHOTOS, photo


def jpeg(image, quality):
    return cv2.imdecode(cv2.imencode(".jpg", image, [cv2.IMWRITE_JPEG_QUALITY, quality])[1], cv2.IMREAD_COLOR)


def resize(image, width, height):
    return cv2.resize(image, None, fx=width, fy=height, interpolation=cv2.INTER_AREA)


def crop(image, top, left, by=0.9):
    height, width = (round(by * side) for side in image.shape[:2])
    top, left = (round(at * side) for at, side in zip((top, left), image.shape[:2], strict=True))
    return image[top : top + height, left : left + width]


def sign(image):
    signed = image.copy()
    height, width = image.shape[:2]
    cv2.putText(signed, "SAMPLE", (width // 8, height // 2), cv2.FONT_HERSHEY_SIMPLEX, 3, (255, 255, 255), 6)
    return cv2.addWeighted(signed, 0.6, image, 0.4, 0)


CHANGES = {
    "encoded": (lambda image: jpeg(image, 25), "same"),
    "half": (lambda image: resize(image, 0.5, 0.5), "same"),
    "stretched": (lambda image: resize(image, 1, 0.9), "same"),
    "brighter": (lambda image: np.clip(image * 1.3 + 10.0, 0, 255).astype(np.uint8), "same"),
    "grey": (lambda image: cv2.cvtColor(cv2.cvtColor(image, cv2.COLOR_RGB2GRAY), cv2.COLOR_GRAY2RGB), "same"),
    "signed": (sign, "same"),
    "barred": (lambda image: np.pad(image, ((30, 30), (0, 0), (0, 0))), "same"),
    "framed": (lambda image: np.pad(image, ((40, 40), (40, 40), (0, 0)), constant_values=150), "same"),
    "mirrored": (lambda image: np.ascontiguousarray(image[:, ::-1]), "mirrored"),
    "turned left": (np.rot90, "turned"),
    "turned right": (lambda image: np.rot90(image, 3), "turned"),
    "upside down": (lambda image: np.rot90(image, 2), "upside down"),
    "cropped": (lambda image: crop(image, 0.03, 0.08), "crop"),
    "narrow": (lambda image: image[:, round(0.1 * image.shape[1]) :], "crop"),
}


@cache
def tiles() -> tuple[np.ndarray, ...]:
    """Parts of the photos that show different things."""
    found = []
    for name in PHOTOS:
        image = photo(name)
        height, width = (side // 2 for side in image.shape[:2])
        found += [image[i * height :, j * width :][:height, :width] for i in (0, 1) for j in (0, 1)]
    return tuple(found)


def make_rows(images: dict[str, np.ndarray], **figures) -> pa.Table:
    count = len(images)
    kinds = pa.array(["photo"] * count)
    digests = pa.array(figures.pop("digest", [None] * count), DIGEST)
    index = pa.array([0] * count, pa.int32())
    given = {"frame_224": pack(list(images.values())), "media_type": kinds, "digest": digests}
    given |= {name: pa.nulls(count, pa.float64()) for name in ("time_s", "fps")}
    prints = Fingerprint()(pa.table(given))
    own = {
        "media_id": pa.array(list(images), pa.string()),
        "frame_index": index,
        "media_type": kinds,
        "time_s": pa.nulls(count, pa.float64()),
        "height": pa.array([image.shape[0] for image in images.values()], pa.int32()),
        "width": pa.array([image.shape[1] for image in images.values()], pa.int32()),
        "sharpness": pa.array(figures.get("sharpness", [None] * count), pa.float32()),
        "blockiness": pa.array(figures.get("blockiness", [None] * count), pa.float32()),
        "noise": pa.array(figures.get("noise", [None] * count), pa.float32()),
        "bars": pa.array(figures.get("bars", [None] * count), BARS),
    }
    own |= {name: pa.array(figures[name]) for name in Duplicates.optional_inputs if name in figures}
    return pa.table(own | dict(zip(prints.column_names, prints.columns, strict=True)))


def call(rows: pa.Table, kept: dict[str, pa.Table] | None = None) -> dict[str, pa.Table]:
    stage = Duplicates()
    stage.setup({}, Placement())
    stage.reads_also = tuple(name for name in stage.optional_inputs if name in rows.column_names)
    return stage(rows.select(stage.received), kept)


def find(images: dict[str, np.ndarray], **figures) -> list[dict]:
    return call(make_rows(images, **figures))["duplicates"].to_pylist()


@pytest.mark.parametrize("name", CHANGES)
def test_a_changed_photo_is_a_copy_and_other_photos_are_none(name):
    change, kind = CHANGES[name]
    originals = {f"a/{name}": photo(name) for name in PHOTOS}
    copies = {f"b/{name}": np.ascontiguousarray(change(photo(name))) for name in PHOTOS}
    others = {f"tile {number}": image for number, image in enumerate(tiles())}
    rows = find(originals | others | copies)
    groups = {row["group"]: {other["media_id"] for other in rows if other["group"] == row["group"]} for row in rows}
    assert list(groups.values()) == [{f"a/{name}", f"b/{name}"} for name in PHOTOS]
    assert {row["kind"] for row in rows} <= {kind, "same"} and kind in {row["kind"] for row in rows}
    assert all(row["distance"] == 0 for row in rows) or name not in ("mirrored", "grey")


@pytest.mark.parametrize(("sharpness", "best", "reason"), [(427, "own", "bare"), (300, "scan", "sharper")])
def test_a_crooked_scan_is_not_sharper_for_its_larger_page(sharpness, best, reason):
    image = photo("china.jpg")
    page = np.pad(image, ((38, 38), (57, 57), (0, 0)), constant_values=255)
    turn = cv2.getRotationMatrix2D((page.shape[1] / 2, page.shape[0] / 2), 2, 1)
    scan = cv2.warpAffine(page, turn, page.shape[1::-1])
    rows = find({"own": image, "scan": scan}, sharpness=[sharpness, 503])
    assert [(row["media_id"], row["reason"]) for row in rows if row["keep"]] == [(best, reason)]


def test_the_one_to_keep_has_the_most_detail_then_the_fewest_blocks_then_the_most_pixels():
    image = photo("china.jpg")
    images = {"large": resize(image, 2, 2), "own": image, "small": resize(image, 0.5, 0.5)}

    def kept(**figures):
        rows = find(images, **figures)
        (best,) = (row for row in rows if row["keep"])
        assert {row["copy_of"] for row in rows if not row["keep"]} == {best["media_id"]}
        return best["media_id"], best["reason"]

    assert kept() == ("large", "larger")
    assert kept(sharpness=[None, None, 40]) == ("small", "sharper")  # none has an edge that tells it
    assert kept(sharpness=[420, 427, 210], noise=[10.0, 2.0, 0.0]) == ("own", "cleaner")
    assert kept(sharpness=[400, 427, 210]) == ("own", "sharper")
    assert kept(sharpness=[420, 427, 210], blockiness=[0.1, 0.9, 0.0]) == ("large", "cleaner")
    assert kept(sharpness=[420, 427, 210], blockiness=[0.1, 0.15, 0.0]) == ("large", "larger")
    # An enlarged copy reads as sharper, but has less noise and hardly more detail; a reduced one has lost detail.
    assert kept(sharpness=[520, 427, 210], noise=[2.0, 5.0, 4.0]) == ("own", "sharper")
    del images["small"]
    assert kept(sharpness=[520, 427], noise=[2.0, 5.0]) == ("own", "original")
    assert kept(sharpness=[420, 427], noise=[3.0, 5.0]) == ("own", "original")
    assert kept(sharpness=[700, 427], noise=[2.0, 5.0]) == ("large", "sharper")
    assert kept(sharpness=[520, 427], noise=[5.0, 5.0]) == ("large", "sharper")
    assert kept(sharpness=[520, 427], noise=[2.0, 5.0], blockiness=[0.0, 0.9]) == ("large", "sharper")
    images = {"a": np.pad(image, ((30, 30), (0, 0), (0, 0))), "b": image}
    bars = {"top": 30, "bottom": 30, "left": 0, "right": 0}
    assert kept(sharpness=[427, 427], bars=[bars, None]) == ("b", "bare")
    assert kept(sharpness=[427, 427], bars=[bars, None], noise=[0.0, 9.0]) == ("b", "bare")  # as of a JPEG with a frame
    images = {"a (1)": image, "b": image, "a": image}
    assert kept() == ("a", "first")  # not the copy, which is before it by name
    images = {"b": image, "a": image}
    assert kept(camera_model=["X100", None]) == ("b", "tags")  # most programs drop what the camera wrote
    later = np.datetime64("2026-03-04T05:06:00", "us")
    assert kept(camera_model=["X100"] * 2, edited_at=[None, later]) == ("b", "tags")
    assert kept(sharpness=[400, 430]) == ("a", "first") and kept(sharpness=[400, 450]) == ("a", "sharper")
    for bright, names in (("a", "ba"), ("b", "ab")):  # by no name
        images = {name: np.minimum(image * (1.4 if name == bright else 1.0), 255).astype(np.uint8) for name in names}
        assert kept() == (min({*"ab"} - {bright}), "unclipped")


def test_files_of_the_same_bytes_are_told_and_found_without_detail():
    even = np.full((240, 320, 3), 90, np.uint8)
    images = {"a": even, "b": even, "c": even, "d": photo("china.jpg"), "e": photo("china.jpg"), "f": tiles()[0]}
    one, two, three = (bytes([value] * 16) for value in (1, 2, 3))
    rows = find(images, digest=[one, one, two, three, None, bytes(16)])
    found = {row["media_id"]: (row["group"], row["kind"], row["distance"], row["reason"]) for row in rows}
    assert found == {
        "a": (0, "bytes", 0, "first"),
        "b": (0, "bytes", 0, "first"),
        "d": (1, "same", 0, "first"),
        "e": (1, "same", 0, "first"),
    }


def test_the_kind_is_of_the_pair_with_the_one_to_keep():
    image = photo("china.jpg")
    turned = np.ascontiguousarray(np.rot90(image))
    rows = find({"a": image, "b": turned, "c": resize(turned, 0.5, 0.5)}, sharpness=[900, 400, 200])
    assert [(row["media_id"], row["copy_of"], row["kind"]) for row in rows] == [
        ("a", None, "turned"),
        ("b", "a", "turned"),
        ("c", "a", "turned"),
    ]


def make_burst(name: str, count: int, move: float) -> dict[str, np.ndarray]:
    """Photos of a camera that moves by a part of the whole from one to the next."""
    image = photo(name)
    height, width = (round(0.7 * side) for side in image.shape[:2])
    moves = [[round(move * number * side) for side in image.shape[:2]] for number in range(count)]
    return {f"{at}": image[y : y + height, x : x + width] for at, (y, x) in enumerate(moves)}


def test_photos_beside_each_other_by_name_or_by_time_are_one_scene():
    burst, other = make_burst("china.jpg", 12, 0.025), make_burst("grace_hopper.jpg", 4, 0.05)
    images = {f"day/DSC_{number}.jpg": image for number, image in burst.items()}  # 10 is after 9, and not after 1
    images |= {f"day/{tile}.jpg": image for tile, image in enumerate(tiles())}
    images |= {f"{'zyxw'[int(number)]}/c.jpg": image for number, image in other.items()}
    cameras = [None] * (len(images) - 4) + ["X100"] * 4
    times = [None] * (len(images) - 4) + [np.datetime64("2026-03-04T05:06:00", "us") + second for second in range(4)]

    def group(**figures):
        scenes: dict[str, set[str]] = {}
        for row in call(make_rows(images, **figures))["scenes"].to_pylist():
            scenes.setdefault(row["scene"], set()).add(row["media_id"])
        return scenes

    one = {"day/DSC_0.jpg": {f"day/DSC_{number}.jpg" for number in burst}}
    assert group() == one
    assert group(camera_model=cameras, taken_at=times) == one | {"w/c.jpg": {f"{name}/c.jpg" for name in "wxyz"}}


def test_doubtful_copies_are_confirmed_by_embeddings():
    """A pair that the hash alone does not decide stays if it is more alike than strangers; a sure one always does."""
    images = {f"tile {number}": image for number, image in enumerate(tiles())}
    images |= {
        "a": photo("china.jpg"),
        "a small": resize(photo("china.jpg"), 0.5, 0.5),
        "a cut": crop(photo("china.jpg"), 0.03, 0.08),
    }
    vectors = np.random.default_rng(1).normal(size=(len(images), 64)).astype(np.float32)
    vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)

    def copies():
        column = pa.FixedSizeListArray.from_arrays(vectors.astype(np.float16).ravel(), 64)
        return {row["media_id"]: row["cosine"] for row in find(images, clip_embedding=column)}

    assert set(copies()) == {"a", "a small"}
    vectors[-1] = vectors[-3]
    found = copies()
    assert (
        set(found) == {"a", "a small", "a cut"} and found["a"] is None and found["a cut"] == pytest.approx(1, abs=1e-2)
    )


def test_even_pictures_are_no_copies_of_each_other():
    assert (
        find({name: np.full((300, 400, 3), code, np.uint8) for name, code in (("a", 10), ("b", 10), ("c", 200))}) == []
    )
    assert find({}) == [] and find({"one": photo("china.jpg")}) == []


def test_a_few_new_photos_are_compared_with_those_of_the_last_run(monkeypatch):
    monkeypatch.setattr(earlier, "MOST_FRESH", 0.7)
    images = {f"tile {number}": image for number, image in enumerate(tiles())}
    images |= {f"{number} half": resize(image, 0.5, 0.5) for number, image in enumerate(tiles()[:6])}
    images |= {"b": photo("china.jpg"), "c": photo("china.jpg")}
    before = call(make_rows(images))
    del images["b"], images["tile 1"]
    images["tile 2"] = np.ascontiguousarray(images["tile 2"][:, ::-1])  # changed: mirrored now
    images |= {"a": photo("china.jpg"), "0 cut": crop(tiles()[0], 0.03, 0.08), "4 dark": tiles()[4] // 2}
    rows = make_rows(images)
    after, anew = call(rows, before), call(rows)
    assert after["duplicates"] == anew["duplicates"] and len(anew["duplicates"]) == 14
    ordered = [("media_id", "ascending"), ("other_media_id", "ascending")]
    assert after["copy_pairs"].sort_by(ordered) == anew["copy_pairs"].sort_by(ordered)
    without = before | {"copy_pairs": before["copy_pairs"].slice(0, 0)}
    assert len(call(rows, without)["duplicates"]) < 14  # what was there is not compared again
    assert call(rows, after)["duplicates"] == anew["duplicates"]


def test_thousands_of_the_same_picture_are_one_group(monkeypatch):
    images = {f"{number:04}": photo("flower.jpg") for number in range(40)}
    monkeypatch.setattr(search, "CROWDED", 5)
    rows = find(images | {"z": jpeg(photo("flower.jpg"), 20)})
    assert len(rows) == 41 and {row["group"] for row in rows} == {0}


def test_the_search_finds_what_comparing_all_finds():
    rng = np.random.default_rng(3)
    hashes = rng.integers(0, 256, (400, 4, 16), dtype=np.uint8)
    hashes[200:, 0] = hashes[:200, 2]
    flips = np.zeros((200, 128), np.uint8)
    for row, count in zip(flips, rng.integers(0, 20, 200), strict=True):
        row[rng.permutation(128)[:count]] = 1
    hashes[200:, 0] ^= np.packbits(flips, axis=1)
    pairs = search.find_near(hashes, 20)
    bits = np.unpackbits(hashes, axis=2).astype(np.int8)
    every = {
        (i, j)
        for window in range(4)
        for i, j in np.argwhere((bits[:, None, window] != bits[None, :, 0]).sum(2) <= 20).tolist()
        if i != j
    }
    found = set(zip(pairs.first.tolist(), pairs.second.tolist(), strict=True))
    assert {tuple(sorted(pair)) for pair in found} == {tuple(sorted(pair)) for pair in every}
    assert len(found) == len(pairs.first)
