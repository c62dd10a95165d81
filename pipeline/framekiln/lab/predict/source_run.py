"""The measurements of a run for predictions: seconds a row by phase, workers, batch and rate of each step."""

import math
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from framekiln.contract.errors import ConfigError, OutputError
from framekiln.contract.row_errors import DECODE
from framekiln.output.object_store import Store
from framekiln.planning.gpu.calibration_file import settings_of
from framekiln.planning.sample import COPIES, MODEL, Sample
from framekiln.profiling.record_log import CALLS, NODES, read
from framekiln.profiling.records import INSIDE, PACKET, SET_UP
from framekiln.profiling.run_profile import read_work, run_of
from framekiln.profiling.stats.speed import floats, others_use, phase_seconds
from framekiln.profiling.stats.steps import StepStatistics, step_statistics
from framekiln.runtime.run.progress import FINISHED
from framekiln.runtime.run.record import read_run_record

_SHARED = 0.5  # share of two steps' processes that run both steps; from this share on they count as shared
_MOST_RUNS = 8  # earlier runs that are read completely
_ROUNDED = 0.01  # of a GPU; its shares have two decimals
_LEAST_CORES = 2  # of any machine in a run's record, even of one with a single core
_MIN_PACKETS = 4  # packets of each process from which its first one is left out: that one includes lazy loading


@dataclass(frozen=True, kw_only=True, eq=False)
class PacketTimes:
    """Steady packets of a step, n of them."""

    units: tuple[str, ...]  # units of files; in the second pass the tables' files
    starts: NDArray[np.int64]  # n, first row in the unit
    rows: NDArray[np.int64]  # n
    seconds: NDArray[np.float64]  # n, without waits for other packets


@dataclass(frozen=True, kw_only=True)
class SourceStep:
    """One step of a run: its rows as a sample, and where they were computed."""

    sample: Sample  # its calls, with seconds a row by phase; `other` is the rest
    packets: PacketTimes
    device: str
    workers: int
    in_flight: int  # packets that a process works on at a time
    settings: str  # as `framekiln.planning.gpu.calibration_file.settings_of`; empty for decoding
    compile: bool
    process: str  # the same name for all steps of a process
    gpus: float  # GPUs that all its processes reserve together
    rows_per_s: float  # rate of all its processes; the steady rate if known
    chosen: float = 1.0  # share of the rows that its condition chose; times are of these
    cores: float = 1.0  # cores that a call could use: with a process on each core, a row may take as many times as long

    @property
    def name(self) -> str:
        return self.sample.subject

    @property
    def on_gpu(self) -> bool:
        return self.device != "cpu"


@dataclass(frozen=True, kw_only=True)
class SourceRun:
    """A run and its steps."""

    devices: tuple[str, ...]  # GPUs of its machine, by their drivers' names
    steps: tuple[SourceStep, ...]  # of the first pass, decoding first
    later: tuple[SourceStep, ...]  # of the second pass, which is not predicted on other GPUs
    gpu_gb: float | None = None  # memory of its largest GPU by the driver; None if unknown
    others: float = 0.0  # share of all cores used by other programs meanwhile; 0 if unknown
    shared: float = 1.0  # factor of waits for each other on the GPU; the steps' times are divided by it

    @property
    def gpu_steps(self) -> list[SourceStep]:
        return [step for step in self.steps if step.on_gpu]

    @property
    def rows_per_s(self) -> float:
        """The run's rate, which is its slowest step's."""
        return min(step.rows_per_s for step in self.steps)


