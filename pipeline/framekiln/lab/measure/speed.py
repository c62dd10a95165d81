"""Time of a prepared model's calls: latency, enqueueing, the GPU's own time, copies."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

from framekiln.device import torch
from framekiln.device.timing import Event
from framekiln.lab.measure.device_facts import Energy, EnergyCounter
from framekiln.lab.measure.prepared import Prepared
from framekiln.lab.measure.timed import Samples, TimeLimits, timed
from framekiln.lab.models.factory import map_tensors
from framekiln.planning.sample import Statistics

_COPIES = TimeLimits(warmup=2, least=5, wanted=5, seconds=0.05, patience_s=1.0)


@dataclass(frozen=True, kw_only=True)
class Speed:
    """Times of one cell."""

    warmup: int
    first_s: float  # of the first call, which compiles a compiled model
    latency: Statistics
    enqueue: Statistics
    gpu: Statistics | None
    wall_s: float  # of the calls that were not waited for
    calls: int  # in it
    h2d_ms: float | None
    d2h_ms: float | None
    energy: Energy  # of these calls


def measure_speed(prepared: Prepared, limits: TimeLimits, *, cold: bool = False) -> Speed:
    """Time a model's calls: each to its end for the latency, and on a GPU also in a row without waiting.

    Args:
        prepared: the model.
        limits: of each loop.
        cold: whether a buffer larger than the caches is written before each call; then no calls are made in a row.
    """
    began = time.perf_counter()
    prepared.call()
    prepared.wait()
    first = time.perf_counter() - began
    event, counter = gpu_event(prepared.device), EnergyCounter(prepared.device)
    before = _before(prepared, counter, cold=cold)
    loop = partial(timed, prepared.call, prepared.wait, event=event, before=before)
    single = loop(limits, wait_each=True)
    row = loop(limits) if event and not cold else single
    energy = counter.since_mark(row.wall_s)
    copies = _copies(prepared) if event else (None, None)
    return Speed(
        warmup=1 + single.warmup,
        first_s=first,
        latency=Statistics.of(single.seconds),
        enqueue=Statistics.of(row.enqueue_s, keep=False),
        gpu=Statistics.of(row.gpu_s) if row.gpu_s else None,
        wall_s=sum(row.seconds) if cold else row.wall_s,
        calls=row.calls,
        h2d_ms=copies[0],
        d2h_ms=copies[1],
        energy=Energy(why="the caches' flushing would count too") if cold else energy,
    )


def _before(prepared: Prepared, counter: EnergyCounter, *, cold: bool) -> Callable[[int], None]:
    flush = _flusher(prepared) if cold else None

    def before(number: int) -> None:
        if number == 0:
            counter.mark()
        prepared.before(number)
        if flush is not None:
            flush()

    return before


def _flusher(prepared: Prepared) -> Callable[[], None]:
    """Return a function that writes a buffer of twice the GPU's L2 cache, or of 512 MB on a CPU, and waits."""
    size = 512_000_000  # above the L3 cache of a current server, 32 to 384 MB
    if prepared.device != "cpu":
        size = 2 * torch.cuda.get_device_properties(prepared.device).L2_cache_size
    buffer = torch.empty(size, dtype=torch.uint8, device=prepared.device)

    def flush() -> None:
        buffer.zero_()
        prepared.wait()

    return flush


def gpu_event(device: str) -> Callable[[], Event] | None:
    """Return a function that makes an event with a time; None on the CPU."""
    if device == "cpu":
        return None
    make: Any = partial(torch.cuda.Event, enable_timing=True)
    return make


def _copies(prepared: Prepared) -> tuple[float, float]:
    """Return the median ms of copying the inputs to the device, from pinned memory, and the outputs back."""
    pinned = map_tensors(prepared.host_inputs, lambda tensor: tensor.pin_memory())
    outputs = prepared.call()
    up = partial(map_tensors, pinned, lambda tensor: tensor.to(prepared.device, non_blocking=True))
    down = partial(map_tensors, outputs, lambda tensor: tensor.cpu())
    samples: list[Samples] = [timed(copy, prepared.wait, _COPIES, wait_each=True) for copy in (up, down)]
    ms = [Statistics.of(sample.seconds).median for sample in samples]
    return ms[0], ms[1]
