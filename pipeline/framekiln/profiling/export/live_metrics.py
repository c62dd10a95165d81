"""Live figures in other tools: Prometheus metrics, and TensorBoard scalars for `--tensorboard`.

Names of metrics follow the conventions of Prometheus: base units, the unit in the name, `_total` after counters. Ray's
agents put `ray_` before them. `framekiln.engine.ray.coordinator` hands them to Ray. Scalars have one point every few
seconds, and one folder for each run.
"""

from __future__ import annotations

import importlib.util
import os
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, Self

from framekiln.contract.errors import ConfigError
from framekiln.profiling.records import SET_UP, Event, Reading, StepEvent, now
from framekiln.profiling.stats.progress import RunTotals
from framekiln.profiling.stats.speed import phase_seconds

GB = 1e9

Labels = Mapping[str, str]
POINT_SECONDS = 5.0  # s; half of the window of live figures


@dataclass(frozen=True)
class Metric:
    """A metric and its labels."""

    name: str
    kind: Literal["counter", "gauge", "histogram"]
    what: str
    labels: tuple[str, ...]


BOUNDS = tuple(round(0.001 * 10 ** (i / 5), 6) for i in range(29))
"""Upper bounds of a histogram of call seconds: five buckets to a factor of ten, from 1 ms to 400 s.

A percentile read from them is off by a factor of 1.6 at most.
"""

_STEP = ("run", "step", "worker", "node")
_NODE = ("run", "step", "node")  # without the worker: an agent keeps 2,000 series a metric, with those of ended runs
_GPU = ("run", "node", "gpu")

ROWS = Metric("framekiln_rows", "counter", "rows that went through a step", _STEP)
PACKETS = Metric("framekiln_packets", "counter", "packets that went through a step", _STEP)
FAILURES = Metric("framekiln_failures", "counter", "rows that a step failed on", _STEP)
BUSY = Metric("framekiln_busy_seconds", "counter", "seconds in a step", _STEP)
WAIT = Metric("framekiln_wait_seconds", "counter", "seconds of waiting for input", _STEP)
PHASE = Metric(
    "framekiln_phase_seconds", "counter", "seconds of a step by phase; other: outside of all phases", (*_NODE, "phase")
)
CALL = Metric("framekiln_call_seconds", "histogram", "seconds of a call of a stage", _NODE)
RETRIES = Metric("framekiln_oom_retries", "counter", "calls repeated after memory ran out", _STEP)

_TORCH_MEMORY = (
    Metric("framekiln_vram_allocated_bytes", "gauge", "allocated by torch after a packet", _STEP),
    Metric("framekiln_vram_reserved_bytes", "gauge", "held by torch after a packet", _STEP),
    Metric("framekiln_vram_peak_bytes", "gauge", "allocated by torch at most in a packet", _STEP),
)
_GPU_METRICS = {  # metrics, each with its factor, by the keys of a GPU's sample
    "use_percent": (Metric("framekiln_gpu_use_ratio", "gauge", "share of time a kernel ran, by NVML", _GPU), 0.01),
    "memory_gb": (Metric("framekiln_gpu_memory_bytes", "gauge", "memory in use on a GPU by all processes", _GPU), GB),
    "total_gb": (Metric("framekiln_gpu_memory_size_bytes", "gauge", "of a GPU", _GPU), GB),
    "power_w": (Metric("framekiln_gpu_power_watts", "gauge", "power drawn by a GPU", _GPU), 1.0),
    "temperature_c": (Metric("framekiln_gpu_temperature_celsius", "gauge", "temperature of a GPU", _GPU), 1.0),
}

METRICS = (
    *(ROWS, PACKETS, FAILURES, BUSY, WAIT, PHASE, CALL, RETRIES),
    *(*_TORCH_MEMORY, *(metric for metric, _ in _GPU_METRICS.values())),
)

Observation = tuple[Metric, float, Labels]


