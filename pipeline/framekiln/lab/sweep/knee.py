"""Throughput against latency: the batch beyond which more latency brings no more throughput."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from framekiln.lab.output.cells import Cell, CellResult

LEVEL = 0.03
"""Share of the best rate within which a batch is as fast as the best, as in calibration; less is noise."""


def curves(cells: Sequence[CellResult]) -> dict[tuple[str, Cell], list[CellResult]]:
    """Return the cells that were measured by model and settings other than the batch (then 1), by ascending batch."""
    groups: dict[tuple[str, Cell], list[CellResult]] = {}
    for cell in cells:
        if cell.outcome == "ok" and cell.items_per_s:
            groups.setdefault((cell.model, replace(cell.cell, batch=1)), []).append(cell)
    return {key: sorted(group, key=lambda cell: cell.cell.batch) for key, group in groups.items()}


def knee(curve: Sequence[CellResult]) -> CellResult:
    """Return the smallest batch with a rate within 3 % of the best of a curve."""
    best = max(cell.items_per_s or 0.0 for cell in curve)
    return next(cell for cell in curve if (cell.items_per_s or 0.0) >= (1 - LEVEL) * best)
