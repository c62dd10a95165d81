"""Masks in tables: COCO's compressed run-length encoding, which pycocotools and every labelling tool read.

    from pycocotools import mask
    pixels = mask.decode(row["masks"][0]["segmentation"])     # h w uint8

A mask stores its own height and width, which may differ from its image's; scale it if they do.

Masks on a device are encoded there: only the starts of runs are downloaded. pycocotools writes the text
(common/maskApi.c, `rleToString`). It has groups of five bits, the lowest first, each as a printable character. From the
third run on it has the difference from the length before the last.

Shapes: n masks, h height and w width of a mask.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any

import cv2
import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from framekiln.contract import Area, Label
from framekiln.device import torch

Mask = NDArray[np.bool_]  # h w

BOX = pa.struct([(name, pa.float32()) for name in ("x0", "y0", "x1", "y1")])
POINT = pa.struct([("x", pa.float32()), ("y", pa.float32())])
SEGMENTATION = pa.struct([("size", pa.list_(pa.int32(), 2)), ("counts", pa.string())])
Segmentation = Mapping[str, Any]
"""A value of `SEGMENTATION`."""
MASK = pa.struct(
    [
        ("segmentation", SEGMENTATION),  # size is height, width
        ("area", pa.int32()),  # px of the mask's own height and width
        ("box", BOX),  # shares of width and height, 0 to 1
        ("predicted_iou", pa.float32()),  # the model's estimate for its own mask, about 0 to 1
        ("stability_score", pa.float32()),  # IoU of the masks at a higher and a lower threshold, 0 to 1
        ("point", POINT),  # the prompt of this mask, in shares; null for a box
    ]
)
"""One mask. Names are Segment Anything's; box and point are shares, as elsewhere."""


def landmark_boxes(points: NDArray[np.float32]) -> NDArray[np.float32]:
    """Return boxes around the landmarks inside the image: p 4, x0 y0 x1 y1 as fractions of width and height.

    `points`: p k 2 or more, x and y first, as fractions.
    """
    inside = points[:, :, :2].clip(0, 1)
    return np.concatenate([inside.min(axis=1), inside.max(axis=1)], axis=1)


