"""A collection with planted copies, of which it is known what is a copy of what.

Photos are collages of sample photos: a background and a dozen pieces, each cut, turned and coloured anew. Some are
blurred or dark, as in any collection. Copies are made of the first ones, in the ways in which copies come about. Films
pan over collages, with a cut in the middle; the last two share a scene.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

import cv2
import numpy as np

from framekiln.contract.columns import Image
from framekiln.media.samples import photos
from framekiln.media.video.encoder import VideoEncoder

SIZE = (480, 640)  # of a photo: height and width, px
PIECES = 12
BLURRED, DARK = 10, 11  # each tenth photo is blurred, each eleventh is dark
FILM, FPS, SECONDS = (240, 320), 12, 8


def _scaled(image: Image, factor: float) -> Image:
    return np.asarray(cv2.resize(image, None, fx=factor, fy=factor, interpolation=cv2.INTER_AREA), np.uint8)


def _watermarked(image: Image) -> Image:
    text = cv2.putText(image.copy(), "SAMPLE", (60, 300), cv2.FONT_HERSHEY_SIMPLEX, 4, (255, 255, 255), 10, cv2.LINE_AA)
    return np.asarray(cv2.addWeighted(text, 0.4, image, 0.6, 0), np.uint8)


def _cropped(image: Image) -> Image:
    height, width = image.shape[:2]
    return np.ascontiguousarray(image[height // 20 : -height // 20, width // 20 : -width // 20])


COPIES: Mapping[str, tuple[Callable[[Image], Image], int]] = {  # a change, and the quality of the JPEG
    "JPEG of quality 30": (lambda image: image, 30),
    "half size": (lambda image: _scaled(image, 0.5), 90),
    "large half-clear text": (_watermarked, 90),
    "brighter by 1.3": (lambda image: np.asarray(np.minimum(image * 1.3, 255), np.uint8), 90),
    "cropped by a tenth of both sides": (_cropped, 90),
    "mirrored": (lambda image: np.ascontiguousarray(image[:, ::-1]), 90),
}


@dataclass(frozen=True, kw_only=True)
class MadeCollection:
    """What was written."""

    copies: Mapping[str, tuple[str, str]]  # each copy's original, and how it was made
    scenes: tuple[str, str]  # films that share a scene


def make_collection(folder: Path, count: int, copies: int, films: int) -> MadeCollection:
    """Write photos, of which some are copies of others, and films.

    Args:
        folder: that is made.
        count: photos in all.
        copies: of these, at most half.
        films: two at least.
    """
    for name in ("photos", "copies", "films"):
        (folder / name).mkdir(parents=True)
    rng = np.random.default_rng(0)
    sources = [np.asarray(cv2.imread(str(path)), np.uint8) for path in photos().values()]
    made: dict[str, tuple[str, str]] = {}
    for number in range(count - copies):
        image, name = _spoil(_collage(sources, rng, SIZE), number), f"photos/{number:05}.jpg"
        cv2.imwrite(str(folder / name), image, [cv2.IMWRITE_JPEG_QUALITY, 92])
        if number < copies:
            kind, (change, quality) = list(COPIES.items())[number % len(COPIES)]
            made[f"copies/{number:05}.jpg"] = name, kind
            cv2.imwrite(str(folder / f"copies/{number:05}.jpg"), change(image), [cv2.IMWRITE_JPEG_QUALITY, quality])
    wide = (FILM[0], 2 * FILM[1])
    scenes = [_collage(sources, rng, wide) for _ in range(2 * films - 1)]
    scenes.append(scenes[-2])
    for number in range(films):
        _write_film(folder / f"films/{number:02}.mp4", scenes[2 * number : 2 * number + 2])
    return MadeCollection(copies=made, scenes=(f"films/{films - 2:02}.mp4", f"films/{films - 1:02}.mp4"))


def _spoil(image: Image, number: int) -> Image:
    if number % BLURRED == BLURRED - 1:
        return np.asarray(cv2.GaussianBlur(image, (0, 0), 4), np.uint8)
    return np.asarray(image * 0.25, np.uint8) if number % DARK == DARK - 1 else image


def _collage(sources: list[Image], rng: np.random.Generator, size: tuple[int, int]) -> Image:
    """Return an image (h w 3, BGR) of a background and pieces with soft edges."""
    image = _cut(sources, rng, size).astype(np.float32)
    for _ in range(PIECES):
        height, width = (int(side * rng.uniform(0.15, 0.5)) for side in size)
        top, left = (int(rng.integers(0, whole - part)) for whole, part in zip(size, (height, width), strict=True))
        shape, piece = np.zeros((height, width), np.float32), _cut(sources, rng, (height, width))
        axes, angle = (int(width * 0.45), int(height * 0.45)), float(rng.uniform(0, 180))
        cv2.ellipse(shape, (width // 2, height // 2), axes, angle, 0, 360, 1.0, -1, cv2.LINE_AA)
        place = image[top : top + height, left : left + width]
        place += shape[..., None] * (piece - place)
    return image.clip(0, 255).astype(np.uint8)


def _cut(sources: list[Image], rng: np.random.Generator, size: tuple[int, int]) -> Image:
    """Return a window of a sample photo, turned and in other colours."""
    source = sources[int(rng.integers(len(sources)))]
    source = np.rot90(source, int(rng.integers(4)))[:, :: int(rng.choice((-1, 1)))]
    share = float(rng.uniform(0.3, 0.9))
    scale = min(whole * share / part for whole, part in zip(source.shape[:2], size, strict=True))
    height, width = (max(2, int(part * scale)) for part in size)
    top, left = (
        int(rng.integers(0, whole - part + 1)) for whole, part in zip(source.shape[:2], (height, width), strict=True)
    )
    window = np.ascontiguousarray(source[top : top + height, left : left + width])
    colours = rng.uniform(0.5, 1.2, 3)[rng.permutation(3)]
    return np.asarray((cv2.resize(window, size[::-1]) * colours).clip(0, 255), np.uint8)


def _write_film(path: Path, scenes: list[Image]) -> None:
    frames = SECONDS * FPS // len(scenes)
    with VideoEncoder(path, FILM, FPS) as film:
        for scene in scenes:
            for number in range(frames):
                left = FILM[1] * number // frames
                film.add(cv2.cvtColor(scene[:, left : left + FILM[1]], cv2.COLOR_BGR2RGB))
