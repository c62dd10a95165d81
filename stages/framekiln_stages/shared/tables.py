"""Tables of several stages: conventions that descriptions state, NumPy arrays as Arrow values, and positions of shots.

Shapes: n values, d numbers of a vector.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

FRACTIONS = "fractions of the image's width and height from its top left corner"
"""Convention of points: x to the right, y downwards."""
BOXES = f"box: x0 left, y0 top, x1 right, y1 bottom, in {FRACTIONS}"
RUN_LENGTHS = (
    "COCO's compressed run lengths: pixels column by column from the top left, background first; size: height, width "
    "of the mask"
)
UNIT_LENGTH = "L2-normalised to length 1, so that a dot product is a cosine"
BODY = (
    "33 landmarks in the order of MediaPipe's PoseLandmark (0 nose, 11 left shoulder, 12 right shoulder, left and "
    f"right as the person's own): x, y in {FRACTIONS}, outside of 0 to 1 where they leave the image; z in widths of "
    "the image, 0 at the hips, negative towards the camera; visibility and presence 0 to 1, the network's"
)
NETWORK = b"network"
"""Metadata key of `faces` for the recognition network; embeddings of two networks cannot be compared."""
SOUND_WINDOW = 512
"""Samples of one window of sound in `voice`: 32 ms hold two periods of the lowest voice."""


def struct_array(values: NDArray[np.floating[Any]], dtype: pa.StructType) -> pa.StructArray:
    """Return numbers as float32 structs; the last axis holds the members."""
    columns = values.reshape(-1, dtype.num_fields).T
    arrays = [pa.array(np.ascontiguousarray(column, np.float32)) for column in columns]
    return pa.StructArray.from_arrays(arrays, fields=list(dtype))


def struct_lists(values: NDArray[np.floating[Any]], dtype: pa.StructType) -> pa.FixedSizeListArray:
    """Return numbers (n k m) as n lists of k float32 structs with m members."""
    return pa.FixedSizeListArray.from_arrays(struct_array(values, dtype), values.shape[1])


def list_array(values: pa.Array, like: Sequence[Sequence[Any] | None]) -> pa.ListArray:
    """Return values in lists as long as those of `like`, null where it is; their total lengths must agree."""
    offsets = np.cumsum([0, *(len(items or ()) for items in like)])
    missing = pa.array([items is None for items in like], pa.bool_())
    return pa.ListArray.from_arrays(pa.array(offsets, pa.int32()), values, mask=missing)


def vector_array(vectors: NDArray[Any], dtype: str = "float16") -> pa.FixedSizeListArray:
    """Return vectors (n d) as lists of a fixed length; `dtype`: of NumPy."""
    return pa.FixedSizeListArray.from_arrays(pa.array(vectors.astype(dtype).reshape(-1)), vectors.shape[1])


def spans(rows: pa.Table, shots: pa.Table) -> list[tuple[int, int, int]]:
    """Return the number, first position and end of each shot that has rows.

    `rows`: at least one row of one file, sorted by `frame_index`. `shots`: the file's rows of table `shots`, in any
    order.
    Raises ValueError: the file has no shots.
    """
    if not shots.num_rows:
        raise ValueError(f"no shots are known of {rows['media_id'][0].as_py()!r}; its entry in errors/ says why")
    shots = shots.sort_by("first_frame")
    index = rows["frame_index"].to_numpy()
    edges = [*index.searchsorted(shots["first_frame"].to_numpy()).tolist(), len(index)]
    shots_with_edges = zip(shots["shot"].to_pylist(), edges[:-1], edges[1:], strict=True)
    return [(shot, start, stop) for shot, start, stop in shots_with_edges if stop > start]
