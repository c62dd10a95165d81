"""Nearest neighbours by cosine, in blocks of matrix products, with a bound on the rounding error.

Shapes: n points, d dimensions, r queried rows, k neighbours of each.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
from numpy.typing import NDArray

from framekiln.device import torch

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]

BLOCK_CELLS = {"cpu": 2**24, "cuda": 2**28}  # cosines of one block: 64 MB and 1 GB
EDGES_AT_ONCE = 2**11  # distances computed at once: 8 MB in 512 dimensions, which fit into a CPU's cache


@contextmanager
def plain_float32() -> Iterator[None]:
    """Compute float32 products without TF32: its ten bits exceed the error bounds."""
    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision("highest")
    try:
        yield
    finally:
        torch.set_float32_matmul_precision(before)


class Points:
    """Unit vectors (n d) on a device, and their cosines, reduced by the similarity of all faces.

    `shared` (n, 0 to 1) belongs to points: the product of two values is subtracted from their cosine. None: nothing is.
    `rough_error` and `error` are the largest rounding errors of a cosine in float32 and in float64.
    Raises ValueError: a vector is all zero, or not finite.
    """

    def __init__(self, vectors: NDArray[np.floating], device: str, shared: Floats | None = None) -> None:
        exact = np.asarray(vectors, np.float64)
        lengths = np.linalg.norm(exact, axis=1, keepdims=True)
        if not (np.isfinite(lengths) & (lengths > 0)).all():
            raise ValueError("a vector is all zero, or not finite")
        self.n, self.device = len(exact), device
        self._cells = BLOCK_CELLS["cpu" if device == "cpu" else "cuda"]
        unit, signs = exact / lengths, np.ones(exact.shape[1])
        if shared is not None:  # one number more, for the subtracted product
            unit, signs = np.column_stack([unit, shared]), np.append(signs, -1)
        self._double, self._signs = torch.from_numpy(unit).to(device), torch.from_numpy(signs).to(device)
        self._single = self._double.float()
        # Error of a sum of d products of rounded factors, in any order, with magnitudes that add up to at most 1
        # (Higham, Accuracy and Stability of Numerical Algorithms, 3.1), and one more rounded number.
        terms = (unit.shape[1] + 4) * (1 if shared is None else 2)  # with `shared`, magnitudes add up to 2
        self.rough_error, self.error = terms * 2.0**-24, terms * 2.0**-53

    def nearest(
        self,
        rows: Ints,
        count: int,
        *,
        columns: Ints | None = None,
        limits: Floats | None = None,
        groups: Ints | None = None,
        exact: bool = False,
    ) -> tuple[Ints, Floats]:
        """Return each row's columns of largest value: the cosine, or the column's limit if that is less.

        Args:
            rows: points.
            count: columns of each row.
            columns: points; None for all.
            limits: n; upper bound on the value of each column.
            groups: n; a row's own group is excluded. None: each point is a group, with all columns.
            exact: in float64.

        Returns:
            Columns r k, -1: no more; values r k, descending, with an error up to `rough_error` or `error`.
        """
        vectors = self._double if exact else self._single
        chosen = self._upload(np.arange(self.n) if columns is None else columns)
        targets = vectors if columns is None else vectors[chosen]
        bounds = None if limits is None else self._upload(limits).to(vectors.dtype)[chosen]
        owners = None if groups is None else self._upload(groups).int()
        neighbours, values = [], []
        for part in torch.split(self._upload(rows), max(1, self._cells // (1 + exact) // len(chosen))):
            cosines = (vectors[part] * self._signs.to(vectors.dtype)) @ targets.T
            cosines = cosines if bounds is None else torch.minimum(cosines, bounds, out=cosines)
            if owners is None:
                cosines[torch.arange(len(part), device=cosines.device), part] = -torch.inf
            else:
                cosines.masked_fill_(owners[part, None] == owners[chosen], -torch.inf)
            top = cosines.topk(min(count, len(chosen)), dim=1)
            neighbours.append(torch.where(top.values.isinf(), -1, chosen[top.indices]).cpu())
            values.append(top.values.double().cpu())
        return torch.cat(neighbours).numpy(), torch.cat(values).numpy()

    def distances(self, rows: Ints, neighbours: Ints) -> Floats:
        """Return 1 - cosine of points (r) and their neighbours (r k), at least 0, in float64."""
        result = torch.empty(neighbours.shape, dtype=torch.float64)
        step = max(1, EDGES_AT_ONCE // neighbours.shape[1])
        for start in range(0, len(rows), step):
            part = slice(start, start + step)
            targets = self._double[self._upload(neighbours[part])]  # r k d
            result[part] = (targets @ (self._double[self._upload(rows[part])] * self._signs)[:, :, None])[..., 0].cpu()
        return (1 - result.numpy()).clip(0)

    def _upload(self, values: NDArray[Any]) -> torch.Tensor:
        return torch.from_numpy(values).to(self.device)
