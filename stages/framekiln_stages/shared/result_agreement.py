"""Agreement between the results of two runs: objects in lists are matched first, then compared.

One frame's objects (faces, people, masks) are stored in a list whose order means little. An object's match is the
object of the other run with the largest overlap. Both tables have the same rows.

Shapes: n rows, p and q objects in all rows of either run, m matches, d values of an embedding. Boxes are x0 y0 x1 y1.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from framekiln_stages.shared import masks
from framekiln_stages.shared.masks import BOX, Segmentation, to_coco

MATCH_IOU = 0.5  # least IoU of two boxes or masks of one object: the customary threshold of PASCAL VOC and COCO
Floats = NDArray[np.float64]
Ints = NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class Detections:
    """The objects in a column of lists, one after the other."""

    values: pa.StructArray  # p
    starts: Ints  # n + 1; a null list holds no object

    @classmethod
    def from_column(cls, column: pa.ChunkedArray) -> "Detections":
        """Read a column of lists of structs."""
        lengths = pc.fill_null(pc.list_value_length(column), 0).to_numpy()
        flat = pc.list_flatten(column)
        values = flat.combine_chunks() if isinstance(flat, pa.ChunkedArray) else flat
        return cls(values, np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64))

    def __len__(self) -> int:
        return len(self.values)

    @property
    def boxes(self) -> Floats:
        """Boxes, p 4; a missing one is NaN."""
        sides = [pc.struct_field(self.values, ["box", side.name]) for side in BOX]
        return np.stack([side.to_numpy(zero_copy_only=False).astype(np.float64) for side in sides], axis=1)

    def vectors(self, name: str) -> Floats | None:
        """Return a list of numbers of each object, p d; None if the member is missing, or some lists are."""
        if name not in [member.name for member in self.values.type] or not len(self):
            return None
        column = pc.struct_field(self.values, name)
        numbers = pc.list_flatten(column).to_numpy(zero_copy_only=False).astype(np.float64)
        return None if column.null_count else numbers.reshape(len(self), -1)

    def shared_rows(self, other: "Detections") -> Iterator[tuple[slice, slice]]:
        """Yield, row by row, the positions of both runs' objects; skip rows if either has none."""
        for i in range(len(self.starts) - 1):
            own, others = (slice(int(run.starts[i]), int(run.starts[i + 1])) for run in (self, other))
            if own.stop > own.start and others.stop > others.start:
                yield own, others


@dataclass(frozen=True, eq=False)
class Matches:
    """Objects of one run with their counterparts in the other."""

    first: Ints  # m
    second: Ints  # m
    iou: Floats  # m, 0 to 1
    share: float  # share of all objects with a match; 1 without objects

    def mean_iou(self) -> float:
        """Return the mean overlap; 1 without matches."""
        return mean_or(1.0, self.iou)

    def cosines(self, a: Floats | None, b: Floats | None) -> Floats:
        """Return the cosines (m) of both runs' vectors of all objects (p d, q d); none if a run has none."""
        return np.zeros(0) if a is None or b is None else cosine_similarities(a[self.first], b[self.second])


def match_by_boxes(first: Detections, second: Detections) -> Matches:
    """Match objects by their boxes."""
    a, b = first.boxes, second.boxes
    tables = ((own, others, box_iou(a[own], b[others])) for own, others in first.shared_rows(second))
    return _match_greedily(first, second, tables)


def match_by_masks(first: Detections, second: Detections) -> Matches:
    """Match objects by their masks, or by boxes in frames with masks of two sizes."""
    a, b = first.boxes, second.boxes
    codes = [pc.struct_field(run.values, "segmentation").to_pylist() for run in (first, second)]

    def tables() -> Iterator[tuple[slice, slice, Floats]]:
        for own, others in first.shared_rows(second):
            iou = mask_iou(codes[0][own], codes[1][others])
            yield own, others, box_iou(a[own], b[others]) if iou is None else iou

    return _match_greedily(first, second, tables())