def box_iou(a: NDArray[np.float64], b: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the IoU, p q, of boxes p 4 and q 4 as x0 y0 x1 y1 in any unit; 0 where neither has an area."""
    sides = np.minimum(a[:, None, 2:], b[None, :, 2:]) - np.maximum(a[:, None, :2], b[None, :, :2])
    intersection = sides.clip(0).prod(-1)
    areas = [(boxes[:, 2:] - boxes[:, :2]).prod(-1) for boxes in (a, b)]
    union = areas[0][:, None] + areas[1][None] - intersection
    return np.divide(intersection, union, out=np.zeros_like(intersection), where=union > 0)


def encode(masks: Sequence[Mask]) -> list[dict[str, Any]]:
    """Return masks of any sizes as values of `SEGMENTATION`."""
    from pycocotools import mask as coco

    codes = [coco.encode(np.asfortranarray(mask, np.uint8)) for mask in masks]
    return [{"size": list(code["size"]), "counts": code["counts"].decode("ascii")} for code in codes]


def decode(segmentation: Segmentation) -> Mask:
    """Return the mask of a value of `SEGMENTATION`."""
    from pycocotools import mask as coco

    return coco.decode(to_coco(segmentation)).astype(bool)


def mask_share(mask: Mapping[str, Any]) -> float:
    """Return the share of its image that a value of `MASK` covers, 0 to 1."""
    height, width = mask["segmentation"]["size"]
    return float(mask["area"]) / max(1, height * width)


def areas_and_boxes(segmentations: Sequence[Segmentation]) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
    """Measure masks by their run lengths, without decoding.

    Returns:
        Areas in px (n), and boxes as x0 y0 x1 y1 in px (n 4), all 0 where a mask is empty.
    """
    from pycocotools import mask as coco

    codes = [to_coco(segmentation) for segmentation in segmentations]
    if not codes:
        return np.zeros(0, np.int64), np.zeros((0, 4))
    boxes = coco.toBbox(codes).astype(np.float64)
    boxes[:, 2:] += boxes[:, :2]
    return coco.area(codes).astype(np.int64), boxes


def to_coco(segmentation: Segmentation) -> dict[str, Any]:
    """Return a value of `SEGMENTATION` in the form that pycocotools takes."""
    return {"size": list(segmentation["size"]), "counts": segmentation["counts"].encode("ascii")}


Ints = NDArray[np.int64]
_FIRST = 48  # the character of 0


def upsample_masks(
    logits: torch.Tensor, crop: tuple[int, int, int, int], size: tuple[int, int], threshold: float
) -> torch.Tensor:
    """Return masks at a larger size: n w h bool on the device, column by column, the order of run lengths.

    Logits are interpolated bilinearly, as in sam2/utils/transforms.py `postprocess_masks`.

    Args:
        logits: n 256 256, of a crop.
        crop: its place in px of the result, x0 y0 x1 y1.
        size: height and width of the result.
        threshold: of interpolated logits.
    """
    (x0, y0, x1, y1), (height, width) = crop, size
    columns = logits.transpose(1, 2)[:, None]
    part = torch.nn.functional.interpolate(columns, (x1 - x0, y1 - y0), mode="bilinear")[:, 0] > threshold
    if part.shape[1:] != (width, height):
        whole = torch.zeros((len(part), width, height), dtype=torch.bool, device=part.device)
        whole[:, x0:x1, y0:y1] = part
        part = whole
    return part


def encode_masks(masks: torch.Tensor) -> list[dict[str, Any]]:
    """Return masks (n w h bool, column by column) as values of `framekiln_stages.shared.masks.SEGMENTATION`."""
    from pycocotools import mask as coco

    count, width, height = masks.shape
    if not count:
        return []
    pixels = width * height
    rows, places = np.divmod(_run_starts(masks.reshape(count, pixels)), pixels)
    edges = np.searchsorted(rows, np.arange(count + 1))
    lengths = [np.diff(places[start:stop], prepend=0, append=pixels) for start, stop in pairwise(edges)]
    codes = coco.frPyObjects([{"size": [height, width], "counts": own} for own in lengths], height, width)
    return [{"size": code["size"], "counts": code["counts"].decode("ascii")} for code in codes]


def decode_starts(counts: str) -> Ints:
    """Return the starts of a mask's runs from its text, without the first run of false pixels."""
    codes = np.frombuffer(counts.encode("ascii"), np.uint8).astype(np.int64) - _FIRST
    lasts = np.flatnonzero(~codes & 0x20)  # last code of each number's groups
    firsts = np.append(0, lasts[:-1] + 1)
    shifts = 5 * (np.arange(len(codes)) - np.repeat(firsts, lasts - firsts + 1))
    values = np.add.reduceat((codes & 0x1F) << shifts, firsts)
    values -= ((codes[lasts] & 0x10) > 0) * (np.int64(2) << (shifts[lasts] + 4))
    values[1::2] = values[1::2].cumsum()
    values[2::2] = values[2::2].cumsum()
    return values.cumsum()[:-1]


def _run_starts(pixels: torch.Tensor) -> Ints:
    # a pixel that differs from the one before it; each mask's first pixel follows a false one
    changes = torch.cat([pixels[:, :1], pixels[:, 1:] != pixels[:, :-1]], dim=1).flatten()
    if changes.device.type == "cpu":
        return np.flatnonzero(changes.numpy())  # ten times as fast as torch's
    return changes.nonzero()[:, 0].to(torch.int32).cpu().numpy().astype(np.int64)


def pair_product(pairs: torch.Tensor) -> torch.Tensor:
    """Return the product of each pair, ... of ... 2, such as areas of sides.

    On a GPU, torch's `prod` is compiled at run time in each process's first call.
    """
    return pairs[..., 0] * pairs[..., 1]


COARSE = 200  # outlines in the report keep to the mask's edge within this part of its longer side: few corners


def mask_area(segmentation: Segmentation, colour: int) -> Area:
    """Draw a mask with its holes; outlines are off by up to 1/200 of its longer side."""
    mask = decode(segmentation)
    height, width = mask.shape
    rings = []
    for contour in cv2.findContours(mask.astype(np.uint8), cv2.RETR_CCOMP, cv2.CHAIN_APPROX_SIMPLE)[0]:
        corners = cv2.approxPolyDP(contour, max(height, width) / COARSE, True)[:, 0] + 0.5
        rings.append([(x, y) for x, y in (corners / (width, height)).tolist()])
    return Area(rings=rings, colour=colour)


def box_edges(box: Mapping[str, float]) -> list[tuple[float, float, float, float]]:
    """Draw the four sides of a box, as `Drawing.lines`."""
    x0, y0, x1, y1 = (box[side] for side in ("x0", "y0", "x1", "y1"))
    return [(x0, y0, x1, y0), (x1, y0, x1, y1), (x1, y1, x0, y1), (x0, y1, x0, y0)]


def box_label(box: Mapping[str, float], text: str) -> Label:
    """Place text in the upper left corner of a box."""
    return Label(x=max(0.0, box["x0"]), y=max(0.0, box["y0"]), text=text)
