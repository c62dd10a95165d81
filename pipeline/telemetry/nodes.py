"""What a machine is doing, four times a second: the other half of the question where the time went.

A GPU is asked by NVML, where a driver answers; otherwise nothing is known of GPUs. Everything else comes from psutil.
"""

from __future__ import annotations

import json
import os
import socket
import time
from collections.abc import Iterable, Mapping
from contextlib import suppress
from typing import Any

import psutil
import pyarrow as pa

from pipeline.columns import field
from pipeline.nvml import handles

SAMPLE_SECONDS = 0.25  # short enough to see a GPU idle between batches, long enough to cost nothing
_LIST_SECONDS = 2.0  # between two looks for new processes, which takes milliseconds

CARD = pa.struct(
    [
        field("use_percent", pa.float32(), "time in which a kernel ran, of NVML's last sampling period", "%"),
        field("memory_gb", pa.float32(), "in use by all processes", "GB"),
        field("total_gb", pa.float32(), "of the card", "GB"),
        field("power_w", pa.float32(), "drawn", "W"),
        field("temperature_c", pa.float32(), "of the chip", "°C"),
    ]
)

SCHEMA = pa.schema(
    [
        field("run", pa.string(), "the run, as its lease names it", nullable=False),
        field("node", pa.string(), "the machine's host name", nullable=False),
        field("time", pa.float64(), "since the epoch", "s", nullable=False),
        field("cpu_percent", pa.float32(), "of all cores together, since the sample before", "%"),
        field("memory_gb", pa.float32(), "in use by everybody: total less available", "GB"),
        field("workers_gb", pa.map_(pa.int64(), pa.float32()), "resident memory of Ray's processes by id", "GB"),
        field("store_gb", pa.float32(), "in Ray's object store here; null where Ray does not tell", "GB"),
        field("disk_read_mb_s", pa.float32(), "all disks, since the sample before", "MB/s"),
        field("disk_write_mb_s", pa.float32(), "all disks, since the sample before", "MB/s"),
        field("net_in_mb_s", pa.float32(), "all interfaces but loopback, since the sample before", "MB/s"),
        field("net_out_mb_s", pa.float32(), "all interfaces but loopback, since the sample before", "MB/s"),
        field("gpus", pa.list_(CARD), "each card, in NVML's order; empty without NVML"),
        field("gpu_processes_gb", pa.map_(pa.int64(), pa.float32()), "memory on all cards by process id", "GB"),
    ]
)

_MAPS = ("workers_gb", "gpu_processes_gb")


class Machine:
    """Reads this machine; rates are since the reading before, the first of which has none."""

    def __init__(self, run: str, parent: int | None = None, nvml: Any = None) -> None:
        """Begin.

        Args:
            run: the run.
            parent: process whose children are watched (Ray's raylet); None for none.
            nvml: the module pynvml, or one like it; None where there is none.
        """
        self._run, self._node = run, socket.gethostname()
        self._parent = psutil.Process(parent) if parent else None
        self._children: list[psutil.Process] = []
        self._looked = -_LIST_SECONDS
        self._counts: tuple[float, dict[str, float]] | None = None
        self._cards = Cards(nvml)
        psutil.cpu_percent()

    def read(self, store_gb: float | None = None) -> dict[str, Any]:
        """A sample, fit for JSON; `store_gb` is what Ray tells of its object store."""
        memory = psutil.virtual_memory()
        return {
            "run": self._run,
            "node": self._node,
            "time": time.time(),
            "cpu_percent": psutil.cpu_percent(),
            "memory_gb": (memory.total - memory.available) / 1e9,
            "workers_gb": self._workers(),
            "store_gb": store_gb,
            **self._rates(),
            **self._cards.read(),
        }

    def _workers(self) -> dict[int, float]:
        if self._parent is not None and time.monotonic() - self._looked >= _LIST_SECONDS:
            self._looked = time.monotonic()
            with suppress(psutil.Error):
                self._children = self._parent.children()
        found = {}
        for child in self._children:
            with suppress(psutil.Error):
                found[child.pid] = child.memory_info().rss / 1e9
        return found

    def _rates(self) -> dict[str, float]:
        now, counts = time.monotonic(), _counts()
        before, self._counts = self._counts, (now, counts)
        if before is None or now <= before[0]:
            return {}
        return {name: max(0.0, counts[name] - before[1].get(name, 0.0)) / 1e6 / (now - before[0]) for name in counts}


class Cards:
    """The GPUs, as NVML sees them."""

    def __init__(self, nvml: Any) -> None:
        self._nvml, self._handles = nvml, list[Any]()
        with suppress(Exception):  # no right to ask for them
            self._handles = handles(nvml)

    def read(self) -> dict[str, Any]:
        """Each card, and the memory of each process; nothing where NVML does not answer."""
        cards: list[dict[str, float | None]] = []
        processes: dict[int, float] = {}
        for handle in self._handles:
            cards.append(self._card(handle))
            with suppress(Exception):
                for one in self._nvml.nvmlDeviceGetComputeRunningProcesses(handle):
                    processes[one.pid] = processes.get(one.pid, 0.0) + (one.usedGpuMemory or 0) / 1e9
        return {"gpus": cards, "gpu_processes_gb": processes}

    def _card(self, handle: Any) -> dict[str, float | None]:
        found: dict[str, float | None] = dict.fromkeys(item.name for item in CARD)
        nvml = self._nvml
        with suppress(Exception):
            found["use_percent"] = float(nvml.nvmlDeviceGetUtilizationRates(handle).gpu)
        with suppress(Exception):
            memory = nvml.nvmlDeviceGetMemoryInfo(handle)
            found["memory_gb"], found["total_gb"] = memory.used / 1e9, memory.total / 1e9
        with suppress(Exception):
            found["power_w"] = nvml.nvmlDeviceGetPowerUsage(handle) / 1e3
        with suppress(Exception):
            found["temperature_c"] = float(nvml.nvmlDeviceGetTemperature(handle, nvml.NVML_TEMPERATURE_GPU))
        return found


def to_table(lines: Iterable[Mapping[str, Any]]) -> pa.Table:
    """Parsed lines as a table of `SCHEMA`, by time."""
    rows = []
    for line in lines:
        row = {item.name: line.get(item.name) for item in SCHEMA}
        row |= {name: [(int(pid), gb) for pid, gb in (line.get(name) or {}).items()] for name in _MAPS}
        rows.append(row)
    return pa.Table.from_pylist(rows, schema=SCHEMA).sort_by("time")


def to_line(sample: Mapping[str, Any]) -> bytes:
    """A sample as a line of JSON."""
    return json.dumps(sample, separators=(",", ":"), default=str).encode() + b"\n"


def this_process() -> str:
    """host:pid, which the sampler's stream is called by."""
    return f"{socket.gethostname()}:{os.getpid()}"


def _counts() -> dict[str, float]:
    """Bytes since the machine was started."""
    found: dict[str, float] = {}
    with suppress(Exception):  # containers may hide either
        disk = psutil.disk_io_counters()
        if disk is not None:
            found |= {"disk_read_mb_s": disk.read_bytes, "disk_write_mb_s": disk.write_bytes}
    with suppress(Exception):
        others = [one for name, one in psutil.net_io_counters(pernic=True).items() if name != "lo"]
        found |= {"net_in_mb_s": sum(one.bytes_recv for one in others)}
        found |= {"net_out_mb_s": sum(one.bytes_sent for one in others)}
    return found
