"""Memory of a model's calls: tensors over time, peaks, and growth from call to call.

The figures come from torch's allocators through its profiler, on a CPU as on a GPU. Memory of other libraries is not
included.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import pairwise
from typing import Any

import numpy as np

from framekiln.device import torch, weights_bytes
from framekiln.lab.measure.prepared import Prepared
from framekiln.lab.modules import tensors_in
from framekiln.lab.output.cells import Leak, Memory, MemoryPoint
from framekiln.profiling.tools.torch_profiler import profiler_of

STEADY = 0.9
"""Share of calls that grow. A call that keeps a tensor grows each time, however small: a loss in a list has 4 bytes
on a CPU, and one block of 512 on a GPU."""
LEAK = 1024.0
"""Mean bytes a call: above it, growth in only some calls is a leak too, such as a log kept now and then."""

_POINTS = 240  # points of a timeline, as many as a chart draws
_CALL = "framekiln: call"


def measure_memory(prepared: Prepared, cap_gb: float | None = None) -> Memory:
    """Return the memory of one call; on a GPU also the peaks of all calls since the last reset.

    `cap_gb` limits the memory, as if the device had only this; None: no limit.
    """
    points, size = _profile(prepared.call, prepared.device), weights_bytes(prepared.roots) or 0
    both = prepared.inputs, prepared.call()
    inputs, outputs = (sum(tensor.nbytes for tensor in tensors_in(value)) for value in both)
    shown = tuple(points)
    if len(points) > _POINTS:  # the largest of each stretch of time, the first and the last
        edges = np.linspace(1, len(points) - 1, _POINTS - 1).astype(int)
        middle = [max(points[a:b], key=lambda point: point.allocated) for a, b in pairwise(edges.tolist()) if b > a]
        shown = points[0], *middle, points[-1]
    memory = Memory(weights=size, inputs=inputs, outputs=outputs, timeline=shown)
    if not points:
        return memory
    activations = max(point.allocated for point in points)
    peak = size + inputs + activations if prepared.device == "cpu" else None
    reserved, total = None, None if cap_gb is None else int(cap_gb * 1e9)
    if prepared.device != "cpu":
        peak = torch.cuda.max_memory_allocated(prepared.device)
        reserved = torch.cuda.max_memory_reserved(prepared.device)
        total = total or torch.cuda.get_device_properties(prepared.device).total_memory
    return replace(memory, activations_peak=activations, peak=peak, reserved=reserved, device=total)


def measure_leak(prepared: Prepared, calls: int) -> Leak:
    """Make calls, and return the growth of allocated memory over the second half of them.

    The first half is left out, so that a cache that fills once counts as no leak.
    """
    allocated = []
    if prepared.device != "cpu":
        for _ in range(calls):
            prepared.call()
            prepared.wait()
            allocated.append(torch.cuda.memory_allocated(prepared.device))
        return find_leak(allocated)
    with profiler_of("cpu") as profile:
        for _ in range(calls):
            with torch.profiler.record_function(_CALL):
                prepared.call()
    marks = [event for event in profile.profiler.kineto_results.events() if event.name() == _CALL]
    ends = sorted(event.start_ns() + event.duration_ns() for event in marks)
    memory = _list_allocations(profile, "cpu")
    totals = np.cumsum([0, *(node.typed[1].alloc_size for node in memory)])
    return find_leak(totals[np.searchsorted([node.start_time_ns for node in memory], ends, "right")].tolist())


def find_leak(allocated: Sequence[int]) -> Leak:
    """Return the slope of the bytes after each call, by least squares over the second half, and whether it is a leak.

    A leak grows in nearly every call, or much on average, and most of that growth stays. Buffers that fill and empty in
    turn are none.
    """
    half = np.asarray(allocated[len(allocated) // 2 :], np.float64)
    slope = float(np.polyfit(np.arange(len(half)), half - half[0], 1)[0]) if len(half) > 1 else 0.0
    steps = np.diff(half)
    growth = steps[steps > 0]
    is_steady = len(growth) >= STEADY * len(steps)
    leaks = bool(len(growth) and 2 * steps.sum() > growth.sum() and (is_steady or slope > LEAK))
    return Leak(calls=len(allocated), slope=round(slope, 3), leaks=leaks, allocated=tuple(int(n) for n in allocated))


def _profile(call: Callable[[], Any], device: str) -> list[MemoryPoint]:
    with profiler_of(device) as profile:
        result = call()
        if device != "cpu":
            torch.cuda.synchronize(device)
    del result
    events, total = _list_allocations(profile, device), 0
    points = [MemoryPoint(ms=0.0, allocated=0)] if events else []
    for event in events:
        fields = event.typed[1]
        total += fields.alloc_size
        reserved = fields.total_reserved or None  # the CPU's allocator reserves nothing
        ms = (event.start_time_ns - events[0].start_time_ns) / 1e6
        points.append(MemoryPoint(ms=ms, allocated=total, reserved=reserved))
    return points


def _list_allocations(profile: Any, device: str) -> list[Any]:
    """Return the profiler's nodes of allocations and releases on a device, which also hold the reserved bytes."""
    kind, found = device.partition(":")[0], list[Any]()
    waiting = list(profile.profiler.kineto_results.experimental_event_tree())
    while waiting:
        node = waiting.pop()
        waiting += node.children
        if node.typed[0].name == "Allocation" and node.typed[1].device.type == kind:
            found.append(node)
    return sorted(found, key=lambda node: node.start_time_ns)
