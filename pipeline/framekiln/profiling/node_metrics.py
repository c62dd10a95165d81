"""Samples of a node, four a second: its cores, memory and GPUs.

GPU figures come from NVML and are missing without a driver. All other figures come from psutil.
"""

import json
import os
import socket
import time
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from typing import Any

import psutil
import pyarrow as pa

from framekiln.contract.columns import field
from framekiln.device.cores import bound_cores
from framekiln.device.nvml import handles
from framekiln.profiling.records import now

SAMPLE_SECONDS = 0.25  # s; short enough to see a GPU idle between batches, long enough to cost nothing
_LIST_SECONDS = 2.0  # s between two searches for new processes, which take milliseconds

GPU = pa.struct(
    [
        field("use_percent", pa.float32(), "share of NVML's last sampling period in which a kernel ran", "%"),
        field("memory_gb", pa.float32(), "memory in use by all processes", "GB"),
        field("total_gb", pa.float32(), "of the GPU", "GB"),
        field("power_w", pa.float32(), "drawn", "W"),
        field("temperature_c", pa.float32(), "of the chip", "°C"),
    ]
)

SCHEMA = pa.schema(
    [
        field("run", pa.string(), "the run, as its lease names it", nullable=False),
        field("node", pa.string(), "the machine's host name", nullable=False),
        field("time", pa.float64(), "since the epoch", "s", nullable=False),
        field("cpu_percent", pa.float32(), "use of the cores that the run is bound to, since the sample before", "%"),
        field(
            "own_cpu_percent", pa.float32(), "use of these cores by the run's processes, since the sample before", "%"
        ),
        field("memory_gb", pa.float32(), "in use by everybody: total less available", "GB"),
        field("workers_gb", pa.map_(pa.int64(), pa.float32()), "resident memory of Ray's processes by id", "GB"),
        field("store_gb", pa.float32(), "in Ray's object store here; null if Ray does not report it", "GB"),
        field("gpus", pa.list_(GPU), "GPUs that the run may use, in NVML's order; empty without NVML"),
        field("gpu_processes_gb", pa.map_(pa.int64(), pa.float32()), "memory on these GPUs by process id", "GB"),
    ]
)

_MAPS = ("workers_gb", "gpu_processes_gb")


class NodeMetrics:
    """Samples of this machine."""

    def __init__(self, run: str, parent: int | None = None, nvml: Any = None) -> None:
        """Start the measurement of CPU use.

        `parent` is the process whose children are watched (Ray's raylet). `nvml` is pynvml; None without a driver.
        """
        self._run, self._node = run, socket.gethostname()
        self._parent = root = psutil.Process(parent) if parent else None
        visible = os.environ.get("CUDA_VISIBLE_DEVICES")
        if self._parent is not None and self._parent.pid != os.getpid():
            visible = None
            with suppress(psutil.Error):  # Ray hides all GPUs from the process that samples them
                visible = self._parent.environ().get("CUDA_VISIBLE_DEVICES")
            with suppress(psutil.Error):  # a local Ray's processes are those of the process that started its raylet
                above = self._parent.parent()
                root = above if above is not None and above.pid > 1 else root
        self._processes = RunProcesses(root) if root else None
        self._gpus = GpuMetrics(nvml, visible)
        self._cores = bound_cores()
        psutil.cpu_percent(percpu=True)

    def read(self, store_gb: float | None = None) -> dict[str, Any]:
        """Return a sample as JSON values; `store_gb` is the use of Ray's object store."""
        memory, workers = psutil.virtual_memory(), dict[int, float]()
        used = self._processes.cpu_percent() if self._processes is not None else None
        for child in self._processes.children(self._parent.pid) if self._processes and self._parent else ():
            with suppress(psutil.Error):
                workers[child.pid] = child.memory_info().rss / 1e9
        return {
            "run": self._run,
            "node": self._node,
            "time": now(),
            "cpu_percent": self._read_cores(),
            "own_cpu_percent": used,
            "memory_gb": (memory.total - memory.available) / 1e9,
            "workers_gb": workers,
            "store_gb": store_gb,
            **self._gpus.read(),
        }

    def _read_cores(self) -> float:
        """Return the use of the run's cores: on a shared machine the others are other people's."""
        each = psutil.cpu_percent(percpu=True)
        own = [used for core, used in enumerate(each) if core in self._cores] or each
        return sum(own) / len(own)


