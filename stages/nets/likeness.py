"""How alike the results of two runs are: things in lists are paired, then compared.

Lists of one frame hold things (faces, people, masks) in an order that means little: a thing's partner is the one that
overlaps it most. Both tables have the same rows.

Shapes: n rows, p and q things of all rows of either side, d numbers of an embedding. Boxes are x0 y0 x1 y1.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from stages.nets.masks import BOX

PARTNERS = 0.5  # overlap from which two boxes or masks are of one thing: the customary threshold of PASCAL VOC and COCO
Floats = NDArray[np.float64]
Ints = NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class Things:
    """What the lists of a column hold, one after the other."""

    values: pa.StructArray  # p
    starts: Ints  # n + 1; a null list holds nothing

    @classmethod
    def of(cls, column: pa.ChunkedArray) -> Things:
        """A column of lists of structs."""
        lengths = pc.fill_null(pc.list_value_length(column), 0).to_numpy()
        values = pc.list_flatten(column)
        whole = values.combine_chunks() if isinstance(values, pa.ChunkedArray) else values
        return cls(whole, np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64))

    def __len__(self) -> int:
        return len(self.values)

    @property
    def boxes(self) -> Floats:
        """P 4; a missing one is NaN."""
        parts = [pc.struct_field(self.values, ["box", item.name]) for item in BOX]
        return np.stack([part.to_numpy(zero_copy_only=False).astype(np.float64) for part in parts], axis=1)

    def vectors(self, name: str) -> Floats | None:
        """P d of a list of numbers in each thing; None where there is none, or some are missing."""
        if name not in [item.name for item in self.values.type] or not len(self):
            return None
        column = pc.struct_field(self.values, name)
        found = pc.list_flatten(column).to_numpy(zero_copy_only=False).astype(np.float64)
        return None if column.null_count else found.reshape(len(self), -1)

    def rows(self, other: Things) -> Iterator[tuple[slice, slice]]:
        """Row by row, where the things of both lie; rows where either has none are left out."""
        for i in range(len(self.starts) - 1):
            mine, others = (slice(int(one.starts[i]), int(one.starts[i + 1])) for one in (self, other))
            if mine.stop > mine.start and others.stop > others.start:
                yield mine, others


@dataclass(frozen=True, eq=False)
class Pairs:
    """Things of one side with their partners of the other."""

    first: Ints  # m
    second: Ints  # m
    overlap: Floats  # m, 0 to 1
    found: float  # share of all things that have a partner, 1 where there are none

    def mean_overlap(self) -> float:
        """1 where there are no pairs."""
        return float(self.overlap.mean()) if len(self.overlap) else 1.0


def by_boxes(first: Things, second: Things) -> Pairs:
    """Partners by their boxes."""
    a, b = first.boxes, second.boxes
    return _paired(first, second, ((mine, others, overlaps(a[mine], b[others])) for mine, others in first.rows(second)))


def by_masks(first: Things, second: Things) -> Pairs:
    """Partners by their masks; by boxes in frames whose masks are of two sizes."""
    boxes = first.boxes, second.boxes
    codes = [pc.struct_field(one.values, "segmentation").to_pylist() for one in (first, second)]

    def each() -> Iterator[tuple[slice, slice, Floats]]:
        for mine, others in first.rows(second):
            found = mask_overlaps(codes[0][mine], codes[1][others])
            yield mine, others, overlaps(boxes[0][mine], boxes[1][others]) if found is None else found

    return _paired(first, second, each())


def _paired(first: Things, second: Things, rows: Iterator[tuple[slice, slice, Floats]]) -> Pairs:
    found: list[tuple[int, int, float]] = []
    for mine, others, table in rows:
        left = np.nan_to_num(table)
        while left.size and (best := float(left.max())) >= PARTNERS:
            i, j = np.unravel_index(int(left.argmax()), left.shape)
            found.append((mine.start + int(i), others.start + int(j), best))
            left[i, :] = left[:, j] = 0
    all_of_them = sum(len(one) - one.values.null_count for one in (first, second))
    numbers = np.array([pair[:2] for pair in found], np.int64).reshape(-1, 2)
    share = 2 * len(found) / all_of_them if all_of_them else 1.0
    return Pairs(numbers[:, 0], numbers[:, 1], np.array([pair[2] for pair in found]), share)


def overlaps(a: Floats, b: Floats) -> Floats:
    """P q, intersection over union of boxes (p 4, q 4); of two without area 1 where they are equal, else 0."""
    low, high = np.maximum(a[:, None, :2], b[None, :, :2]), np.minimum(a[:, None, 2:], b[None, :, 2:])
    inside = np.clip(high - low, 0, None).prod(2)
    areas = [(one[:, 2:] - one[:, :2]).prod(1) for one in (a, b)]
    union = areas[0][:, None] + areas[1][None] - inside
    equal = (a[:, None] == b[None]).all(2)
    result: Floats = np.where(equal, 1.0, np.divide(inside, union, out=np.zeros_like(inside), where=union > 0))
    return result


def mask_overlaps(a: list[dict[str, Any]], b: list[dict[str, Any]]) -> Floats | None:
    """P q, intersection over union of masks as COCO codes them; None where they are of two sizes."""
    from pycocotools import mask as coco

    if len({tuple(one["size"]) for one in (*a, *b)}) != 1:
        return None
    codes = [[{"size": list(one["size"]), "counts": one["counts"].encode()} for one in side] for side in (a, b)]
    found: Floats = np.asarray(coco.iou(codes[0], codes[1], [0] * len(b)), np.float64).reshape(len(a), len(b))
    return found


def cosines(a: Floats | None, b: Floats | None) -> Floats:
    """M, of two sets of vectors (m d); 0 where they are of two lengths, and so of two networks."""
    if a is None or b is None:
        return np.zeros(0)
    if a.shape[1] != b.shape[1]:
        return np.zeros(len(a))
    lengths = np.linalg.norm(a, axis=1) * np.linalg.norm(b, axis=1)
    result: Floats = np.divide((a * b).sum(1), lengths, out=np.zeros(len(a)), where=lengths > 0)
    return result


def both_vectors(a: pa.ChunkedArray, b: pa.ChunkedArray) -> tuple[Floats, Floats]:
    """Vectors (m d each) of the rows that have one on both sides, of columns of lists of numbers."""
    both = pc.and_(a.is_valid(), b.is_valid())
    m = pc.sum(both).as_py() or 0
    found = [pc.list_flatten(one.filter(both)).to_numpy().astype(np.float64) for one in (a, b)]
    return (found[0].reshape(m, -1), found[1].reshape(m, -1)) if m else (np.zeros((0, 1)), np.zeros((0, 1)))


def cosine_figures(found: Floats) -> dict[str, float]:
    """Mean and least; nothing where there are none."""
    if not len(found):
        return {}
    return {"embedding_cosine_mean": float(found.mean()), "embedding_cosine_min": float(found.min())}


def numbers(column: pa.ChunkedArray) -> Floats:
    """N, NaN where null."""
    result: Floats = pc.cast(column, pa.float64(), safe=False).to_numpy().astype(np.float64)
    return result


def mean_distance(a: Floats, b: Floats, *, period: float = 0.0) -> float:
    """Mean absolute difference where both are known, 0 where none are; on a circle where there is a period."""
    off = np.abs(a - b)
    off = off[np.isfinite(off)]
    off = np.minimum(off % period, period - off % period) if period else off
    return float(off.mean()) if len(off) else 0.0


def share_equal(a: pa.ChunkedArray, b: pa.ChunkedArray) -> float:
    """Share of rows with one value, where two nulls are one; 1 where there are no rows."""
    pairs = list(zip(a.to_pylist(), b.to_pylist(), strict=True))
    return sum(x == y for x, y in pairs) / len(pairs) if pairs else 1.0