def observations(event: Event, run: str) -> Iterator[Observation]:
    """Yield metric, value and labels of an event: a counter's increase, a gauge's value, a histogram's observation.

    A counter's increase is never zero.
    """
    if isinstance(event, Reading):
        for number, gpu in enumerate(event.gpus):
            labels = {"run": run, "node": event.node, "gpu": str(number)}
            known = ((*_GPU_METRICS[name], value) for name, value in gpu.items() if value is not None)
            yield from ((metric, value * factor, labels) for metric, factor, value in known)
    if not isinstance(event, StepEvent) or event.kind == SET_UP:
        return
    node = {"run": run, "step": event.step, "node": event.node}
    labels = {**node, "worker": event.worker}
    counts = (
        (ROWS, event.rows),
        (PACKETS, event.rows > 0),
        (FAILURES, event.failures),
        (BUSY, event.seconds),
        (WAIT, event.around.get("wait", 0.0)),
        (RETRIES, event.retries),
    )
    yield from ((metric, float(value), labels) for metric, value in counts if value > 0)
    phases = phase_seconds({**event.phases, **event.around}, event.seconds)
    yield from ((PHASE, value, {**node, "phase": name}) for name, value in phases.items() if value > 0)
    yield from ((CALL, seconds, node) for seconds in event.calls)
    if event.memory is not None:
        yield from ((metric, value * GB, labels) for metric, value in zip(_TORCH_MEMORY, event.memory, strict=True))


def scalars_folder(place: str | os.PathLike[str] | None) -> str | None:
    """Return the folder for scalars, after a check that they can be written; None: no scalars.

    Raises ConfigError: the package is missing, or the folder cannot be written to.
    """
    if place is None:
        return None
    folder = os.fspath(place)
    if "://" in folder:
        problem = f"--tensorboard {folder!r} is a URL; give it a folder on this machine."
        raise ConfigError(problem, code="FK-TENSORBOARD-URL")
    if importlib.util.find_spec("tensorboard") is None:
        problem = "--tensorboard needs the package tensorboard, which is not installed: pip install tensorboard"
        raise ConfigError(problem, code="FK-TENSORBOARD-MISSING")
    try:
        Path(folder).mkdir(parents=True, exist_ok=True)
    except OSError as error:
        problem = f"The folder --tensorboard {folder!r} cannot be made ({error.strerror}); choose another."
        raise ConfigError(problem, code="FK-TENSORBOARD-FOLDER") from error
    return folder


class Scalars:
    """A view of a run (see `progress`) that writes scalars against seconds since it was made."""

    def __init__(self, folder: str, run: str, steps: Sequence[str]) -> None:
        from torch.utils.tensorboard import SummaryWriter

        make: Any = SummaryWriter
        self._writer, self._steps = make(str(Path(folder) / run), flush_secs=int(POINT_SECONDS)), steps
        self._began, self._next = now(), time.monotonic()
        self._last: RunTotals | None = None

    def show(self, totals: RunTotals) -> None:
        """Write a point of each scalar every `POINT_SECONDS`."""
        self._last = totals
        if time.monotonic() >= self._next:
            self._next = time.monotonic() + POINT_SECONDS
            self._write(totals)

    def say(self, sentence: str) -> None:
        """Write a sentence as a text; see `View`."""
        self._writer.add_text("advice", sentence, round(now() - self._began))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self._last is not None:
            self._write(self._last)  # the only point of a short run
        self._writer.close()

    def _write(self, totals: RunTotals) -> None:
        moment = now()
        for name, value in points(totals, self._steps, moment):
            self._writer.add_scalar(name, value, round(moment - self._began), walltime=moment)


def points(totals: RunTotals, steps: Sequence[str], now: float) -> Iterator[tuple[str, float]]:
    """Yield the name and value of each known scalar at a moment of the epoch: first of steps, then of GPUs."""
    for name in steps:
        if totals.steps[name].rows:
            yield f"rows/{name}", totals.steps[name].rows
        step = totals.live.step(name, now)
        if step is None:
            continue
        figures = {
            "rows_per_s": step.rows_per_s,
            "busy_percent": 100 * step.busy,
            "waits_percent": 100 * step.starved,
            "call_p50_ms": step.call_ms[0] if step.calls else None,
            "vram_peak_gb": step.vram_peak_gb,
        }
        yield from ((f"{figure}/{name}", value) for figure, value in figures.items() if value is not None)
    for gpu, readings in totals.live.gpus(now).items():
        yield from ((f"gpu_{figure}/{gpu}", value) for figure, value in readings.items() if value is not None)
