"""Memory of a model's calls: what tensors take over time, peaks, and growth from call to call.

The figures are those that torch's allocators report to its profiler, on a CPU as on a GPU. Memory that other libraries
take for themselves is not among them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Any

import numpy as np

from pipeline.bench.measure.prepared import Prepared, tensor_bytes
from pipeline.bench.output.cells import Leak, Memory, MemoryPoint
from pipeline.device import weights_bytes

LEAK = 1024.0
"""Bytes a call: a slope above it is a leak. A call that keeps one small tensor keeps 512 bytes on a GPU, by its
allocator's block size."""

_POINTS = 240  # of a time line, as many as a chart draws
_CALL = "framemill: call"
_DEVICES = {"cpu": 0, "cuda": 1}  # c10::DeviceType


def measure_memory(prepared: Prepared) -> Memory:
    """Return the memory of one call; on a GPU with the peaks of all calls since the last reset."""
    points, size = _profiled(prepared.call, prepared.device), weights_bytes(prepared.roots) or 0
    outputs = tensor_bytes(prepared.call())
    inputs = tensor_bytes(prepared.inputs)
    memory = Memory(weights=size, inputs=inputs, outputs=outputs, timeline=thinned(points))
    if not points:
        return memory
    activations = max(point.allocated for point in points)
    peak = size + inputs + activations if prepared.device == "cpu" else None
    reserved, total = None, None
    if prepared.device != "cpu":
        import torch

        peak = torch.cuda.max_memory_allocated(prepared.device)
        reserved = torch.cuda.max_memory_reserved(prepared.device)
        total = torch.cuda.get_device_properties(prepared.device).total_memory
    return Memory(
        weights=size,
        inputs=inputs,
        outputs=outputs,
        activations_peak=activations,
        peak=peak,
        reserved=reserved,
        device=total,
        timeline=thinned(points),
    )


def measure_leak(prepared: Prepared, calls: int) -> Leak:
    """Make calls, and return the growth of allocated memory over the second half of them.

    The first half is left out, so that a cache that fills once is no leak.
    """
    if prepared.device == "cpu":
        allocated = _allocated_on_cpu(prepared.call, calls)
    else:
        allocated = [_allocated_after(prepared) for _ in range(calls)]
    return verdict(allocated)


def verdict(allocated: Sequence[int]) -> Leak:
    """Return the slope of bytes after each call, by least squares over the second half, and whether it is a leak."""
    half = np.asarray(allocated[len(allocated) // 2 :], np.float64)
    slope = float(np.polyfit(np.arange(len(half)), half - half[0], 1)[0]) if len(half) > 1 else 0.0
    return Leak(
        calls=len(allocated), slope=round(slope, 3), leaks=slope > LEAK, allocated=tuple(int(n) for n in allocated)
    )


def thinned(points: Sequence[MemoryPoint]) -> tuple[MemoryPoint, ...]:
    """Return at most so many points as a chart shows: the largest of each stretch of time, the first and the last."""
    if len(points) <= _POINTS:
        return tuple(points)
    edges = np.linspace(1, len(points) - 1, _POINTS - 1).astype(int)
    middle = [max(points[a:b], key=lambda point: point.allocated) for a, b in pairwise(edges.tolist()) if b > a]
    return (points[0], *middle, points[-1])


def _allocated_after(prepared: Prepared) -> int:
    import torch

    prepared.call()
    prepared.wait()
    return torch.cuda.memory_allocated(prepared.device)


def _allocated_on_cpu(call: Callable[[], Any], calls: int) -> list[int]:
    """Return the bytes of tensors after each call, from 0 before the first."""
    from torch.profiler import record_function

    with _profiler("cpu") as profile:
        for _ in range(calls):
            with record_function(_CALL):
                call()
    marks = [event for event in profile.profiler.kineto_results.events() if event.name() == _CALL]
    ends = sorted(event.start_ns() + event.duration_ns() for event in marks)
    memory = _memory_events(profile, "cpu")
    totals = np.cumsum([0, *(event.nbytes() for event in memory)])
    return [int(totals[n]) for n in np.searchsorted([event.start_ns() for event in memory], ends, "right")]


def _profiled(call: Callable[[], Any], device: str) -> list[MemoryPoint]:
    """Return the memory of a call from its start to its end, its result included."""
    with _profiler(device) as profile:
        result = call()
        if device != "cpu":
            import torch

            torch.cuda.synchronize(device)
    events = _memory_events(profile, device)
    del result
    if not events:
        return []
    first = events[0]
    total, begin, points = 0, first.start_ns(), [MemoryPoint(ms=0.0, allocated=0)]
    for event in events:
        total += event.nbytes()
        points.append(MemoryPoint(ms=(event.start_ns() - begin) / 1e6, allocated=total))
    return points


def _profiler(device: str) -> Any:
    from torch.profiler import ProfilerActivity, profile

    activities = [ProfilerActivity.CPU, *([] if device == "cpu" else [ProfilerActivity.CUDA])]
    return profile(activities=activities, profile_memory=True)


def _memory_events(profile: Any, device: str) -> list[Any]:
    """Return the events of allocations on a device, in the order of time."""
    kind = _DEVICES[device.partition(":")[0]]
    results = profile.profiler.kineto_results
    events = [event for event in results.events() if event.name() == "[memory]"]
    return sorted((event for event in events if _device_type(event) == kind), key=lambda event: event.start_ns())


def _device_type(event: Any) -> int:
    kind = event.device_type()
    return int(getattr(kind, "value", kind))
