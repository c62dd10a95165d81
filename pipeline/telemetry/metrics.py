"""Live figures as metrics: what there is, what each is called, and what a sample adds to them.

Names follow Prometheus: base units, the unit in the name, `_total` after what only grows. Ray's agents put `ray_`
before them. `pipeline.engine.metrics` hands them to Ray.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Literal

from pipeline.sample import SET_UP, Reading, Sample

GB = 1e9

Labels = Mapping[str, str]


@dataclass(frozen=True, kw_only=True)
class Metric:
    """One family of series."""

    name: str
    kind: Literal["counter", "gauge", "histogram"]
    what: str
    labels: tuple[str, ...]

    @property
    def served(self) -> tuple[str, ...]:
        """The names under which Prometheus finds it."""
        endings = {"counter": ("_total",), "gauge": ("",), "histogram": ("_bucket", "_count", "_sum")}
        return tuple(f"ray_{self.name}{ending}" for ending in endings[self.kind])


BOUNDS = tuple(round(0.001 * 10 ** (i / 5), 6) for i in range(29))
"""Upper bounds of the buckets of a call's seconds: five to a factor of ten, from 1 ms to 400 s.

A percentile read from them is off by less than a factor of 1.6.
"""

_STEP = ("run", "step", "worker", "node")
_NODE = ("run", "step", "node")  # of many series already: an agent keeps 2,000 of a metric, also of runs that are over
_CARD = ("run", "node", "gpu")

ROWS = Metric(name="framemill_rows", kind="counter", what="rows that went through a step", labels=_STEP)
PACKETS = Metric(name="framemill_packets", kind="counter", what="packets that went through a step", labels=_STEP)
FAILURES = Metric(name="framemill_failures", kind="counter", what="rows that a step failed on", labels=_STEP)
BUSY = Metric(name="framemill_busy_seconds", kind="counter", what="seconds in a step", labels=_STEP)
WAIT = Metric(name="framemill_wait_seconds", kind="counter", what="seconds of waiting for input", labels=_STEP)
PHASE = Metric(
    name="framemill_phase_seconds",
    kind="counter",
    what="seconds of a step by phase; other is what no phase tells",
    labels=(*_NODE, "phase"),
)
CALL = Metric(name="framemill_call_seconds", kind="histogram", what="seconds of a call of a stage", labels=_NODE)
RETRIES = Metric(
    name="framemill_oom_retries", kind="counter", what="calls made again as memory had run out", labels=_STEP
)
ALLOCATED = Metric(
    name="framemill_vram_allocated_bytes", kind="gauge", what="allocated by torch after a packet", labels=_STEP
)
RESERVED = Metric(name="framemill_vram_reserved_bytes", kind="gauge", what="held by torch after a packet", labels=_STEP)
PEAK = Metric(
    name="framemill_vram_peak_bytes", kind="gauge", what="allocated by torch at most in a packet", labels=_STEP
)
GPU_USE = Metric(name="framemill_gpu_use_ratio", kind="gauge", what="share of time a kernel ran, by NVML", labels=_CARD)
GPU_MEMORY = Metric(name="framemill_gpu_memory_bytes", kind="gauge", what="in use on a GPU by all", labels=_CARD)
GPU_TOTAL = Metric(name="framemill_gpu_memory_size_bytes", kind="gauge", what="of a GPU", labels=_CARD)
GPU_POWER = Metric(name="framemill_gpu_power_watts", kind="gauge", what="drawn by a GPU", labels=_CARD)
GPU_TEMPERATURE = Metric(
    name="framemill_gpu_temperature_celsius", kind="gauge", what="temperature of a GPU", labels=_CARD
)

METRICS = (
    *(ROWS, PACKETS, FAILURES, BUSY, WAIT, PHASE, CALL, RETRIES),
    *(ALLOCATED, RESERVED, PEAK, GPU_USE, GPU_MEMORY, GPU_TOTAL, GPU_POWER, GPU_TEMPERATURE),
)

_OF_CARD = (
    ("use_percent", GPU_USE, 0.01),
    ("memory_gb", GPU_MEMORY, GB),
    ("total_gb", GPU_TOTAL, GB),
    ("power_w", GPU_POWER, 1.0),
    ("temperature_c", GPU_TEMPERATURE, 1.0),
)
_OUTSIDE = ("wait", "fetch")  # of a packet's seconds

Told = tuple[Metric, float, Labels]


def told(sample: Sample | Reading, run: str) -> Iterator[Told]:
    """What a sample says: metric, what to add, set or observe, and labels. Counters never get zero."""
    if isinstance(sample, Reading):
        yield from _of_cards(sample, run)
    elif not sample.step.endswith(SET_UP):
        yield from _of_packet(sample, run)


def _of_packet(sample: Sample, run: str) -> Iterator[Told]:
    node = {"run": run, "step": sample.step, "node": sample.node}
    labels = {**node, "worker": sample.worker}
    counts = (
        (ROWS, sample.rows),
        (PACKETS, sample.rows > 0),
        (FAILURES, sample.failures),
        (BUSY, sample.seconds),
        (WAIT, sample.around.get("wait", 0.0)),
        (RETRIES, sample.retries),
    )
    yield from ((metric, float(value), labels) for metric, value in counts if value > 0)
    yield from ((PHASE, value, {**node, "phase": name}) for name, value in _phases(sample) if value > 0)
    yield from ((CALL, seconds, node) for seconds in sample.calls)
    if sample.memory is not None:
        gauges = zip((ALLOCATED, RESERVED, PEAK), sample.memory, strict=True)
        yield from ((metric, value * GB, labels) for metric, value in gauges)


def _phases(sample: Sample) -> Iterator[tuple[str, float]]:
    inside = {**sample.phases, **{name: value for name, value in sample.around.items() if name not in _OUTSIDE}}
    yield from inside.items()
    yield "other", sample.seconds - sum(inside.values())


def _of_cards(reading: Reading, run: str) -> Iterator[Told]:
    for number, card in enumerate(reading.cards):
        labels = {"run": run, "node": reading.node, "gpu": str(number)}
        for name, metric, scale in _OF_CARD:
            if (value := card.get(name)) is not None:
                yield metric, value * scale, labels