class RunProcesses:
    """A run's processes on this machine (one and all its descendants), and their use of the cores."""

    def __init__(self, root: psutil.Process) -> None:
        """Start measuring; earlier use does not count."""
        self._root, self._listed = root, -_LIST_SECONDS
        self._found: list[tuple[psutil.Process, int]] = []  # with the parent's id
        self._used: dict[int, float] = {}  # CPU seconds of a process at the last reading
        self._cores, self._time = len(bound_cores()), time.monotonic()
        self._read()

    def refresh(self) -> None:
        """Search for new descendants, as readings do every two seconds."""
        self._listed, found = time.monotonic(), [(self._root, 0)]
        with suppress(psutil.Error):
            for one in self._root.children(recursive=True):
                with suppress(psutil.Error):
                    found.append((one, one.ppid()))
        self._found = found

    def children(self, parent: int) -> list[psutil.Process]:
        """Return the processes that a process had started at the last search."""
        return [one for one, its_parent in self._found if its_parent == parent]

    def cpu_percent(self) -> float | None:
        """Return the use of all cores since the last reading; None if no time has passed."""
        before, self._time = self._time, time.monotonic()
        spent, passed = self._read(), self._time - before
        return 100 * spent / passed / self._cores if passed > 0 else None

    def _read(self) -> float:
        """Return the CPU seconds since the last reading; a new process counts with all of its seconds."""
        if time.monotonic() - self._listed >= _LIST_SECONDS:
            self.refresh()
        spent, used = 0.0, dict[int, float]()
        for process, _ in self._found:
            with suppress(psutil.Error):
                times = process.cpu_times()
                used[process.pid] = times.user + times.system
                spent += max(0.0, used[process.pid] - self._used.get(process.pid, 0.0))
        self._used = used
        return spent


class GpuMetrics:
    """Samples of all GPUs in NVML, or of the `visible` ones; see `handles`."""

    def __init__(self, nvml: Any, visible: str | None) -> None:
        self._nvml, self._handles = nvml, list[Any]()
        with suppress(Exception):  # no permission to list them
            self._handles = handles(nvml, visible)

    def read(self) -> dict[str, Any]:
        """Return each GPU's figures and the memory of each process; empty where NVML fails."""
        processes: dict[int, float] = {}
        for handle in self._handles:
            with suppress(Exception):
                for process in self._nvml.nvmlDeviceGetComputeRunningProcesses(handle):
                    processes[process.pid] = processes.get(process.pid, 0.0) + (process.usedGpuMemory or 0) / 1e9
        unknown = dict.fromkeys(item.name for item in GPU)
        gpus = [unknown | read_gpu(self._nvml, handle, GPU_FIGURES) for handle in self._handles]
        return {"gpus": gpus, "gpu_processes_gb": processes}


GPU_FIGURES: Mapping[str, Callable[[Any, Any], Any]] = {
    "use_percent": lambda nvml, gpu: float(nvml.nvmlDeviceGetUtilizationRates(gpu).gpu),
    "memory_gb": lambda nvml, gpu: nvml.nvmlDeviceGetMemoryInfo(gpu).used / 1e9,
    "total_gb": lambda nvml, gpu: nvml.nvmlDeviceGetMemoryInfo(gpu).total / 1e9,
    "power_w": lambda nvml, gpu: nvml.nvmlDeviceGetPowerUsage(gpu) / 1e3,
    "temperature_c": lambda nvml, gpu: float(nvml.nvmlDeviceGetTemperature(gpu, nvml.NVML_TEMPERATURE_GPU)),
}
"""Returns figures of a GPU, from NVML and the GPU's handle."""


def read_gpu(nvml: Any, handle: Any, figures: Mapping[str, Callable[[Any, Any], Any]]) -> dict[str, Any]:
    """Return the figures that this GPU and its driver support."""
    found = {}
    for name, read in figures.items():
        with suppress(Exception):
            found[name] = read(nvml, handle)
    return found


def to_table(lines: Iterable[Mapping[str, Any]]) -> pa.Table:
    """Return parsed lines as a table with `SCHEMA`, sorted by time."""
    rows = []
    for line in lines:
        maps = {name: [(int(pid), gb) for pid, gb in (line.get(name) or {}).items()] for name in _MAPS}
        rows.append({**line, **maps})
    return pa.Table.from_pylist(rows, schema=SCHEMA).sort_by("time")


def to_line(sample: Mapping[str, Any]) -> bytes:
    """Return a sample as a line of JSON."""
    return json.dumps(sample, separators=(",", ":"), default=str).encode() + b"\n"
