"""Statistics of each step: its speed, and how its processes spend their time.

This module computes them from a run's records, and `LiveWindow` from the events of the last seconds.
docs/measuring/profiling.md defines each figure. Packets without rows come from files that cannot be read and from the
ends of files. They count as time, since a process worked on them, but not as packets.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, fields, is_dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from framekiln.contract.row_errors import DECODE
from framekiln.profiling.records import CALL, HAND_ON, INSIDE, PACKET, SET_UP
from framekiln.profiling.stats import speed

NO_CALLS = speed.TimedCalls.of((), (), (), ())
PARTS: Mapping[str, tuple[str, ...]] = {
    "prepare": ("fetch", "preprocess", "upload"),
    "model": ("infer",),
    "finish": ("download", "postprocess", "write"),
}
"""Phases before, in and after a process's model; with several packets in work, all three overlap."""

MODEL_LIMITS = 0.9  # share of time from which a model is full; first setting
WAIT_LIMITS = 0.3  # share of time from which neighbours hold a process up, as in `profiling.advice`


@dataclass(frozen=True, kw_only=True)
class ProcessStatistics:
    """One process in one step. Shares are of its time from the step's first packet to its last, 0 to 1."""

    rows: int
    rows_per_s: float
    steady_rows_per_s: float | None = None  # None with too few packets, and in live statistics
    seconds: float  # inside the step
    begin: float  # start of its first packet in the step, seconds since the epoch
    end: float  # end of its last one
    busy: float  # busy in this step
    process_busy: float  # busy in any step
    starved: float  # waiting for input
    held: float = 0.0  # handing packets on; not in events
    parts: Mapping[str, float] = field(default_factory=dict)
    """By part: its seconds as a share of the process's time, above 1 if packets overlap. Not in events."""

    @property
    def lasted(self) -> float:
        return self.end - self.begin


@dataclass(frozen=True, kw_only=True)
class StepStatistics(ProcessStatistics):
    """One step, over all its processes. `to_dict` gives the fields of run.json."""

    step: str
    device: str
    later: bool = False  # runs in the second pass
    beside_decode: bool = False  # its processes decode too
    workers: Mapping[str, ProcessStatistics]
    packets: int
    calls: int
    call_ms: speed.Percentiles  # p50, p95, p99; in decoding, each packet counts as a call
    row_ms: speed.Percentiles = speed.NO_PERCENTILES  # a call's time by its rows; not in events
    phases: Mapping[str, float]  # share of the step's seconds
    set_up_s: float = 0.0  # set-up of the slowest process
    retries: int
    vram_peak_gb: float | None
    gpu_use: float | None  # mean utilisation of its nodes' GPUs during its calls, 0 to 1
    cpu_use: float | None = None  # mean use of its nodes' cores during its packets, by all programs, 0 to 1
    timed: speed.TimedCalls = NO_CALLS  # calls from records, not from events

    @property
    def totals(self) -> speed.StepTotals:
        """Return the step's sums for run.json and the end of a run; without errors, which records lack."""
        phases = {name: share * self.seconds for name, share in self.phases.items() if name != "other"}
        totals = speed.StepTotals(rows=self.rows, first=self.begin, last=self.end, set_up=self.set_up_s, phases=phases)
        totals.busy, totals.workers = self.seconds - phases.get("queue", 0.0), set(self.workers)
        return totals

    @property
    def working(self) -> float:
        """Return `busy` without waits for the process's other packets and steps in the model, 0 to 1."""
        return self.busy * (1 - self.phases.get("queue", 0.0))

    @property
    def limit(self) -> str:
        """Return the limit of its processes' speed: model, input, output, prepare, finish, or none of these."""
        if self.parts["model"] >= MODEL_LIMITS:
            return "model"
        around = {"input": self.starved, "output": self.held}
        if max(around.values()) >= WAIT_LIMITS:
            return max(around, key=lambda name: around[name])
        side = max(("prepare", "finish"), key=lambda name: self.parts[name])
        return side if self.parts[side] >= WAIT_LIMITS else "nothing of these"

    def to_dict(self) -> dict[str, Any]:
        """Return the fields as run.json stores them, with four decimal places."""
        stored = {one.name: getattr(self, one.name) for one in fields(self) if one.name not in ("step", "timed")}
        return {name: _round(value) for name, value in stored.items()}


def step_statistics(calls: pa.Table, nodes: pa.Table | None = None) -> list[StepStatistics]:
    """Return statistics of each step with at least one row, in the order of their start."""
    packets = calls.filter(pc.equal(calls["kind"], PACKET)).sort_by("started")
    productive = set(_drop_empty(packets)["step"].to_pylist())
    names = [name for name in pc.unique(packets["step"]).to_pylist() if name in productive]
    return [_summarize_step(name, calls, packets.filter(pc.equal(packets["step"], name)), nodes) for name in names]


