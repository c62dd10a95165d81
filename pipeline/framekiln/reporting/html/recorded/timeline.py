"""The timeline of a run: a lane for each process, its longest stalls, and GPUs, cores and memory of its machines."""

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import islice, pairwise
from typing import Any

import numpy as np

from framekiln.contract.errors import DamagedError, OutputError
from framekiln.output.object_store import Store
from framekiln.profiling.record_log import CALLS, NODES, batches
from framekiln.reporting.html.recorded import activity as grid
from framekiln.reporting.kit.lines import POINTS, Chart, Curve, draw_chart
from framekiln.reporting.kit.texts import TextTable, duration, elapsed, plain_table, share, shorten

MOST_SAMPLES = 20_000  # read one by one; of more, every n-th
MOST_MACHINES = 4

GPU_USE, GPU_MEMORY, CPU, MEMORY = "GPU use", "GPU memory", "CPU", "memory"
_UNITS = {GPU_USE: "%", GPU_MEMORY: "GB", CPU: "%", MEMORY: "GB"}
_SAMPLE = ("node", "time", "cpu_percent", "memory_gb", "workers_gb", "store_gb", "gpus", "gpu_processes_gb")
_RESERVED = ("worker", "node", "started", "seconds", "vram_reserved_gb")
_GPU = "GPU"
_FULL = "GB of the largest GPU"  # no chart, but a chart's limit

_Key = tuple[str, str, str]  # machine, chart, curve

MOST_LANES = 40
STALLS = 8  # the longest ones are listed
LEAST_STALL = 0.02  # share of the run; shorter stalls are not worth a search
_TICKS = 5
_HEIGHT = 12.0
_PLACES = {grid.SETTING_UP: (3.0, 6.0), grid.STARVED: (9.0, 3.0), grid.HELD: (0.0, 3.0)}
"""Top and height inside a lane, so that activities other than work can be distinguished without colours."""


def timeline(activity: grid.Activity | None) -> dict[str, Any] | None:
    """Return a run's lanes, the occurring kinds of activity, and stalls; None without records."""
    if activity is None or not activity.processes:
        return None
    seen, places = Counter[tuple[str, ...]](), list[int]()  # of each process among those of its steps
    for process in activity.processes:
        places.append(seen[process.steps])
        seen[process.steps] += 1
    ranked = np.argsort(places, kind="stable")[:MOST_LANES]  # some of each set of steps, so that every step has a lane
    shown = [activity.processes[place] for place in sorted(ranked)]
    totals = np.sum([process.seconds.sum(axis=1) for process in activity.processes], axis=0)
    length = activity.seconds
    times = [length * i / (_TICKS - 1) for i in range(_TICKS)]
    return {
        "lanes": shown,
        "kinds": [kind for kind, seconds in zip(grid.KINDS, totals, strict=True) if seconds > 0],
        "ticks": [elapsed(round(time) if length > 4 * _TICKS else time) for time in times],  # a fraction is invisible
        "stalls": _find_stalls(activity),
        "slice": duration(length / grid.SLICES),
        "left_out": len(activity.processes) - len(shown) + activity.left_out,
    }


def timeline_table(timeline: Mapping[str, Any]) -> TextTable:
    """Return the shares of each activity in each lane."""
    kinds = timeline["kinds"]
    rows = [
        [shorten(lane.title, 80), shorten(lane.name, 60), *(share(lane.share(kind)) for kind in kinds)]
        for lane in timeline["lanes"]
    ]
    return plain_table("Activity of each process", ["Steps", "Process", *kinds], rows, texts=2)


def lane_summary(process: grid.ProcessActivity, kinds: Sequence[str]) -> str:
    """Return the shares of a process's work and other activities in words."""
    shares = {"working": sum(process.share(kind) for kind in grid.WORK)}
    shares |= {kind: process.share(kind) for kind in kinds if kind not in grid.WORK}
    return ", ".join(f"{name} {share(part)}" for name, part in shares.items())


def lane_paths(process: grid.ProcessActivity) -> dict[str, str]:
    """Return a path for each kind: a rectangle for each stretch in which it took most of the time."""
    paths: dict[str, str] = defaultdict(str)
    for kind, start, stop in stretches(process):
        if kind != grid.IDLE:
            top, height = _PLACES.get(kind, (0.0, _HEIGHT))
            paths[kind] += f"M{start} {top:g}h{stop - start}v{height:g}h-{stop - start}z"
    return paths


def stretches(process: grid.ProcessActivity) -> Iterator[tuple[str, int, int]]:
    """Yield the main activity of a process with its first slice and the one after its last."""
    main = process.seconds.argmax(axis=0)
    edges = [0, *(np.flatnonzero(np.diff(main)) + 1).tolist(), grid.SLICES]
    for start, stop in pairwise(edges):
        yield grid.KINDS[int(main[start])], start, stop