def read_source(path: str, *, finished: bool = True, earlier: bool = False) -> SourceRun:
    """Read the last run of an output; `finished` False allows an unfinished one.

    With `earlier`, or if the last run computed no first-pass step, each step comes from the run with most of its work.
    The last run may have added only three files to a million, or none.

    Raises ConfigError: no run is finished. Raises OutputError: the run kept no records, or computed no first-pass step.
    """
    store = Store(path).check_folder()
    record = read_run_record(store, ("state",))
    if finished and record["state"] != FINISHED:
        raise ConfigError(
            f"The run into {store.root!r} is not finished, so its rates are not known for every step; finish it by "
            "the same command, or give another output.",
            code="FK-PREDICT-UNFINISHED",
        )
    last = run_of(store, record)
    names = [*(_list_others(store, last) if earlier else ()), *([last] if last else [])]
    calls = {name: read(store, CALLS, name) for name in names}
    if not any(PACKET in pc.unique(table["kind"]).to_pylist() for table in calls.values()):
        raise OutputError(
            f"There are no records of a run in {path!r}, and a prediction needs them; give the output of a "
            "run with its folder `profile`.",
            code="FK-NO-RECORDS",
        )
    steps, later = _read_steps(calls, record)
    if not (steps or earlier):
        return read_source(path, finished=finished, earlier=True)
    if not steps:
        raise OutputError(
            f"No run into {path!r} computed a row of the first pass: they had second-pass steps only, or no file could "
            "be read; give the output of a run that computed first-pass steps.",
            code="FK-PREDICT-NO-FIRST-PASS",
        )
    gpus, waves = tuple(map(str, record.get("gpu_names") or ())), max(1, len(record.get("waves") or ()))
    ordered = tuple(sorted(steps.values(), key=lambda step: step.name != DECODE))
    others, gpu_gb = _read_machine(store, last, calls[last]) if last else (0.0, None)
    source = SourceRun(devices=gpus, steps=ordered, later=tuple(later.values()), gpu_gb=gpu_gb, others=others)
    return _remove_gpu_waits(source) if waves == 1 else source


def _read_machine(store: Store, run: str, calls: pa.Table) -> tuple[float, float | None]:
    """Return the share of the cores that other programs used during a run, and the memory of its largest GPU."""
    nodes = read(store, NODES, run)
    sizes = pc.struct_field(pc.list_flatten(nodes["gpus"]), "total_gb")
    return others_use(calls, nodes) or 0.0, pc.max(sizes).as_py()


def _read_steps(
    calls: Mapping[str, pa.Table], record: Mapping[str, Any]
) -> tuple[dict[str, SourceStep], dict[str, SourceStep]]:
    steps, later = dict[str, SourceStep](), dict[str, SourceStep]()
    for table in calls.values():
        statistics = step_statistics(table)
        first: dict[str, str] = {}  # the first step in mostly the same processes: decode workers run other steps too
        workers = {step.step: set(step.workers) for step in statistics if not step.later}
        for name, mine in workers.items():
            alike = (one for one in first if len(mine & workers[one]) >= _SHARED * len(mine | workers[one]))
            first[name] = first.get(next(alike, ""), name)
        for each in statistics:
            step = _read_step(each, record, table, first.get(each.step, each.step))
            if each.later:
                later[step.name] = step
                continue
            earlier = steps.get(step.name, step)
            if step.settings != earlier.settings or step.packets.rows.sum() >= earlier.packets.rows.sum():
                steps[step.name] = step  # by other settings, or by more rows
    return steps, later


def _list_others(store: Store, last: str | None) -> list[str]:
    """Return the earlier runs with the most work, in the order of their start."""
    work = read_work(store)
    most = sorted(work.keys() - {last}, key=lambda name: work[name].busy)[-_MOST_RUNS:]
    return sorted(most, key=lambda name: work[name].began)


def _remove_gpu_waits(source: SourceRun) -> SourceRun:
    """Return the run without its processes' waits for each other on the GPU.

    A GPU's clock goes on during another process's turn. A second of the run has one second of each GPU. If the steps'
    GPU times add up to more, all are divided by the same factor.
    """
    gpus = max(1, math.ceil(sum(step.gpus for step in source.gpu_steps) - _ROUNDED))
    on_gpu = sum(step.sample.model_s + step.sample.copies_s for step in source.gpu_steps)
    shared = max(1.0, source.rows_per_s * on_gpu / gpus)
    steps = []
    for step in source.steps:
        waiting = (MODEL, *COPIES) if step.on_gpu else ()
        phases = {name: s / shared if name in waiting else s for name, s in step.sample.phases.items()}
        steps.append(replace(step, sample=step.sample.model_copy(update={"phases": phases})))
    return replace(source, steps=tuple(steps), shared=shared)


