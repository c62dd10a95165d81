"""An annotation as every format takes it: one thing that was found on one picture.

Coordinates are px of the picture as shown, x to the right and y downwards from its top left corner; the left edge of
the first pixel is 0.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

Mask = NDArray[np.uint8]  # h w, 0 or 1
Box = tuple[float, float, float, float]  # x0, y0, x1, y1
ABSENT, HIDDEN, SEEN = 0, 1, 2
"""COCO's visibility of a keypoint."""


@dataclass(frozen=True, kw_only=True)
class Category:
    """A class of annotations; `keypoints` are their names, `skeleton` pairs of their numbers from 0."""

    name: str
    keypoints: tuple[str, ...] = ()
    skeleton: tuple[tuple[int, int], ...] = ()


@dataclass(frozen=True, kw_only=True)
class Annotation:
    """One box, mask, pose, face or moment of a track."""

    kind: str  # boxes, masks, poses, faces or tracks
    source: str  # the column of `frames/` or the table that it is from
    category: Category
    box: Box
    score: float | None = None
    mask: Mapping[str, Any] | None = None  # COCO's compressed run lengths, at a size of their own
    keypoints: Sequence[tuple[float, float, int]] = ()  # x, y, visibility: one for each of the category, or none
    track: tuple[str, int] | None = None  # the table that follows it, and its number there, of its file
    identity: int | None = None
    attributes: Mapping[str, Any] = field(default_factory=dict)  # numbers, texts and flags
    embedding: Sequence[float] | None = None

    def scaled(self, x: float, y: float) -> "Annotation":
        """Return the annotation on a picture that is `x` times as wide and `y` times as high."""
        x0, y0, x1, y1 = self.box
        points = [(px * x, py * y, seen) for px, py, seen in self.keypoints]
        return replace(self, box=(x0 * x, y0 * y, x1 * x, y1 * y), keypoints=points)


def decode_mask(mask: Mapping[str, Any], height: int, width: int) -> Mask:
    """Return a mask (height width) at the size of its picture; one of another size is scaled by nearest pixels."""
    from pycocotools import mask as coco

    own_height, own_width = mask["size"]
    pixels: Mask = coco.decode({"size": [own_height, own_width], "counts": mask["counts"].encode()})
    if (own_height, own_width) == (height, width):
        return pixels
    rows = ((np.arange(height) + 0.5) * own_height / height).astype(int)
    columns = ((np.arange(width) + 0.5) * own_width / width).astype(int)
    return pixels[rows[:, None], columns]


def scale_mask(mask: Mapping[str, Any], height: int, width: int) -> dict[str, Any]:
    """Return a mask's run lengths at the size of its picture; untouched where it has that size."""
    if list(mask["size"]) == [height, width]:
        return {"size": [height, width], "counts": mask["counts"]}
    from pycocotools import mask as coco

    code = coco.encode(np.asfortranarray(decode_mask(mask, height, width)))
    return {"size": [height, width], "counts": code["counts"].decode("ascii")}
