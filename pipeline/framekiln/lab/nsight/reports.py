"""Reports of Nsight's tools: work, waits and copies of the GPU, kernels' shares of their peaks, and findings.

Tables and columns of Nsight Systems follow NVIDIA's "SQLite Export Schema Reference"; tables without events do not
exist. Times in the file are nanoseconds. In Nsight Compute's raw page as CSV, the first line has the metrics' names,
the second their units. Shares are percent of the sustainable peak. Some metrics have other names in other versions and
GPUs, so they are found by a part of the name. Limits of findings are first settings, as in guides to profiling.
"""

from __future__ import annotations

import csv
import re
import sqlite3
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path

from framekiln.lab.output.results import BenchFinding

_NAME, _TIME = "Kernel Name", "gpu__time_duration.sum"
_US = {"ns": 1e-3, "nsecond": 1e-3, "us": 1.0, "usecond": 1.0, "ms": 1e3, "msecond": 1e3, "s": 1e6, "second": 1e6}
_SECTOR = 32  # bytes that caches move at once
_PERCENT = {
    "compute_percent": r"sm__throughput\.avg\.pct_of_peak_sustained_elapsed",
    "memory_percent": r"gpu__compute_memory_throughput\.avg\.pct_of_peak_sustained_elapsed",
    "occupancy_percent": r"sm__warps_active\.avg\.pct_of_peak_sustained_active",
    "tensor_percent": r"sm__\w*pipe_tensor\w*\.avg\.pct_of_peak_sustained_\w+",
    "l1_hit_percent": r"l1tex__t_sector_hit_rate\.pct",
    "l2_hit_percent": r"lts__t_sector_hit_rate\.pct",
}
_BYTES = r"smsp__sass_average_data_bytes_per_sector_mem_global_op_(?:ld|st)\.(pct|ratio)"
_COPIES = {1: "host to device", 2: "device to host", 8: "device to device"}  # copyKind, of CUPTI
SMALL_US = 10.0  # us; a kernel shorter than about two launches, each 3 to 5 us on a current host
GAP_US = 50.0  # us; a pause that one launch cannot explain
IDLE = 0.2  # share of the span: guides ask for 80 % use of the GPU
COPYING = 0.1  # share of the span in copies between host and device
LAUNCHING = 1.0  # time in launches as a multiple of the busy time; above it the host is the limit
SMALL = 0.5  # share of kernels below SMALL_US
NEAR_PEAK = 60.0  # percent of a peak from which Nsight Compute's own rules call a kernel well used
OCCUPANCY = 30.0  # percent of warps below which latency is hardly hidden
TENSOR = 10.0  # percent of tensor cores below which arithmetic runs elsewhere
COALESCED = 50.0  # percent of a sector's bytes; below it, more than half of the traffic is wasted


@dataclass(frozen=True, kw_only=True)
class KernelFigures:
    """One launch of a kernel; None if ncu gave no number."""

    name: str
    us: float | None
    compute_percent: float | None
    memory_percent: float | None
    occupancy_percent: float | None
    tensor_percent: float | None = None  # use of the busiest kind of tensor cores
    l1_hit_percent: float | None = None
    l2_hit_percent: float | None = None
    sector_percent: float | None = None  # used share of the bytes moved for global memory; of loads or stores


def read_compute(text: str) -> list[KernelFigures]:
    """Return the kernels of a CSV table; lines before its header are messages of ncu."""
    lines = text.splitlines()
    start = next((i for i, line in enumerate(lines) if f'"{_NAME}"' in line), None)
    if start is None:
        return []
    reader = csv.DictReader(lines[start:])
    us, kernels = _US.get(next(reader, {}).get(_TIME, ""), 1.0), []
    for row in reader:
        numbers = {name: number for name, value in row.items() if (number := _number(value)) is not None}
        length = numbers.get(_TIME)
        shares = {
            figure: max((number for name, number in numbers.items() if re.fullmatch(pattern, name)), default=None)
            for figure, pattern in _PERCENT.items()
        }
        us_taken = None if length is None else length * us
        # of loads and of stores; a kernel without any has 0
        found = ((re.fullmatch(_BYTES, name), number) for name, number in numbers.items() if number)
        sectors = [number if match[1] == "pct" else 100 * number / _SECTOR for match, number in found if match]
        worse = min(sectors, default=None)
        kernels.append(KernelFigures(name=row[_NAME], us=us_taken, sector_percent=worse, **shares))
    return kernels


def _number(value: str | None) -> float | None:
    try:
        return float((value or "").replace(",", ""))
    except (AttributeError, ValueError):  # more cells than names form a list
        return None


@dataclass(frozen=True, kw_only=True)
class MemoryCopies:
    """Copies of one direction."""

    count: int
    ms: float
    megabytes: float  # 1e6 bytes