def _find_stalls(activity: grid.Activity) -> list[dict[str, Any]]:
    """Return the longest times without work; `begin`: seconds since the run's begin."""
    width = activity.seconds / grid.SLICES
    stalls = list[dict[str, Any]]()
    for process in activity.processes:
        own = list(stretches(process))
        busy = [i for i, (kind, _, _) in enumerate(own) if kind in grid.WORK]
        for i, (kind, start, stop) in enumerate(own):
            between = bool(busy) and busy[0] < i < busy[-1]
            stands = kind in (grid.STARVED, grid.HELD) or (kind == grid.IDLE and between)
            if stands and stop - start >= LEAST_STALL * grid.SLICES:
                first, last = (activity.steps.index(process.steps[i]) for i in (0, -1))
                giver = f"input from {activity.steps[first - 1]}" if first else "files to be handed out"
                reader = "".join(f" to {step}" for step in activity.steps[last + 1 : last + 2])
                reason = {
                    grid.STARVED: f"it waited for {giver}",
                    grid.HELD: f"it handed a packet on{reader}: it packed and stored it, and waited for room",
                    grid.IDLE: "it was idle: its records show nothing between two packets",
                }[kind]
                place = {"begin": start * width, "seconds": (stop - start) * width}
                stalls.append({"process": process, "reason": reason, **place})
    return sorted(stalls, key=lambda one: (-one["seconds"], one["begin"], one["process"].name))[:STALLS]


def machine_charts(store: Store, run: str, activity: grid.Activity) -> tuple[list[Chart], str]:
    """Return charts of a run's machines on the time axis of its activity, and what they leave out.

    If NVML does not report processes' memory, as in a container, the memory that torch reserved after each call
    replaces it. Raises GoneError: the run ended during the reading.
    """
    titles = {process.name: process.title for process in activity.processes}
    curves: dict[_Key, Curve] = defaultdict(Curve)

    def add(node: str, time: float, values: Iterable[tuple[str, str, float | None]]) -> None:
        point = int((time - activity.began) / activity.seconds * POINTS)
        for chart, curve, value in values if -1 <= point <= POINTS else ():
            if value is not None:
                curves[node, chart, curve].add(min(max(point, 0), POINTS - 1), float(value))

    every = max(1, -(-sum(table.num_rows for table in batches(store, NODES, run, columns=("time",))) // MOST_SAMPLES))
    samples = (sample for table in batches(store, NODES, run, columns=_SAMPLE) for sample in table.to_pylist())
    for sample in islice(samples, 0, None, every):
        add(sample["node"], sample["time"], _read_sample(sample, titles))
    if not any(chart == GPU_MEMORY and not curve.startswith(_GPU) for _, chart, curve in curves):
        for table in batches(store, CALLS, run, columns=_RESERVED):
            for row in table.filter(table["vram_reserved_gb"].is_valid()).to_pylist():
                title, pid = titles.get(row["worker"], "?"), row["worker"].rpartition(":")[2]
                value = GPU_MEMORY, f"{title} ({pid}), reserved by torch", row["vram_reserved_gb"]
                add(row["node"], row["started"] + row["seconds"], [value])
    return _draw_charts(curves, every)


def _read_sample(sample: Mapping[str, Any], titles: Mapping[str, str]) -> Iterator[tuple[str, str, float | None]]:
    """Yield the chart, the curve and the value of each quantity."""
    yield CPU, "all cores", sample["cpu_percent"]
    yield MEMORY, "in use, all programs", sample["memory_gb"]
    yield MEMORY, "Ray's object store", sample["store_gb"]
    for chart, name in ((MEMORY, "workers_gb"), (GPU_MEMORY, "gpu_processes_gb")):
        for pid, gb in sample[name] or ():
            if title := titles.get(f"{sample['node']}:{pid}"):
                yield chart, f"{title} ({pid})", gb
    for number, gpu in enumerate(sample["gpus"] or ()):
        yield GPU_USE, f"{_GPU} {number}", gpu["use_percent"]
        yield GPU_MEMORY, f"{_GPU} {number}, all programs", gpu["memory_gb"]
        yield _FULL, "", gpu["total_gb"] or None


def _draw_charts(curves: Mapping[_Key, Curve], every: int) -> tuple[list[Chart], str]:
    nodes = sorted({node for node, _, _ in curves})
    shown = nodes[:MOST_MACHINES]
    charts = []
    for node in shown:
        for title, unit in _UNITS.items():
            own = {key[2]: curve for key, curve in curves.items() if key[:2] == (node, title)}
            ranked = {name: own[name] for name in sorted(own, key=lambda name: (-own[name].most, name))}
            name = f"{title[0].upper()}{title[1:]}{f' of {node}' if len(nodes) > 1 else ''}"
            full = curves.get((node, _FULL, "")) if title == GPU_MEMORY else None
            charts.append(draw_chart(name, unit, ranked, limit=None if full is None else full.most))
    notes = [] if any(title == GPU_USE for _, title, _ in curves) else ["No GPU was sampled"]
    if len(nodes) > len(shown):
        notes.append(f"{len(nodes) - len(shown)} more machines are not drawn")
    if every > 1:
        notes.append(f"Every {every:,}th sample is in the curves")
    return [chart for chart in charts if chart], "; ".join(notes) + "." if notes else ""


def recorded_run(store: Store, own: str | None) -> dict[str, Any]:
    """Return the drawings of a run, or why there are none."""
    drawings: dict[str, Any] = {"timeline": None, "charts": [], "left_out": "", "note": ""}
    missing = drawings | {"note": "There are no records of the processes, so there is no timeline."}
    if own is None:
        return missing
    try:
        activity = grid.read_activity(store, own)
        if activity is None:
            return missing
        charts, left_out = machine_charts(store, own, activity)
        return {"timeline": timeline(activity), "charts": charts, "left_out": left_out, "note": ""}
    except DamagedError as error:
        return drawings | {"note": f"No timeline: {error}"}
    except (OutputError, OSError, ValueError, KeyError):  # gone, or of another version
        return missing
