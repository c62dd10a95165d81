"""Copies of photos, made as copies come about: how many are found, and how many unrelated photos are taken for copies.

    FRAMEKILN_PHOTOS=FOLDER python -m benchmarks.accuracy --only duplicates

Each photo of the folder has one copy of a kind, in a collection of its own. Beside it is imagededup's phash with its
default distance of 10 bits, if that library is installed.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import cv2
import numpy as np
import pyarrow as pa
import pytest
from numpy.typing import NDArray

from benchmarks.accuracy import AccuracyFigure
from framekiln.contract.columns import DIGEST, Image, pack
from framekiln_stages.duplicates.fingerprint import Fingerprint
from framekiln_stages.duplicates.hashes import SIDE
from framekiln_stages.duplicates.search import add_equal, find_copies, find_lone

Change = Callable[[Image], Image]
Pair = tuple[int, int]
_PHASH_BITS = 10  # imagededup's default
_figure = partial(AccuracyFigure, "duplicates")


def _jpeg(image: Image, quality: int) -> Image:
    return np.asarray(cv2.imdecode(cv2.imencode(".jpg", image, [cv2.IMWRITE_JPEG_QUALITY, quality])[1], 1), np.uint8)


def _resize(image: Image, x: float, y: float) -> Image:
    return np.asarray(cv2.resize(image, None, fx=x, fy=y, interpolation=cv2.INTER_AREA), np.uint8)


def _crop(image: Image, part: float) -> Image:
    rng = np.random.default_rng(image.shape[0] * image.shape[1] + int(image[0, 0, 0]))
    top, left = (int(rng.integers(0, round(side * (1 - part)) + 1)) for side in image.shape[:2])
    return image[top : top + round(image.shape[0] * part), left : left + round(image.shape[1] * part)]


def _sign(image: Image) -> Image:
    height, width = image.shape[:2]
    signed = cv2.putText(image.copy(), "SAMPLE", (width // 10, height // 2), 0, width / 200, (255, 255, 255), 4)
    return np.asarray(cv2.addWeighted(signed, 0.5, image, 0.5, 0), np.uint8)


def _cover(image: Image) -> Image:
    covered, (height, width) = image.copy(), image.shape[:2]
    covered[: height // 8, : width // 5] = (200, 60, 30)
    return covered


def _frame(image: Image, tone: int, rows: float, columns: float) -> Image:
    edges = [(round(side * part),) * 2 for side, part in zip(image.shape, (rows, columns, 0), strict=True)]
    return np.pad(image, edges, constant_values=tone)


COPIES: Mapping[str, Change] = {
    "JPEG of quality 30": partial(_jpeg, quality=30),
    "JPEG of quality 10": partial(_jpeg, quality=10),
    "half size": partial(_resize, x=0.5, y=0.5),
    "short side of 64 px": lambda image: _resize(image, *[64 / min(image.shape[:2])] * 2),
    "stretched by a tenth": partial(_resize, x=1, y=0.9),
    "brighter by 1.4": lambda image: np.asarray(np.minimum(image * 1.4, 255), np.uint8),
    "gamma 1.8": lambda image: np.asarray(255 * (image / 255) ** 1.8, np.uint8),
    "nearly grey": lambda image: np.asarray(0.1 * image + 0.9 * image.mean(axis=2, keepdims=True), np.uint8),
    "blurred by 3 px": lambda image: np.asarray(cv2.GaussianBlur(image, (0, 0), 3), np.uint8),
    "large half-clear text": _sign,
    "a fifth by an eighth covered": _cover,
    "cropped by 5 % of both sides": partial(_crop, part=0.95),
    "cropped by 10 % of both sides": partial(_crop, part=0.9),
    "10 % of the width cut off": lambda image: image[:, image.shape[1] // 10 :],
    "black bars of an eighth": partial(_frame, tone=0, rows=0.125, columns=0),
    "grey frame of a tenth": partial(_frame, tone=128, rows=0.1, columns=0.1),
    "white frame of a tenth": partial(_frame, tone=255, rows=0.1, columns=0.1),
    "mirrored": lambda image: image[:, ::-1],
    "upside down": lambda image: image[::-1, ::-1],
    "turned to the left": np.rot90,
}


def measure() -> list[AccuracyFigure]:
    """Return the share of copies of each kind that are found, and unrelated pairs in all collections."""
    if "FRAMEKILN_PHOTOS" not in os.environ:
        pytest.skip("FRAMEKILN_PHOTOS names no folder of photos")
    files = sorted(path for path in Path(os.environ["FRAMEKILN_PHOTOS"]).rglob("*") if path.suffix.lower() == ".jpg")
    photos = [np.asarray(cv2.imread(str(path)), np.uint8) for path in files]
    figures, count = list[AccuracyFigure](), len(photos)
    methods: list[Any] = [_Ours(), *([_Phash()] if find_spec("imagededup") else [])]
    originals = [method.describe(photos) for method in methods]
    strangers = [set[Pair]() for _ in methods]
    for kind, change in COPIES.items():
        copies = [_jpeg(np.ascontiguousarray(change(photo)), 90) for photo in photos]
        shares = []
        for method, own, taken in zip(methods, originals, strangers, strict=True):
            pairs = method.find(own, method.describe(copies))
            hits = {(number, number + count) for number in range(count)} & pairs
            taken |= {(one % count, other % count) for one, other in pairs - hits}
            shares.append(len(hits) / count)
        figures.append(_figure(f"{count} photos, {kind}", "copies found", *_with_library(shares)))
    wrong = _with_library([len({frozenset(pair) for pair in taken}) for taken in strangers])
    every = f"{count * (count - 1) // 2:,} pairs of these photos, and of their copies"
    return [*figures, _figure(every, "unrelated photos taken for copies", *wrong, better="lower")]


def _with_library(values: Sequence[float]) -> tuple[float, float | None]:
    return values[0], values[1] if len(values) > 1 else None


class _Ours:
    def describe(self, photos: Sequence[Image]) -> pa.Table:
        """Return what the step reads of each photo, as runs decode it."""
        small = [_resize(photo, *[min(1.0, 224 / min(photo.shape[:2]))] * 2)[..., ::-1] for photo in photos]
        given = {
            "frame_224": pack([np.ascontiguousarray(image) for image in small]),
            **{name: pa.nulls(len(small), pa.float64()) for name in ("time_s", "fps")},
            "media_type": pa.array(["photo"] * len(small)),
            "digest": pa.nulls(len(small), DIGEST),
        }
        return Fingerprint()(pa.table(given))

    def find(self, originals: pa.Table, copies: pa.Table) -> set[Pair]:
        rows = pa.concat_tables([originals, copies])
        columns = [np.stack(_numbers(rows[name])) for name in ("picture_hash", "crop_hashes", "thumbnail")]
        hashes = np.concatenate(columns[:2], axis=1).reshape(len(rows), -1, 16)
        lone, place = find_lone(hashes)
        found = find_copies(hashes[lone], columns[2].reshape(-1, SIDE, SIDE)[lone])
        pairs = add_equal(found, lone, place)
        return _make_pairs(pairs.first, pairs.second)


class _Phash:
    def describe(self, photos: Sequence[Image]) -> NDArray[np.uint8]:
        library = import_module("imagededup.methods")
        hashes = [library.PHash().encode_image(image_array=photo[..., ::-1]) for photo in photos]
        return np.array([list(bytes.fromhex(text)) for text in hashes], np.uint8)

    def find(self, originals: NDArray[np.uint8], copies: NDArray[np.uint8]) -> set[Pair]:
        bits = np.unpackbits(np.concatenate((originals, copies)), axis=1).astype(np.int32)
        apart = bits @ (1 - bits).T
        return _make_pairs(*np.nonzero(np.triu(apart + apart.T <= _PHASH_BITS, 1)))


def _numbers(column: pa.ChunkedArray) -> list[NDArray[np.uint8]]:
    return [np.frombuffer(value, np.uint8) for value in column.to_pylist()]


def _make_pairs(first: NDArray[np.int64], second: NDArray[np.int64]) -> set[Pair]:
    return {(min(pair), max(pair)) for pair in zip(first.tolist(), second.tolist(), strict=True)}
