"""Choices among the rows that meet the conditions: so many of each group, balanced, or as unlike as can be.

Shapes: n rows in their order, the best first; d numbers of a vector.
"""

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

Ints = NDArray[np.int64]


def rank_in_group(groups: Ints) -> Ints:
    """Return the number of each row (n) among the rows of its group, from 0.

    >>> rank_in_group(np.array([7, 7, 3, 7])).tolist()
    [0, 1, 0, 2]
    """
    order = np.argsort(groups, kind="stable")
    grouped = groups[order]
    starts = np.flatnonzero(np.concatenate(([True], grouped[1:] != grouped[:-1]))) if len(groups) else order
    ranks = np.empty(len(groups), np.int64)
    ranks[order] = np.arange(len(groups)) - np.repeat(starts, np.diff(np.append(starts, len(groups))))
    return ranks


def number_groups(column: pa.ChunkedArray) -> Ints:
    """Return a number (n) for each distinct value of any type; null is a value of its own."""
    texts = (
        column
        if pa.types.is_primitive(column.type) or pa.types.is_string(column.type)
        else pa.chunked_array([[str(value) for value in column.to_pylist()]])
    )
    codes = pc.dictionary_encode(texts, null_encoding="encode")
    return np.asarray(codes.combine_chunks().indices.to_numpy(), np.int64)


def balance(groups: Ints, limit: int | None) -> Ints:
    """Return positions of rows such that each group has the same number, as far as it has rows.

    `limit`: rows in all, taken in turns, so that small groups are whole. None: each group has as many as the smallest.

    >>> balance(np.array([0, 0, 0, 1, 1, 2]), 5).tolist(), balance(np.array([0, 0, 0, 1, 1]), None).tolist()
    ([0, 1, 3, 4, 5], [0, 1, 3, 4])
    """
    ranks = rank_in_group(groups)
    if limit is None:
        return np.flatnonzero(ranks < np.bincount(np.unique(groups, return_inverse=True)[1]).min(initial=len(groups)))
    return np.sort(np.argsort(ranks, kind="stable")[:limit])


def spread_out(vectors: NDArray[np.float32], count: int) -> Ints:
    """Return positions of `count` rows that are as unlike each other as can be, in the order of their choice.

    The first row is the first choice. Each next one is the row that is farthest from all chosen (Gonzalez 1985: its
    farthest row is at most twice as far as in the best choice). `vectors`: n d; rows of zeros come last.
    """
    lengths = np.linalg.norm(vectors, axis=1, keepdims=True)
    unit = np.divide(vectors, lengths, out=np.zeros_like(vectors), where=lengths > 0)
    nearest = np.where(lengths[:, 0] > 0, -2.0, 2.0).astype(np.float32)  # largest cosine to a chosen row
    chosen: list[int] = []
    for _ in range(min(count, len(vectors))):
        at = int(nearest.argmin())
        chosen.append(at)
        nearest = np.maximum(nearest, unit @ unit[at])
        nearest[at] = np.inf
    return np.array(chosen, np.int64)