def _read_step(step: StepStatistics, record: Mapping[str, Any], calls: pa.Table, process: str) -> SourceStep:
    stored = (record.get("steps") or {}).get(step.step) or {}
    chosen, every = (record.get("chosen") or {}).get(step.step) or (1, 1)
    place = stored.get("placement") or {}
    own = calls.filter(pc.equal(calls["step"], step.step))
    set_ups = own.filter(pc.equal(own["kind"], SET_UP))
    steady = _drop_first(own.filter(pc.equal(own["kind"], PACKET)))
    rows = max(1, int(pc.sum(steady["rows"]).as_py()))
    durations = {phase: float(pc.sum(steady[phase]).as_py() or 0.0) for phase in INSIDE}
    seconds = phase_seconds(durations, float(pc.sum(steady["seconds"]).as_py()))
    seconds.pop("queue", None)  # the other packets' own seconds
    settings = next(filter(None, set_ups["unit"].to_pylist()), "")
    if not settings and {"use", "version", "settings"} <= stored.keys():  # a second-pass step has no set-up of its own
        settings = settings_of(stored)
    sample = Sample(
        subject=step.step,
        batch=int(place.get("batch", 1)),
        megapixels=float(pc.sum(steady["cost"]).as_py() or 0) / rows / 1e6,
        phases={phase: value / rows for phase, value in seconds.items()},
        items={kind: count / rows for kind, count in _count_items(steady).items()},
    )
    return SourceStep(
        sample=sample,
        packets=PacketTimes(
            units=tuple(steady["unit"].to_pylist()),
            starts=steady["start"].to_numpy(),
            rows=steady["rows"].to_numpy(),
            seconds=floats(steady, "seconds") - floats(steady, "queue"),
        ),
        device=str(steady["device"][0].as_py()),
        workers=len(step.workers),
        in_flight=int(place.get("in_flight", 1)),
        settings=settings,
        compile=bool(place.get("compile", False)) and step.step not in (record.get("notes") or {}),  # see `RunTotals`
        process=process,
        gpus=len(step.workers) * float(place.get("gpus", 0.0)),
        rows_per_s=step.steady_rows_per_s or step.rows_per_s,
        chosen=chosen / max(every, 1),
        cores=_count_cores(step, record, float(place.get("cpus") or 1)),
    )


def _count_cores(step: StepStatistics, record: Mapping[str, Any], booked: float) -> float:
    """Return the cores of a process: the booked ones, or its part of all if the engine had few processes."""
    if record.get("engine") != "local":
        return max(1.0, booked)
    cores = sum(float(one.get("cpus", 0)) for one in record.get("machines") or ())
    return max(1.0, cores // len(step.workers)) if cores > _LEAST_CORES else 1.0


def _count_items(packets: pa.Table) -> Counter[str]:
    counts = Counter[str]()
    for items in filter(None, packets["items"].to_pylist()):
        counts.update(dict(items))  # a sum of counters would drop kinds of which nothing was found
    return counts


def _drop_first(packets: pa.Table) -> pa.Table:
    workers = np.array(packets["worker"].to_pylist())
    first = [int(np.flatnonzero(workers == worker)[0]) for worker in np.unique(workers)]
    if packets.num_rows < _MIN_PACKETS * len(first):
        return packets
    keep = np.ones(packets.num_rows, bool)
    keep[first] = False
    rest = packets.filter(pa.array(keep))
    return rest if int(pc.sum(rest["rows"]).as_py() or 0) else packets
