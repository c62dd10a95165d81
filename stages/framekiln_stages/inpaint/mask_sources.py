"""Masks and boxes from columns or files as one mask of the frame's size, dilated and feathered.

Shapes: masks h w bool, h and w the frame's; alphas h w float32, 0 to 1.
"""

from collections.abc import Iterable, Mapping
from pathlib import Path, PurePosixPath

import cv2
import numpy as np
from numpy.typing import NDArray

from framekiln_stages.shared.masks import Mask

Alpha = NDArray[np.float32]
WHITE = 128  # least level, of 255, of a painted pixel in a mask file


def union(masks: Iterable[Mask], height: int, width: int) -> Mask:
    """Return the union of masks; a mask of another size is first scaled to the nearest pixel."""
    result = np.zeros((height, width), bool)
    for mask in masks:
        if mask.shape == result.shape:
            result |= mask
        else:
            result |= cv2.resize(mask.view(np.uint8), (width, height), interpolation=cv2.INTER_NEAREST_EXACT) > 0
    return result


def box_mask(boxes: Iterable[Mapping[str, float]], margin: float, height: int, width: int) -> Mask:
    """Return all pixels that any box touches.

    Args:
        boxes: x0, y0, x1, y1 in shares of width and height.
        margin: at each end, as a share of the box's side.
        height: of the frame in px.
        width: of the frame in px.
    """
    result = np.zeros((height, width), bool)
    for box in boxes:
        extra_x, extra_y = margin * (box["x1"] - box["x0"]), margin * (box["y1"] - box["y0"])
        x0, x1 = max(0.0, box["x0"] - extra_x), min(1.0, box["x1"] + extra_x)
        y0, y1 = max(0.0, box["y0"] - extra_y), min(1.0, box["y1"] + extra_y)
        result[int(y0 * height) : int(np.ceil(y1 * height)), int(x0 * width) : int(np.ceil(x1 * width))] = True
    return result


def read_mask(folder: Path, media_id: str, frame_index: int) -> Mask | None:
    """Read the mask of a frame from a folder of mask files; white pixels are painted, if opaque.

    It is the first existing file of `<media_id>/<frame_index, 8 digits>.png` (for videos), `<media_id without its
    suffix>.png` and `<media_id without its suffix>_mask.png`; None if all are missing.
    Raises ValueError: the media_id leads out of the folder, or the file is not a readable image.
    """
    name = PurePosixPath(media_id)
    if name.is_absolute() or ".." in name.parts:
        raise ValueError(f"{media_id!r} leads out of the folder of masks")
    stem = name.with_suffix("")
    for candidate in (name / f"{frame_index:08d}.png", f"{stem}.png", f"{stem}_mask.png"):
        if (path := folder / candidate).is_file():
            return _read_file(path)
    return None


def dilate(mask: Mask, px: int) -> Mask:
    """Add all pixels with centres at most this far from one in the mask."""
    if not px or not mask.any():
        return mask
    window = grow_window(bounding_window(mask), px, mask.shape)
    distance = cv2.distanceTransform((~mask[window]).view(np.uint8), cv2.DIST_L2, cv2.DIST_MASK_PRECISE)
    result = mask.copy()
    result[window] = distance <= px
    return result


def feather(mask: Mask, px: int) -> Alpha:
    """Return the weight of painted pixels, which rises from 0 over this many pixels inside the mask's edge.

    The frame's edge is no edge of the mask: there the weight is 1.
    """
    if not px:
        return mask.astype(np.float32)
    distance = cv2.distanceTransform(mask.view(np.uint8), cv2.DIST_L2, cv2.DIST_MASK_PRECISE)
    return np.minimum(distance / np.float32(px + 1), np.float32(1))


def bounding_window(mask: Mask) -> tuple[slice, slice]:
    """Return the rows and columns from the first to the last pixel of a mask that is not empty."""
    rows, columns = (np.flatnonzero(mask.any(axis=axis)) for axis in (1, 0))
    return slice(int(rows[0]), int(rows[-1]) + 1), slice(int(columns[0]), int(columns[-1]) + 1)


def grow_window(window: tuple[slice, slice], px: int, shape: tuple[int, ...]) -> tuple[slice, slice]:
    """Grow a window by this many pixels on each side, within the frame."""
    rows, columns = (
        slice(max(0, part.start - px), min(side, part.stop + px)) for part, side in zip(window, shape, strict=True)
    )
    return rows, columns


def _read_file(path: Path) -> Mask:
    image = cv2.imdecode(np.fromfile(path, np.uint8), cv2.IMREAD_UNCHANGED) if path.stat().st_size else None
    if image is None:
        raise ValueError(f"{path.name} in the folder of masks is not a readable image")
    if image.dtype == np.uint16:
        image = (image >> 8).astype(np.uint8)
    if image.ndim == 2:
        return image >= WHITE
    grey = cv2.cvtColor(np.ascontiguousarray(image[:, :, :3]), cv2.COLOR_BGR2GRAY) >= WHITE
    return grey & (image[:, :, 3] >= WHITE) if image.shape[2] == 4 else grey
