"""A table of Nsight Compute, from its raw page as CSV: how near each kernel is to the GPU's peaks.

The first line has metrics' names, the second their units. Shares are percent of the peak that can be sustained.
"""

from __future__ import annotations

import csv
from collections.abc import Iterator
from dataclasses import dataclass

_NAME, _TIME = "Kernel Name", "gpu__time_duration.sum"
_COMPUTE = "sm__throughput.avg.pct_of_peak_sustained_elapsed"
_MEMORY = "gpu__compute_memory_throughput.avg.pct_of_peak_sustained_elapsed"
_OCCUPANCY = "sm__warps_active.avg.pct_of_peak_sustained_active"
_US = {"ns": 1e-3, "nsecond": 1e-3, "us": 1.0, "usecond": 1.0, "ms": 1e3, "msecond": 1e3, "s": 1e6, "second": 1e6}


@dataclass(frozen=True, kw_only=True)
class KernelFigures:
    """One launch of a kernel; None where ncu gave no number."""

    name: str
    us: float | None
    compute_percent: float | None
    memory_percent: float | None
    occupancy_percent: float | None


def read_compute(text: str) -> list[KernelFigures]:
    """Return the kernels of a CSV table; lines before its header are messages of ncu."""
    lines = text.splitlines()
    start = next((i for i, line in enumerate(lines) if f'"{_NAME}"' in line), None)
    if start is None:
        return []
    reader = csv.DictReader(lines[start:])
    units = next(reader, {})
    return list(_kernels(reader, _US.get(units.get(_TIME, ""), 1.0)))


def _kernels(rows: csv.DictReader[str], us: float) -> Iterator[KernelFigures]:
    for row in rows:
        length = _number(row, _TIME)
        yield KernelFigures(
            name=row[_NAME],
            us=None if length is None else length * us,
            compute_percent=_number(row, _COMPUTE),
            memory_percent=_number(row, _MEMORY),
            occupancy_percent=_number(row, _OCCUPANCY),
        )


def _number(row: dict[str, str], name: str) -> float | None:
    try:
        return float((row.get(name) or "").replace(",", ""))
    except ValueError:
        return None
