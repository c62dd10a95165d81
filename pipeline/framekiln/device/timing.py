"""Phases timed by the GPU, between two CUDA events in its stream, and a process's GPU memory.

Kernels are launched asynchronously, so the CPU's clock would measure launches only. Events are read after the call. Its
results have been downloaded by then, so reading does not wait. Gigabytes are 1e9 bytes.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import Any

from framekiln.contract.phases import PhaseClock
from framekiln.device.lazy import torch
from framekiln.device.nvml import handles, library

GpuEvent = Any
"""A `torch.cuda.Event`, used through `record`, `synchronize` and `elapsed_time`."""


class EventClock(PhaseClock):
    """A clock that reads CUDA events. Events are reused: creating one takes longer than recording it."""

    def __init__(self, event: Callable[[], GpuEvent]) -> None:
        super().__init__()
        self._event, self._spare = event, list[GpuEvent]()

    def stamp(self) -> GpuEvent:
        """Record an event in the current stream."""
        event = self._spare.pop() if self._spare else self._event()
        event.record()
        return event

    def between(self, begin: GpuEvent, end: GpuEvent) -> float:
        """Wait until the GPU has reached the later event, and return the seconds."""
        end.synchronize()
        return float(begin.elapsed_time(end)) / 1000

    def settle(self) -> None:
        events = [event for ended in self._ended for event in ended[1:3]]
        super().settle()
        self._spare += events


def clock_of(device: str) -> PhaseClock:
    """Return a clock for stages on a device."""
    if device == "cpu" or not torch.cuda.is_available():
        return PhaseClock()
    make: Any = partial(torch.cuda.Event, enable_timing=True)
    return EventClock(make)


def memory_gb(device: str, *, anew: bool = True) -> tuple[float, float, float] | None:
    """Return GB allocated now, reserved now, and at the peak; `anew` resets the peak. None on the CPU."""
    if device == "cpu" or not torch.cuda.is_initialized():  # type: ignore[no-untyped-call]
        return None
    cuda: Any = torch.cuda  # torch's memory statistics have no types
    known = cuda.memory.memory_stats_as_nested_dict(device)
    allocated, reserved = known["allocated_bytes"]["all"], known["reserved_bytes"]["all"]
    if anew:
        cuda.reset_peak_memory_stats(device)
    return allocated["current"] / 1e9, reserved["current"] / 1e9, allocated["peak"] / 1e9


@dataclass(frozen=True, kw_only=True)
class DeviceMemory:
    """The device that a process runs on."""

    name: str  # its name in the driver; "cpu" for the CPU
    total_gb: float | None = None  # None where it is unknown
    context_gb: float = 0.0  # used by this process beyond torch's allocator


class Meter:
    """A reader of one process's device memory, pickled before use. On the CPU it measures nothing.

    On a GPU it reads the counters of torch's allocator. A CUDA context needs further memory for kernels and for cuBLAS
    and cuDNN handles. By NVML, which needs no context, it is the growth of the GPU's used memory since the process
    started, less the allocator's memory. Without NVML it is the GPU's used memory less the allocator's, which assumes
    that no other process uses the GPU.
    """

    def __init__(self, device: str = "cpu") -> None:
        self._device, self._is_gpu = device, device != "cpu"
        self._before: Mapping[str, float] = {}

    def begin(self) -> None:
        """Note the memory in use. Call it first in the process, before anything uses the device."""
        self._before = _measure_used_gb() if self._is_gpu else {}

    def clear(self) -> None:
        """Release cached memory and reset peaks. Call it before each batch size."""
        if self._is_gpu:
            torch.cuda.empty_cache()
            torch.cuda.reset_peak_memory_stats(self._device)

    def held(self) -> float | None:
        """Return the GB allocated now; None where it is unknown."""
        return torch.cuda.memory_allocated(self._device) / 1e9 if self._is_gpu else None

    def peaks(self) -> tuple[float, float] | None:
        """Return the peaks of allocated and of reserved GB since the last `clear`; None where unknown."""
        if not self._is_gpu:
            return None
        allocated, reserved = torch.cuda.max_memory_allocated, torch.cuda.max_memory_reserved
        return allocated(self._device) / 1e9, reserved(self._device) / 1e9

    def seen(self) -> DeviceMemory:
        """Return the device. Call it last, after everything is loaded."""
        if not self._is_gpu:
            return DeviceMemory(name="cpu")
        known: Any = torch.cuda.get_device_properties(self._device)
        free, total = torch.cuda.mem_get_info(self._device)
        used, before = (total - free) / 1e9, 0.0
        uuid = str(getattr(known, "uuid", "")).removeprefix("GPU-")
        after = _measure_used_gb()
        if uuid in self._before and uuid in after:
            used, before = after[uuid], self._before[uuid]
        context = used - before - torch.cuda.memory_reserved(self._device) / 1e9
        return DeviceMemory(name=str(known.name), total_gb=total / 1e9, context_gb=max(0.0, context))


def _measure_used_gb() -> dict[str, float]:
    """Return the used GB of each GPU, all processes together, by UUID; empty without NVML."""
    nvml, used_gb = library(), dict[str, float]()
    with suppress(Exception):  # the GPU or the user's rights do not allow the query
        for handle in handles(nvml):
            name = nvml.nvmlDeviceGetUUID(handle).removeprefix("GPU-")
            used_gb[name] = nvml.nvmlDeviceGetMemoryInfo(handle).used / 1e9
    return used_gb
