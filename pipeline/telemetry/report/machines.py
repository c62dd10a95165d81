"""What the machines of a run did over time, from the samples of its records: GPUs, their memory, CPUs, memory."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pipeline.storage import Store
from pipeline.telemetry import nodes
from pipeline.telemetry.records import to_table
from pipeline.telemetry.report.activity import Activity
from pipeline.telemetry.streams import CALLS, NODES, batches

POINTS = 240  # of a curve
MOST_SAMPLES = 20_000  # that are read one by one; of more, every n-th
MOST_MACHINES = 4
MOST_CURVES = 8  # of a chart, the highest

GPU_USE, GPU_MEMORY, CPU, MEMORY = "GPU use", "GPU memory", "CPU", "memory"
_UNITS = {GPU_USE: "%", GPU_MEMORY: "GB", CPU: "%", MEMORY: "GB"}
_CARD = "card"

Floats = NDArray[np.float64]


@dataclass(frozen=True, kw_only=True)
class Curve:
    """One quantity over time."""

    name: str
    values: Floats  # POINTS, over the whole run; NaN where nothing is known
    least: float
    mean: float
    most: float


@dataclass(frozen=True, kw_only=True)
class Chart:
    """Quantities of one unit."""

    title: str
    unit: str
    top: float  # of the axis, which begins at 0
    curves: tuple[Curve, ...]
    left_out: int  # curves beyond `MOST_CURVES`
    limit: float | None = None  # a line that means full


@dataclass(frozen=True, kw_only=True)
class Machines:
    """All charts."""

    charts: tuple[Chart, ...]
    note: str  # what is not shown, and why


@dataclass(kw_only=True)
class _Series:
    """Samples of one quantity: their sums, counts and extremes by point."""

    total: Floats = field(default_factory=lambda: np.zeros(POINTS))
    count: Floats = field(default_factory=lambda: np.zeros(POINTS))
    least: float = math.inf
    most: float = -math.inf

    def add(self, at: int, value: float) -> None:
        if math.isfinite(value):
            self.total[at] += value
            self.count[at] += 1
            self.least, self.most = min(self.least, value), max(self.most, value)


_Key = tuple[str, str, str]  # machine, chart, curve


def machines(store: Store, run: str, found: Activity) -> Machines:
    """Charts of a run's machines, on the time axis of its activity.

    Raises:
        GoneError: the run ended while it was being read.
    """
    every = max(1, -(-sum(table.num_rows for table in _read(store, run, ("time",))) // MOST_SAMPLES))
    steps = {worker.name: worker.said for worker in found.workers}
    series: dict[_Key, _Series] = defaultdict(_Series)
    full: dict[str, float] = {}
    for number, sample in enumerate(_samples(store, run)):
        if number % every == 0:
            at = int((sample["time"] - found.began) / found.seconds * POINTS)
            if -1 <= at <= POINTS:
                _add(series, full, sample, min(max(at, 0), POINTS - 1), steps)
    if not any(chart == GPU_MEMORY and not curve.startswith(_CARD) for _, chart, curve in series):
        _add_torch(series, store, run, found, steps)
    return _machines(series, full, every)


def _add_torch(series: dict[_Key, _Series], store: Store, run: str, found: Activity, steps: Mapping[str, str]) -> None:
    """What torch held at the end of each call, where NVML does not tell processes apart, as in a container."""
    wanted = ("worker", "node", "started", "seconds", "vram_reserved_gb")
    for table in batches(store, CALLS, run, to_table, columns=wanted):
        for row in table.filter(table["vram_reserved_gb"].is_valid()).to_pylist():
            at = int((row["started"] + row["seconds"] - found.began) / found.seconds * POINTS)
            pid = row["worker"].rpartition(":")[2]
            curve = f"{steps.get(row['worker'], '?')} ({pid}), reserved by torch"
            series[row["node"], GPU_MEMORY, curve].add(min(max(at, 0), POINTS - 1), row["vram_reserved_gb"])


def _read(store: Store, run: str, columns: Sequence[str] = ()) -> Iterator[Any]:
    return batches(store, NODES, run, nodes.to_table, columns=columns)


def _samples(store: Store, run: str) -> Iterator[Mapping[str, Any]]:
    wanted = ("node", "time", "cpu_percent", "memory_gb", "workers_gb", "store_gb", "gpus", "gpu_processes_gb")
    for table in _read(store, run, wanted):
        yield from table.to_pylist()


def _add(
    series: dict[_Key, _Series], full: dict[str, float], sample: Mapping[str, Any], at: int, steps: Mapping[str, str]
) -> None:
    node = sample["node"]

    def put(chart: str, curve: str, value: float | None) -> None:
        if value is not None:
            series[node, chart, curve].add(at, float(value))

    put(CPU, "all cores", sample["cpu_percent"])
    put(MEMORY, "in use by everybody", sample["memory_gb"])
    put(MEMORY, "Ray's object store", sample["store_gb"])
    for chart, name in ((MEMORY, "workers_gb"), (GPU_MEMORY, "gpu_processes_gb")):
        for pid, gb in sample[name] or ():
            if known := steps.get(f"{node}:{pid}"):
                put(chart, f"{known} ({pid})", gb)
    for number, card in enumerate(sample["gpus"] or ()):
        put(GPU_USE, f"{_CARD} {number}", card["use_percent"])
        put(GPU_MEMORY, f"{_CARD} {number}, everybody", card["memory_gb"])
        if card["total_gb"]:
            full[node] = max(full.get(node, 0.0), card["total_gb"])


def _machines(series: Mapping[_Key, _Series], full: Mapping[str, float], every: int) -> Machines:
    names = sorted({node for node, _, _ in series})
    shown = names[:MOST_MACHINES]
    charts = [
        _chart(node, what, many=len(names) > 1, curves=curves, limit=full.get(node) if what == GPU_MEMORY else None)
        for node in shown
        for what in _UNITS
        if (curves := {curve: one for (at, about, curve), one in series.items() if (at, about) == (node, what)})
    ]
    notes = [] if any(what == GPU_USE for _, what, _ in series) else ["No GPU was sampled"]
    if len(names) > len(shown):
        notes.append(f"{len(names) - len(shown)} more machines are not drawn")
    if every > 1:
        notes.append(f"Every {every:,}th sample is in the curves")
    return Machines(charts=tuple(charts), note="; ".join(notes) + "." if notes else "")


def _chart(node: str, what: str, *, many: bool, curves: Mapping[str, _Series], limit: float | None) -> Chart:
    known = {name: one for name, one in curves.items() if one.count.any()}
    ranked = sorted(known, key=lambda name: (-known[name].most, name))[:MOST_CURVES]
    unit = _UNITS[what]
    highest = max([known[name].most for name in ranked] + ([limit] if limit else []), default=1.0)
    return Chart(
        title=f"{what[0].upper()}{what[1:]}{f' of {node}' if many else ''}",
        unit=unit,
        top=100.0 if unit == "%" else round_up(highest),
        curves=tuple(_curve(name, known[name]) for name in ranked),
        left_out=len(known) - len(ranked),
        limit=limit,
    )


def _curve(name: str, one: _Series) -> Curve:
    with np.errstate(invalid="ignore", divide="ignore"):
        values = one.total / one.count
    mean = float(one.total.sum() / one.count.sum())
    return Curve(name=name, values=values, least=one.least, mean=mean, most=one.most)


def round_up(value: float) -> float:
    """The next 1, 2, 2.5, 5 or 10 times a power of ten: where an axis ends."""
    if not value > 0:
        return 1.0
    size = 10.0 ** math.floor(math.log10(value))
    return next(step * size for step in (1, 2, 2.5, 5, 10) if value <= step * size * (1 + 1e-9))
