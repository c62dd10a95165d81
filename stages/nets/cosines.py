"""Which points are nearest to which by cosine, in blocks of matrix products, with a bound on what rounding can hide.

Shapes: n points, d dimensions, r rows that are asked about, k answers to each.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]

CELLS = {"cpu": 2**24, "cuda": 2**28}  # of one block of cosines: 64 MB and 1 GB
GATHERED = 2**11  # edges weighed at once: 8 MB in 512 dimensions, which stay in a processor's cache


@contextmanager
def plain_float32() -> Iterator[None]:
    """No TF32, whose ten bits would make the bounds worthless."""
    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision("highest")
    try:
        yield
    finally:
        torch.set_float32_matmul_precision(before)


class Points:
    """Vectors scaled to length 1 (n d) on a device, and products of them.

    `rough_error` and `error` are the worst that rounding makes of a cosine in float32 and in float64.

    Raises:
        ValueError: a vector has no direction.
    """

    def __init__(self, vectors: NDArray[np.floating], device: str) -> None:
        exact = np.asarray(vectors, np.float64)
        lengths = np.linalg.norm(exact, axis=1, keepdims=True)
        if not (np.isfinite(lengths) & (lengths > 0)).all():
            raise ValueError("a vector without direction: all zero, or not finite")
        self.n, self.device = len(exact), device
        self._cells = CELLS["cpu" if device == "cpu" else "cuda"]
        self._double = torch.from_numpy(exact / lengths).to(device)
        self._single = self._double.float()
        # Of a sum of d products of rounded factors whose magnitudes add up to at most 1, in any order (Higham,
        # Accuracy and Stability of Numerical Algorithms, 3.1), and of one more number rounded like them.
        terms = exact.shape[1] + 4
        self.rough_error, self.error = terms * 2.0**-24, terms * 2.0**-53

    def best(
        self,
        rows: Ints,
        kept: int,
        *,
        columns: Ints | None = None,
        most: Floats | None = None,
        groups: Ints | None = None,
        exact: bool = False,
    ) -> tuple[Ints, Floats]:
        """For each row the columns of largest value: the cosine, or `most` of the column where that is less.

        Args:
            rows: points.
            kept: columns of each row.
            columns: points; None for all.
            most: n; a bound on the value of each column.
            groups: n; columns of a row's own group do not count. None: each is its own group, all being columns.
            exact: in float64.

        Returns:
            Columns r k, -1 where there are no more; values r k, descending, off by `rough_error` at most, or by
            `error` when exact.
        """
        vectors = self._double if exact else self._single
        chosen = self._there(np.arange(self.n) if columns is None else columns)
        targets = vectors if columns is None else vectors[chosen]
        limits = None if most is None else self._there(most).to(vectors.dtype)[chosen]
        owners = None if groups is None else self._there(groups).int()
        kept = min(kept, len(chosen))
        step = max(1, self._cells // (1 + exact) // len(chosen))
        found, values = [], []
        for start in range(0, len(rows), step):
            part = self._there(rows[start : start + step])
            cosines = vectors[part] @ targets.T
            if limits is not None:
                torch.minimum(cosines, limits, out=cosines)
            if owners is None:
                cosines[torch.arange(len(part), device=self.device), part] = -torch.inf
            else:
                cosines.masked_fill_(owners[part, None] == owners[chosen], -torch.inf)
            top = cosines.topk(kept, dim=1)
            found.append(torch.where(top.values.isinf(), -1, chosen[top.indices]).cpu())
            values.append(top.values.double().cpu())
        return torch.cat(found).numpy(), torch.cat(values).numpy()

    def distances(self, rows: Ints, found: Ints) -> Floats:
        """1 - cosine of points (r) and what was found for each (r k), at least 0, in float64."""
        result = torch.empty(found.shape, dtype=torch.float64)
        step = max(1, GATHERED // found.shape[1])
        for start in range(0, len(rows), step):
            part = slice(start, start + step)
            targets = self._double[self._there(found[part])]  # r k d
            result[part] = (targets @ self._double[self._there(rows[part]), :, None])[..., 0].cpu()
        return (1 - result.numpy()).clip(0)

    def _there(self, values: NDArray[Any]) -> torch.Tensor:
        return torch.from_numpy(values).to(self.device)
