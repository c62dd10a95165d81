"""A table of Nsight Compute, from its raw page as CSV: how near each kernel is to the GPU's peaks.

The first line has metrics' names, the second their units. Shares are percent of the peak that can be sustained. Names
of some metrics differ between versions and GPUs, so they are found by a part of the name.
"""

from __future__ import annotations

import csv
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

_NAME, _TIME = "Kernel Name", "gpu__time_duration.sum"
_US = {"ns": 1e-3, "nsecond": 1e-3, "us": 1.0, "usecond": 1.0, "ms": 1e3, "msecond": 1e3, "s": 1e6, "second": 1e6}
_SECTOR = 32  # bytes that the caches move at once
_PERCENT = {
    "compute_percent": r"sm__throughput\.avg\.pct_of_peak_sustained_elapsed",
    "memory_percent": r"gpu__compute_memory_throughput\.avg\.pct_of_peak_sustained_elapsed",
    "occupancy_percent": r"sm__warps_active\.avg\.pct_of_peak_sustained_active",
    "tensor_percent": r"sm__\w*pipe_tensor\w*\.avg\.pct_of_peak_sustained_\w+",
    "l1_hit_percent": r"l1tex__t_sector_hit_rate\.pct",
    "l2_hit_percent": r"lts__t_sector_hit_rate\.pct",
}
_BYTES = r"smsp__sass_average_data_bytes_per_sector_mem_global_op_(?:ld|st)\.(pct|ratio)"


@dataclass(frozen=True, kw_only=True)
class KernelFigures:
    """One launch of a kernel; None where ncu gave no number."""

    name: str
    us: float | None
    compute_percent: float | None
    memory_percent: float | None
    occupancy_percent: float | None
    tensor_percent: float | None = None  # of the busiest kind of tensor cores
    l1_hit_percent: float | None = None
    l2_hit_percent: float | None = None
    sector_percent: float | None = None  # of the bytes moved for global memory that threads use; of loads or stores


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
        numbers = {name: number for name, value in row.items() if (number := _number(value)) is not None}
        length = numbers.get(_TIME)
        yield KernelFigures(
            name=row[_NAME],
            us=None if length is None else length * us,
            sector_percent=_sector_percent(numbers),
            **{figure: _largest(numbers, pattern) for figure, pattern in _PERCENT.items()},
        )


def _largest(numbers: Mapping[str, float], pattern: str) -> float | None:
    return max((number for name, number in numbers.items() if re.fullmatch(pattern, name)), default=None)


def _sector_percent(numbers: Mapping[str, float]) -> float | None:
    """Return the worse of loads and stores; 0 stands for a kernel without any."""
    found = ((re.fullmatch(_BYTES, name), number) for name, number in numbers.items() if number)
    shares = (number if match[1] == "pct" else 100 * number / _SECTOR for match, number in found if match)
    return min(shares, default=None)


def _number(value: str | None) -> float | None:
    try:
        return float((value or "").replace(",", ""))
    except (AttributeError, ValueError):  # more cells than names are a list
        return None
