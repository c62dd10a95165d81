"""NumPy arrays as Arrow structs, lists and vectors.

Shapes: n values, d numbers of a vector.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray


def struct_array(values: NDArray[np.floating[Any]], dtype: pa.StructType) -> pa.StructArray:
    """Return numbers as float32 structs; the last axis holds the members."""
    columns = values.reshape(-1, dtype.num_fields).T
    arrays = [pa.array(np.ascontiguousarray(column, np.float32)) for column in columns]
    return pa.StructArray.from_arrays(arrays, fields=list(dtype))


def struct_lists(values: NDArray[np.floating[Any]], dtype: pa.StructType) -> pa.FixedSizeListArray:
    """Return numbers (n k m) as n lists of k float32 structs with m members."""
    return pa.FixedSizeListArray.from_arrays(struct_array(values, dtype), values.shape[1])


def list_array(values: pa.Array, like: Sequence[Sequence[Any] | None]) -> pa.ListArray:
    """Return values in lists as long as those of `like`, null where those are; in all as many."""
    offsets = np.cumsum([0, *(len(items or ()) for items in like)])
    missing = pa.array([items is None for items in like], pa.bool_())
    return pa.ListArray.from_arrays(pa.array(offsets, pa.int32()), values, mask=missing)


def vector_array(vectors: NDArray[np.floating[Any]], dtype: str = "float16") -> pa.FixedSizeListArray:
    """Return vectors (n d) as lists of a fixed length, of float16 or float32."""
    return pa.FixedSizeListArray.from_arrays(pa.array(vectors.astype(dtype).reshape(-1)), vectors.shape[1])
