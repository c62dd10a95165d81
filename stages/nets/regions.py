"""Which pixels are painted over: masks and boxes of any origin as one mask of the frame's size, dilated and feathered.

Shapes: masks h w bool, h and w the frame's; alphas h w float32, 0 to 1.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path, PurePosixPath
from typing import Any

import cv2
import numpy as np
from numpy.typing import NDArray

from stages.nets.masks import Mask, decode

Alpha = NDArray[np.float32]
WHITE = 128  # of 255: from here on a pixel of a mask file is to be painted


def union(masks: Iterable[Mask], height: int, width: int) -> Mask:
    """All pixels of any mask; a mask of another size is first scaled to the nearest pixel."""
    result = np.zeros((height, width), bool)
    for mask in masks:
        result |= mask if mask.shape == result.shape else _resized(mask, height, width)
    return result


def decoded(values: Sequence[Mapping[str, Any]]) -> Iterator[Mask]:
    """The masks of values of `MASK` or of `SEGMENTATION`."""
    for value in values:
        yield decode(value.get("segmentation", value))


def area(value: Mapping[str, Any]) -> float:
    """The share of its picture that a value of `MASK` covers, 0 to 1."""
    height, width = value["segmentation"]["size"]
    return float(value["area"]) / max(1, height * width)


def of_boxes(boxes: Iterable[Mapping[str, float]], margin: float, height: int, width: int) -> Mask:
    """All pixels that any box touches.

    Args:
        boxes: x0, y0, x1, y1 in shares of width and height.
        margin: by how much of its side a box is widened at each end.
        height: of the frame in px.
        width: likewise.
    """
    result = np.zeros((height, width), bool)
    for box in boxes:
        (x0, x1), (y0, y1) = (_widened(box[f"{axis}0"], box[f"{axis}1"], margin) for axis in "xy")
        result[int(y0 * height) : int(np.ceil(y1 * height)), int(x0 * width) : int(np.ceil(x1 * width))] = True
    return result


def of_file(folder: Path, media_id: str, frame_index: int) -> Mask | None:
    """The mask of a frame in a folder of mask files: white, and where there is an alpha channel opaque, is painted.

    The first that exists of `<media_id>/<frame_index, 8 digits>.png`, which serves videos, `<media_id without its
    suffix>.png` and `<media_id without its suffix>_mask.png`; None where there is none.

    Raises:
        ValueError: the media_id leads out of the folder, or the file is no image.
    """
    name = PurePosixPath(media_id)
    if name.is_absolute() or ".." in name.parts:
        raise ValueError(f"{media_id!r} leads out of the folder of masks")
    stem = name.with_suffix("")
    for candidate in (name / f"{frame_index:08d}.png", f"{stem}.png", f"{stem}_mask.png"):
        if (path := folder / candidate).is_file():
            return _read(path)
    return None


def dilate(mask: Mask, px: int) -> Mask:
    """A mask and all pixels whose centres are at most so many pixels away from one of its own."""
    if not px or not mask.any():
        return mask
    window = spread(bounds(mask), px, mask.shape)
    distance = cv2.distanceTransform((~mask[window]).view(np.uint8), cv2.DIST_L2, cv2.DIST_MASK_PRECISE)
    result = mask.copy()
    result[window] = distance <= px
    return result


def feather(mask: Mask, px: int) -> Alpha:
    """How much of a painted pixel counts: rises over so many pixels inside the mask's edge, 0 outside.

    The edge of the frame is none of the mask: there the answer counts in full.
    """
    if not px:
        return mask.astype(np.float32)
    distance = cv2.distanceTransform(mask.view(np.uint8), cv2.DIST_L2, cv2.DIST_MASK_PRECISE)
    return np.minimum(distance / np.float32(px + 1), np.float32(1))


def bounds(mask: Mask) -> tuple[slice, slice]:
    """The rows and columns from the first to the last pixel of a mask that has one."""
    rows, columns = (np.flatnonzero(mask.any(axis=axis)) for axis in (1, 0))
    return slice(int(rows[0]), int(rows[-1]) + 1), slice(int(columns[0]), int(columns[-1]) + 1)


def spread(window: tuple[slice, slice], px: int, shape: tuple[int, ...]) -> tuple[slice, slice]:
    """A window with so many more pixels on each side, as far as the frame reaches."""
    rows, columns = (
        slice(max(0, part.start - px), min(side, part.stop + px)) for part, side in zip(window, shape, strict=True)
    )
    return rows, columns


def _resized(mask: Mask, height: int, width: int) -> Mask:
    return cv2.resize(mask.view(np.uint8), (width, height), interpolation=cv2.INTER_NEAREST_EXACT) > 0


def _widened(low: float, high: float, margin: float) -> tuple[float, float]:
    more = margin * (high - low)
    return max(0.0, low - more), min(1.0, high + more)


def _read(path: Path) -> Mask:
    image = cv2.imdecode(np.fromfile(path, np.uint8), cv2.IMREAD_UNCHANGED) if path.stat().st_size else None
    if image is None:
        raise ValueError(f"{path.name} in the folder of masks is no image that can be read")
    if image.dtype == np.uint16:
        image = (image >> 8).astype(np.uint8)
    if image.ndim == 2:
        return image >= WHITE
    grey = cv2.cvtColor(np.ascontiguousarray(image[:, :, :3]), cv2.COLOR_BGR2GRAY) >= WHITE
    return grey & (image[:, :, 3] >= WHITE) if image.shape[2] == 4 else grey