@dataclass(frozen=True, kw_only=True)
class SystemsFigures:
    """Figures of one device, from its first operation to its last."""

    span_ms: float
    busy_ms: float  # time in which at least one kernel, copy or fill runs
    kernels: int
    kernel_ms: float  # sum; more than `busy_ms` if kernels overlap
    small_kernels: int  # kernels below SMALL_US
    gaps: int  # pauses above GAP_US
    gaps_ms: float
    longest_gap_ms: float
    launches: int = 0  # calls of CUDA's interface that started kernels
    launch_ms: float = 0.0  # time of the host in them
    copies: Mapping[str, MemoryCopies] = field(default_factory=dict)  # by direction

    @property
    def idle_share(self) -> float:
        """Share of the span without any operation, 0 to 1."""
        return 1 - self.busy_ms / self.span_ms if self.span_ms else 0.0


_TABLES = {  # with the columns that are read; one without events does not exist
    "CUPTI_ACTIVITY_KIND_KERNEL": "start, end, deviceId, correlationId",
    "CUPTI_ACTIVITY_KIND_MEMCPY": "start, end, deviceId, copyKind, bytes",
    "CUPTI_ACTIVITY_KIND_MEMSET": "start, end, deviceId",
    "CUPTI_ACTIVITY_KIND_RUNTIME": "start, end, correlationId",
}
_OPERATIONS = """CREATE TEMP VIEW operations AS
    SELECT deviceId, start, end FROM CUPTI_ACTIVITY_KIND_KERNEL
    UNION ALL SELECT deviceId, start, end FROM CUPTI_ACTIVITY_KIND_MEMCPY
    UNION ALL SELECT deviceId, start, end FROM CUPTI_ACTIVITY_KIND_MEMSET"""
_BUSIEST = "SELECT deviceId FROM operations GROUP BY deviceId ORDER BY COUNT(*) DESC LIMIT 1"
_PAUSES = """WITH ordered AS (
    SELECT start, end, COALESCE(MAX(end) OVER (ORDER BY start, end ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING),
        start) AS reached FROM operations WHERE deviceId = ?)
    SELECT (MAX(end) - MIN(start)) / 1e6 AS span_ms, SUM(MAX(0, end - MAX(start, reached))) / 1e6 AS busy_ms,
        COUNT(*) FILTER (WHERE start - reached > ?) AS gaps, MAX(0, MAX(start - reached)) / 1e6 AS longest_gap_ms,
        TOTAL(start - reached) FILTER (WHERE start - reached > ?) / 1e6 AS gaps_ms FROM ordered"""
_KERNELS = """SELECT COUNT(*) AS kernels, TOTAL(end - start) / 1e6 AS kernel_ms, COUNT(*) FILTER (WHERE end - start < ?)
    AS small_kernels FROM CUPTI_ACTIVITY_KIND_KERNEL WHERE deviceId = ?"""
_LAUNCHES = """SELECT (call.end - call.start) / 1e6
    FROM CUPTI_ACTIVITY_KIND_RUNTIME AS call JOIN CUPTI_ACTIVITY_KIND_KERNEL AS kernel USING (correlationId)
    WHERE kernel.deviceId = ? GROUP BY call.rowid"""
_COPIED = """SELECT copyKind, COUNT(*), SUM(end - start) / 1e6, SUM(bytes) / 1e6 FROM CUPTI_ACTIVITY_KIND_MEMCPY
    WHERE deviceId = ? GROUP BY copyKind"""


def read_systems(path: Path) -> SystemsFigures | None:
    """Return the figures of the device with the most operations; None if none were recorded.

    Raises sqlite3.DatabaseError: the file is no export of nsys.
    """
    with closing(sqlite3.connect(f"file:{path}?mode=ro", uri=True)) as database:
        database.row_factory = sqlite3.Row
        for name in _TABLES.keys() - {row["name"] for row in database.execute("SELECT name FROM sqlite_master")}:
            database.execute(f"CREATE TEMP TABLE {name} ({_TABLES[name]})")
        database.execute(_OPERATIONS)
        if (busiest := database.execute(_BUSIEST).fetchone()) is None:
            return None
        device = busiest["deviceId"]
        figures = dict(database.execute(_PAUSES, (device, 1e3 * GAP_US, 1e3 * GAP_US)).fetchone())
        figures |= dict(database.execute(_KERNELS, (1e3 * SMALL_US, device)).fetchone())
        launches = database.execute(_LAUNCHES, (device,)).fetchall()
        copies = database.execute(_COPIED, (device,))
        return SystemsFigures(
            **figures,
            launches=len(launches),
            launch_ms=sum(ms for (ms,) in launches),
            copies={
                _COPIES.get(kind, "other"): MemoryCopies(count=n, ms=ms, megabytes=mb) for kind, n, ms, mb in copies
            },
        )


