"""GPUs, their memory, CPUs and memory of a run's machines over time, from the samples of its records."""

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import islice
from typing import Any

from framekiln.output.object_store import Store
from framekiln.profiling.record_log import CALLS, NODES, batches
from framekiln.reporting.html.recorded.activity import Activity
from framekiln.reporting.kit.lines import POINTS, Chart, Curve, draw_chart

MOST_SAMPLES = 20_000  # read one by one; of more, every n-th
MOST_MACHINES = 4

GPU_USE, GPU_MEMORY, CPU, MEMORY = "GPU use", "GPU memory", "CPU", "memory"
_UNITS = {GPU_USE: "%", GPU_MEMORY: "GB", CPU: "%", MEMORY: "GB"}
_SAMPLE = ("node", "time", "cpu_percent", "memory_gb", "workers_gb", "store_gb", "gpus", "gpu_processes_gb")
_GPU = "GPU"

_Key = tuple[str, str, str]  # machine, chart, curve


@dataclass(frozen=True, kw_only=True)
class MachineCharts:
    """Charts of all machines."""

    charts: tuple[Chart, ...]
    note: str  # what is not shown, and why


def machine_charts(store: Store, run: str, activity: Activity) -> MachineCharts:
    """Return charts of a run's machines, on the time axis of its activity.

    Raises GoneError: the run ended during the reading.
    """
    reader = _SampleReader(activity)
    every = max(1, -(-sum(table.num_rows for table in batches(store, NODES, run, columns=("time",))) // MOST_SAMPLES))
    samples = (sample for table in batches(store, NODES, run, columns=_SAMPLE) for sample in table.to_pylist())
    for sample in islice(samples, 0, None, every):
        reader.add(sample)
    if not any(chart == GPU_MEMORY and not curve.startswith(_GPU) for _, chart, curve in reader.curves):
        reader.add_torch_memory(store, run)
    return _draw_charts(reader.curves, reader.limits, every)


class _SampleReader:
    def __init__(self, activity: Activity) -> None:
        self._activity = activity
        self._titles = {process.name: process.title for process in activity.processes}
        self.curves: dict[_Key, Curve] = defaultdict(Curve)
        self.limits: dict[str, float] = {}  # by machine, memory of its largest GPU in GB

    def add(self, sample: Mapping[str, Any]) -> None:
        point = self._point(sample["time"])
        if not -1 <= point <= POINTS:
            return
        point, node = min(max(point, 0), POINTS - 1), sample["node"]
        values = {
            (CPU, "all cores"): sample["cpu_percent"],
            (MEMORY, "in use, all programs"): sample["memory_gb"],
            (MEMORY, "Ray's object store"): sample["store_gb"],
        }
        for chart, name in ((MEMORY, "workers_gb"), (GPU_MEMORY, "gpu_processes_gb")):
            for pid, gb in sample[name] or ():
                if title := self._titles.get(f"{node}:{pid}"):
                    values[chart, f"{title} ({pid})"] = gb
        for number, gpu in enumerate(sample["gpus"] or ()):
            values[GPU_USE, f"{_GPU} {number}"] = gpu["use_percent"]
            values[GPU_MEMORY, f"{_GPU} {number}, all programs"] = gpu["memory_gb"]
            if gpu["total_gb"]:
                self.limits[node] = max(self.limits.get(node, 0.0), gpu["total_gb"])
        for (chart, curve), value in values.items():
            if value is not None:
                self.curves[node, chart, curve].add(point, float(value))

    def add_torch_memory(self, store: Store, run: str) -> None:
        """Add the memory reserved by torch after each call.

        It replaces the memory of processes where NVML does not report it, as in a container.
        """
        columns = ("worker", "node", "started", "seconds", "vram_reserved_gb")
        for table in batches(store, CALLS, run, columns=columns):
            for row in table.filter(table["vram_reserved_gb"].is_valid()).to_pylist():
                point = min(max(self._point(row["started"] + row["seconds"]), 0), POINTS - 1)
                title, pid = self._titles.get(row["worker"], "?"), row["worker"].rpartition(":")[2]
                curve = f"{title} ({pid}), reserved by torch"
                self.curves[row["node"], GPU_MEMORY, curve].add(point, row["vram_reserved_gb"])

    def _point(self, time: float) -> int:
        return int((time - self._activity.began) / self._activity.seconds * POINTS)


def _draw_charts(curves: Mapping[_Key, Curve], limits: Mapping[str, float], every: int) -> MachineCharts:
    nodes = sorted({node for node, _, _ in curves})
    shown = nodes[:MOST_MACHINES]
    charts = []
    for node in shown:
        for title, unit in _UNITS.items():
            own = {key[2]: curve for key, curve in curves.items() if key[:2] == (node, title)}
            ranked = {name: own[name] for name in sorted(own, key=lambda name: (-own[name].most, name))}
            name = f"{title[0].upper()}{title[1:]}{f' of {node}' if len(nodes) > 1 else ''}"
            charts.append(draw_chart(name, unit, ranked, limit=limits.get(node) if title == GPU_MEMORY else None))
    notes = [] if any(title == GPU_USE for _, title, _ in curves) else ["No GPU was sampled"]
    if len(nodes) > len(shown):
        notes.append(f"{len(nodes) - len(shown)} more machines are not drawn")
    if every > 1:
        notes.append(f"Every {every:,}th sample is in the curves")
    return MachineCharts(charts=tuple(filter(None, charts)), note="; ".join(notes) + "." if notes else "")