def _summarize_step(name: str, records: pa.Table, packets: pa.Table, nodes: pa.Table | None) -> StepStatistics:
    own = records.filter(pc.equal(records["step"], name))
    calls = own.filter(pc.equal(own["kind"], CALL))
    whole = _drop_empty(packets)
    timed = whole if name == DECODE else calls
    workers = {worker: _select_worker(packets, worker) for worker in pc.unique(packets["worker"]).to_pylist()}
    decoding = set(records.filter(pc.equal(records["step"], DECODE))["worker"].to_pylist())
    durations = {phase: float(pc.sum(packets[phase]).as_py() or 0.0) for phase in INSIDE}
    seconds, rows = speed.floats(timed, "seconds"), np.maximum(1, speed.floats(timed, "rows"))
    processes = {worker: _summarize_process(mine, _select_worker(records, worker)) for worker, mine in workers.items()}
    begin, end = _find_span(packets)
    return StepStatistics(
        step=name,
        device=packets["device"][0].as_py(),
        later=str(packets["unit"][0].as_py() or "").endswith(".parquet"),
        beside_decode=name != DECODE and bool(decoding & set(workers)),
        **weighted(processes),
        **_compute_amounts(packets, max(end - begin, 1e-9)),
        packets=whole.num_rows,
        calls=timed.num_rows,
        call_ms=speed.percentiles_ms(seconds),
        row_ms=speed.percentiles_ms(seconds / rows),
        timed=speed.TimedCalls.of(*(timed[column].to_numpy() for column in ("worker", "started", "seconds", "rows"))),
        phases=speed.phase_shares(durations, float(pc.sum(packets["seconds"]).as_py())),
        set_up_s=float(pc.max(own.filter(pc.equal(own["kind"], SET_UP))["seconds"]).as_py() or 0.0),
        begin=begin,
        end=end,
        retries=int(pc.sum(packets["retries"]).as_py()),
        vram_peak_gb=pc.max(packets["vram_peak_gb"]).as_py(),
        gpu_use=speed.gpu_use(calls, nodes),
        cpu_use=speed.cpu_use(packets, nodes),
    )


def _summarize_process(packets: pa.Table, records: pa.Table) -> ProcessStatistics:
    """Return a process's statistics in a step, from its packets there and all of its records."""
    begin, end = _find_span(packets)
    started, kinds = speed.floats(records, "started"), np.array(records["kind"].to_pylist())
    inside = (started >= begin) & (started < max(end, np.nextafter(begin, np.inf)))
    length = max(end - begin, 1e-9)

    def share(name: str, chosen: Any) -> float:
        return speed.share_of_time(float(speed.floats(records, name)[inside & chosen].sum()), length)

    def busy(work: pa.Table) -> float:
        covered = speed.covered_s(speed.floats(work, "started"), speed.floats(work, "seconds"))
        return speed.share_of_time(covered, length)

    # On the CPU each packet has a core of its own, so its parts are shares of the time of all these cores.
    lanes = len(pc.unique(packets["lane"])) if packets["device"][0].as_py() == "cpu" else 1
    return ProcessStatistics(
        **_compute_amounts(packets, length),
        begin=begin,
        end=end,
        busy=busy(packets),
        process_busy=busy(records.filter(pa.array(inside & (kinds == PACKET)))),
        starved=share("wait", started > begin),
        held=share("seal", kinds == HAND_ON),
        parts={
            part: sum(float(speed.floats(packets, one).sum()) for one in phases) / length / lanes
            for part, phases in PARTS.items()
        },
    )


def weighted(workers: Mapping[str, ProcessStatistics]) -> dict[str, Any]:
    """Return a step's processes, and their shares weighted by the seconds of each."""
    lengths = np.maximum([one.lasted for one in workers.values()], 1e-9)

    def mean(values: Iterable[float]) -> float:
        return float(np.average(list(values), weights=lengths))

    shares = {
        name: mean(getattr(one, name) for one in workers.values())
        for name in ("busy", "process_busy", "starved", "held")
    }
    known = next(iter(workers.values())).parts
    parts = {part: mean(one.parts[part] for one in workers.values()) for part in known}
    return {**shares, "parts": parts, "workers": workers}


def _compute_amounts(packets: pa.Table, length: float) -> dict[str, Any]:
    whole, rows = _drop_empty(packets), int(speed.floats(packets, "rows").sum())
    amounts, seconds = (speed.floats(whole, name) for name in ("rows", "seconds"))
    return {
        "rows": rows,
        "rows_per_s": speed.rows_per_s(rows, length),
        "steady_rows_per_s": speed.steady_rows_per_s(speed.ends(whole), amounts, seconds),
        "seconds": float(speed.floats(packets, "seconds").sum()),
    }


def _drop_empty(packets: pa.Table) -> pa.Table:
    return packets.filter(pc.greater(packets["rows"], 0))


def _find_span(packets: pa.Table) -> tuple[float, float]:
    return float(speed.floats(packets, "started").min()), float(speed.ends(packets).max())


def _select_worker(records: pa.Table, worker: str) -> pa.Table:
    return records.filter(pc.equal(records["worker"], worker))


def _round(value: Any) -> Any:
    if is_dataclass(value):
        return {name: _round(one) for name, one in vars(value).items()}
    if isinstance(value, float):
        return round(value, 4)
    if isinstance(value, Mapping):
        return {key: _round(one) for key, one in value.items()}
    return [_round(one) for one in value] if isinstance(value, tuple) else value