def systems_findings(where: str, figures: SystemsFigures) -> Iterator[BenchFinding]:
    """Yield findings in a recording of nsys."""
    idle = figures.idle_share
    if idle > IDLE:
        text = (
            f"the GPU is idle for {idle:.0%} of {figures.span_ms:,.1f} ms: {figures.gaps} pauses above {GAP_US:g} us "
            f"take {figures.gaps_ms:,.1f} ms, the longest {figures.longest_gap_ms:,.2f} ms"
        )
        fix = "look for synchronisations (.item(), .cpu()) and work of the host between kernels; use a larger batch"
        yield BenchFinding.of("GPU idle", where, text, fix, idle_share=idle)
    if figures.busy_ms and figures.launch_ms >= LAUNCHING * figures.busy_ms:
        text = f"{figures.launches} launches take the host {figures.launch_ms:,.1f} ms, the GPU {figures.busy_ms:,.1f}"
        fix = "use --compile reduce-overhead (CUDA graphs), or a larger batch"
        times = {"launch_ms": figures.launch_ms, "busy_ms": figures.busy_ms}
        yield BenchFinding.of("launch overhead", where, text, fix, **times)
    if figures.kernels and figures.small_kernels > SMALL * figures.kernels:
        share = figures.small_kernels / figures.kernels
        text = f"{share:.0%} of {figures.kernels} kernels take less than {SMALL_US:g} us"
        fix = "fuse them by --compile default, or give each more work by a larger batch"
        yield BenchFinding.of("small kernels", where, text, fix, share=share)
    for direction, copies in figures.copies.items():
        share = copies.ms / figures.span_ms if figures.span_ms else 0.0
        if direction != "device to device" and share > COPYING:
            rate = copies.megabytes / copies.ms if copies.ms else 0.0
            text = f"{copies.count} copies {direction} take {share:.0%} of the time, at {rate:,.1f} GB/s"
            fix = "keep tensors on the device, copy from pinned memory, and copy beside kernels in another stream"
            yield BenchFinding.of("copies", where, text, fix, share=share, gb_s=rate)


def compute_findings(where: str, kernels: Sequence[KernelFigures]) -> Iterator[BenchFinding]:
    """Yield the limit of the slowest kernel in ncu's recording, and further findings."""
    timed = [kernel for kernel in kernels if kernel.us is not None]
    if not timed:
        return
    slow = max(timed, key=lambda kernel: kernel.us or 0.0)
    yield _describe_limit(where, slow)
    if slow.sector_percent is not None and slow.sector_percent < COALESCED:
        text = f"{slow.name[:80]} uses {slow.sector_percent:.0f} % of the bytes that it moves from or to global memory"
        fix = "let neighbouring threads read neighbouring values: contiguous tensors, channels last, no strided slices"
        yield BenchFinding.of("scattered access", where, text, fix, sector_percent=slow.sector_percent)


def _describe_limit(where: str, slow: KernelFigures) -> BenchFinding:
    compute, memory = slow.compute_percent or 0.0, slow.memory_percent or 0.0
    text = f"{slow.name[:80]} ({slow.us:,.1f} us) reaches {compute:.0f} % of arithmetic and {memory:.0f} % of memory"
    numbers = {"us": slow.us or 0.0, "compute_percent": compute, "memory_percent": memory}
    if max(compute, memory) < NEAR_PEAK:
        rule, fix = "kernel bound by latency", "give it more work: a larger batch, or fused with its neighbours"
        if slow.occupancy_percent is not None and slow.occupancy_percent < OCCUPANCY:
            fix += f"; only {slow.occupancy_percent:.0f} % of the warps are active"
    elif memory >= compute:
        rule, fix = "kernel bound by memory", "use a 16-bit type, fuse it by --compile, or channels last"
        if slow.l2_hit_percent is not None:
            l1 = "" if slow.l1_hit_percent is None else f" and the L1 cache {slow.l1_hit_percent:.0f} %"
            text += f"; the L2 cache serves {slow.l2_hit_percent:.0f} % of its accesses{l1}"
            numbers["l2_hit_percent"] = slow.l2_hit_percent
    else:
        rule, fix = "kernel bound by arithmetic", "use tensor cores: tf32, bf16 or fp16"
        if slow.tensor_percent is not None:
            text += f"; its tensor cores are used {slow.tensor_percent:.0f} %"
            numbers["tensor_percent"] = slow.tensor_percent
            if slow.tensor_percent >= TENSOR:
                fix = "it uses tensor cores: only a narrower type, or a smaller model, is faster"
    return BenchFinding.of(rule, where, text, fix, **numbers)
