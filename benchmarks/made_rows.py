"""Photos made of a sample photo, as files, and as rows that packets bring to a stage, with other steps' columns."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import cv2
import numpy as np
import pyarrow as pa

from framekiln.contract.columns import SOURCE, Image, is_pixel_column, pack, reduction, short_side
from framekiln.contract.packet import HALO
from framekiln.media.samples import photos
from framekiln.planning.step import Step
from framekiln_stages.shared.masks import MASK, encode

Size = tuple[int, int]  # height and width, px

PHOTO: Size = (800, 1280)  # 1 MP
_LARGEST = 0.18  # radius of the first mask in shares of the sides: a tenth of the image, as a typical area to inpaint


def rows_for(step: Step, sizes: Sequence[Size], masks: int = 1) -> pa.Table:
    """Return decoded photos as in a packet, with the columns of other steps that this one reads.

    Args:
        step: of a plan.
        sizes: of the photos, one each.
        masks: in each photo, for steps that read them.
    """
    count, images = len(sizes), list(windows(sizes, with_a_face=step.name == "faces"))
    known = {
        "media_id": [f"{i}.jpg" for i in range(count)],
        "height": [size[0] for size in sizes],
        "width": [size[1] for size in sizes],
        "frame_index": [0] * count,
        "clip_index": [0] * count,
        "masks": [ellipses(size, masks) for size in sizes] if "masks" in step.stage.inputs else None,
    }
    types = {item.name: item.type for item in SOURCE} | {"masks": pa.list_(MASK)}
    names = dict.fromkeys(("media_id", "frame_index", "clip_index", "height", "width", *step.stage.inputs))
    columns = {
        name: pack([reduced(image, name) for image in images])
        if is_pixel_column(name)
        else pa.array(known[name], types[name])
        for name in names
    }
    return pa.table({**columns, HALO: pa.array([False] * count)})


def write_photos(folder: Path, count: int, size: Size = PHOTO, distinct: int | None = None) -> None:
    """Write JPEG photos; all after the first `distinct` ones are links to them."""
    folder.mkdir(parents=True)
    made = min(count, distinct or count)
    for i, image in enumerate(windows([size] * made)):
        cv2.imwrite(str(folder / f"{i:06}.jpg"), cv2.cvtColor(image, cv2.COLOR_RGB2BGR))
    for i in range(made, count):
        (folder / f"{i:06}.jpg").hardlink_to(folder / f"{i % made:06}.jpg")


def windows(sizes: Sequence[Size], *, with_a_face: bool = False) -> Iterator[Image]:
    """Yield windows of a sample photo, enlarged; with a face, a portrait covers the left part of each."""
    places = np.random.default_rng(0)
    for size in sizes:
        source = _enlarged(size)
        top, left = (places.integers(0, whole - part + 1) for whole, part in zip(source.shape[:2], size, strict=True))
        window = source[top : top + size[0], left : left + size[1]]
        yield np.hstack([portrait := _portrait(size), window[:, portrait.shape[1] :]]) if with_a_face else window


@cache
def _portrait(size: Size) -> Image:
    source = cv2.cvtColor(cv2.imread(str(photos()["grace_hopper.jpg"])), cv2.COLOR_BGR2RGB)
    factor = min(part / whole for part, whole in zip(size, source.shape[:2], strict=True))
    portrait = cv2.resize(source, None, fx=factor, fy=factor, interpolation=cv2.INTER_AREA)
    return np.asarray(np.pad(portrait, ((0, size[0] - portrait.shape[0]), (0, 0), (0, 0))), np.uint8)


@cache
def _enlarged(size: Size) -> Image:
    source = cv2.cvtColor(cv2.imread(str(photos()["china.jpg"])), cv2.COLOR_BGR2RGB)
    factor = max(3.0, *(part / whole for part, whole in zip(size, source.shape[:2], strict=True)))
    target = (round(source.shape[1] * factor), round(source.shape[0] * factor))
    return np.asarray(cv2.resize(source, target, interpolation=cv2.INTER_CUBIC), np.uint8)


def reduced(image: Image, column: str) -> Image:
    """Return an image at the size to which decoding reduces it for this column."""
    factor = reduction(image.shape[0], image.shape[1], short_side(column))
    size = (-(-image.shape[1] // factor), -(-image.shape[0] // factor))
    return image if factor == 1 else cv2.resize(image, size, interpolation=cv2.INTER_AREA)


@cache
def ellipses(size: Size, count: int) -> list[dict[str, Any]]:
    """Return masks as `segment` writes them: one in the middle, and smaller ones at other places."""
    places = np.random.default_rng(1)
    result = [_ellipse(size, 0.5, 0.5, _LARGEST)]
    for _ in range(count - 1):
        radius = places.uniform(0.03, 0.12)
        y, x = places.uniform(radius, 1 - radius, 2)
        result.append(_ellipse(size, y, x, radius))
    return result


def _ellipse(size: Size, y: float, x: float, radius: float) -> dict[str, Any]:
    rows, columns = np.ogrid[: size[0], : size[1]]
    inside = ((rows / size[0] - y) / radius) ** 2 + ((columns / size[1] - x) / radius) ** 2 < 1
    edges = (x - radius, y - radius, x + radius, y + radius)
    scores = {"predicted_iou": 0.9, "stability_score": 0.97, "point": {"x": float(x), "y": float(y)}}
    box = dict(zip(("x0", "y0", "x1", "y1"), map(float, edges), strict=True))
    return {"segmentation": encode([inside])[0], "area": int(inside.sum()), "box": box, **scores}