def _match_greedily(first: Detections, second: Detections, tables: Iterator[tuple[slice, slice, Floats]]) -> Matches:
    """Match the objects of each row, the largest overlap first."""
    pairs: list[tuple[int, int, float]] = []
    for own, others, table in tables:
        remaining = np.nan_to_num(table)
        while remaining.size and (best := float(remaining.max())) >= MATCH_IOU:
            i, j = np.unravel_index(int(remaining.argmax()), remaining.shape)
            pairs.append((own.start + int(i), others.start + int(j), best))
            remaining[i, :] = remaining[:, j] = 0
    objects = sum(len(run) - run.values.null_count for run in (first, second))
    ends = np.array([pair[:2] for pair in pairs], np.int64).reshape(-1, 2)
    share = 2 * len(pairs) / objects if objects else 1.0
    return Matches(ends[:, 0], ends[:, 1], np.array([pair[2] for pair in pairs]), share)


def box_iou(a: Floats, b: Floats) -> Floats:
    """Return the IoU, p q, of boxes p 4 and q 4. Two boxes without area have 1 if they are equal, else 0."""
    equal = (a[:, None] == b[None]).all(2)
    return np.where(equal, 1.0, masks.box_iou(a, b))


def mask_iou(a: list[Segmentation], b: list[Segmentation]) -> Floats | None:
    """Return the IoU, p q, of masks as run lengths; None if they have two sizes."""
    from pycocotools import mask as coco

    if len({tuple(mask["size"]) for mask in (*a, *b)}) != 1:
        return None
    codes = [[to_coco(mask) for mask in run] for run in (a, b)]
    return np.asarray(coco.iou(*codes, [0] * len(b)), np.float64).reshape(len(a), len(b))


def cosine_similarities(a: Floats, b: Floats) -> Floats:
    """Return the cosines (m) of two sets of vectors (m d); 0 for different lengths, which come from two networks."""
    if a.shape[1] != b.shape[1]:
        return np.zeros(len(a))
    lengths = np.linalg.norm(a, axis=1) * np.linalg.norm(b, axis=1)
    return np.divide((a * b).sum(1), lengths, out=np.zeros(len(a)), where=lengths > 0)


def cosine_figures(cosines: Floats) -> dict[str, float]:
    """Return the mean and the least cosine; nothing without any."""
    if not len(cosines):
        return {}
    return {"embedding_cosine_mean": float(cosines.mean()), "embedding_cosine_min": float(cosines.min())}


def vectors_in_both(a: pa.ChunkedArray, b: pa.ChunkedArray) -> tuple[Floats, Floats]:
    """Return the vectors (m d each) of rows that have one in both columns of lists of numbers."""
    both = pc.and_(a.is_valid(), b.is_valid())
    m = pc.sum(both).as_py() or 0
    flat = [pc.list_flatten(column.filter(both)).to_numpy().astype(np.float64) for column in (a, b)]
    return (flat[0].reshape(m, -1), flat[1].reshape(m, -1)) if m else (np.zeros((0, 1)), np.zeros((0, 1)))


def float_values(column: pa.ChunkedArray) -> Floats:
    """Return a column as n floats, NaN where null."""
    return np.asarray(pc.cast(column, pa.float64(), safe=False).to_numpy(), np.float64)


def mean_distance(a: Floats, b: Floats, *, period: float = 0.0) -> float:
    """Return the mean absolute difference of values known on both sides, 0 without any; with a period, on a circle."""
    off = np.abs(a - b)
    off = off[np.isfinite(off)]
    off = np.minimum(off % period, period - off % period) if period else off
    return mean_or(0.0, off)


def mean_or(default: float, values: NDArray[Any]) -> float:
    """Return the mean of values, or the default if there are none."""
    return float(values.mean()) if len(values) else default


def unmatched_share(a: Floats, b: Floats) -> float:
    """Return the share of rows with a value (not NaN) in only one of two runs; 0 without rows."""
    return mean_or(0.0, np.isnan(a) != np.isnan(b))


def equal_share(a: pa.ChunkedArray, b: pa.ChunkedArray) -> float:
    """Return the share of rows with equal values, where null equals null; 1 without rows."""
    pairs = list(zip(a.to_pylist(), b.to_pylist(), strict=True))
    return sum(x == y for x, y in pairs) / len(pairs) if pairs else 1.0
