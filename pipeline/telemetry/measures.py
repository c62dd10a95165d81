"""Figures from records: how fast each step and each of its processes was, and what it did with its time.

docs/profiling.md says of each figure what it means and how it is computed. Nothing is read here but tables. Packets
without rows, of files that cannot be read and of the ends of files, count as time and as no packet: a process was at
work on them, and said nothing of what a row takes.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from pipeline.failure import DECODE
from pipeline.telemetry.records import CALL, DURATIONS, HAND_ON, PACKET, SET_UP

INSIDE = tuple(name for name in DURATIONS if name not in ("wait", "fetch", "seal"))
"""Durations that are part of a packet's seconds."""

STEADY = (0.2, 0.8)  # shares of the rows between which a step's rate is steady: its start and its end are not in it
_LEAST_SAMPLES = 4  # of a machine, a second's: the first one of a run tells nothing
_LEAST_MOMENTS = 5  # packets below which a steady rate would be of one or two of them

Floats = NDArray[np.float64]
Percentiles = tuple[float, float, float]


@dataclass(frozen=True, kw_only=True)
class Use:
    """What processes did with their time from the first packet of a step to the last; shares, 0 to 1."""

    rows: int
    rows_per_s: float
    steady_rows_per_s: float | None  # None where there were too few packets to tell
    seconds: float  # inside the step
    busy: float  # in the step
    process_busy: float  # in any step of the process
    starved: float  # waiting for input
    held: float  # handing packets on


@dataclass(frozen=True, kw_only=True)
class StepMeasures(Use):
    """One step, over all its processes."""

    step: str
    device: str
    later: bool  # of the second pass
    beside_decode: bool  # whether its processes decode too
    workers: Mapping[str, Use]
    packets: int
    calls: int
    call_ms: Percentiles  # p50, p95, p99; of decoding, a packet stands for a call
    row_ms: Percentiles  # a call's time by its rows
    phases: Mapping[str, float]  # share of the step's seconds
    set_up_s: float  # of the slowest process
    begin: float  # seconds since the epoch
    end: float
    retries: int
    vram_peak_gb: float | None
    gpu_use: float | None  # mean utilisation of its machines' GPUs during its calls, 0 to 1
    cpu_use: float | None = None  # mean use of its machines' cores during its packets, by whomever, 0 to 1

    def to_dict(self) -> dict[str, Any]:
        """For run.json, with four digits after the point."""
        return {name: _rounded(value) for name, value in asdict(self).items() if name != "step"}


def measure(calls: pa.Table, nodes: pa.Table | None = None) -> list[StepMeasures]:
    """Figures of each step that a row came out of, in the order in which they began.

    Args:
        calls: records, as `pipeline.telemetry.records.SCHEMA`.
        nodes: samples of the machines, as `pipeline.telemetry.nodes.SCHEMA`; None for none.
    """
    packets = calls.filter(pc.equal(calls["kind"], PACKET)).sort_by("started")
    made = set(_with_rows(packets)["step"].to_pylist())
    return [_step(name, calls, packets, nodes) for name in pc.unique(packets["step"]).to_pylist() if name in made]


def _step(name: str, calls: pa.Table, packets: pa.Table, nodes: pa.Table | None) -> StepMeasures:
    mine = packets.filter(pc.equal(packets["step"], name))
    own = calls.filter(pc.equal(calls["step"], name))
    made = own.filter(pc.equal(own["kind"], CALL))
    whole = _with_rows(mine)
    units = whole if name == DECODE else made
    workers = pc.unique(mine["worker"]).to_pylist()
    uses = {one: _use(_of(mine, one), _of(calls, one)) for one in workers}
    spans = {one: _span(_of(mine, one)) for one in workers}
    decoding = set(calls.filter(pc.equal(calls["step"], DECODE))["worker"].to_pylist())
    seconds = float(pc.sum(mine["seconds"]).as_py())
    return StepMeasures(
        step=name,
        device=mine["device"][0].as_py(),
        later=str(mine["unit"][0].as_py() or "").endswith(".parquet"),
        beside_decode=name != DECODE and bool(decoding & set(workers)),
        workers=uses,
        **_together(uses, spans, mine),
        packets=whole.num_rows,
        calls=units.num_rows,
        call_ms=_percentiles(_floats(units, "seconds")),
        row_ms=_percentiles(_floats(units, "seconds") / np.maximum(1, _floats(units, "rows"))),
        phases=_phases(mine, seconds),
        set_up_s=float(pc.max(own.filter(pc.equal(own["kind"], SET_UP))["seconds"]).as_py() or 0.0),
        begin=float(pc.min(mine["started"]).as_py()),
        end=float(_ends(mine).max()),
        retries=int(pc.sum(mine["retries"]).as_py()),
        vram_peak_gb=pc.max(mine["vram_peak_gb"]).as_py(),
        gpu_use=gpu_use(made, nodes),
        cpu_use=cpu_use(mine, nodes),
    )


def _use(mine: pa.Table, process: pa.Table) -> Use:
    """One process's time between the beginning of its first packet in a step and the end of its last one."""
    begin, end = _span(mine)
    started = _floats(process, "started")
    kinds = np.array(process["kind"].to_pylist())
    inside = (started >= begin) & (started < max(end, np.nextafter(begin, np.inf)))
    span = max(end - begin, 1e-9)
    seconds = float(_floats(mine, "seconds").sum())
    working = float(_floats(process, "seconds")[inside & (kinds == PACKET)].sum())
    waiting = float(_floats(process, "wait")[inside & (started > begin)].sum())
    handing = float(_floats(process, "seal")[inside & (kinds == HAND_ON)].sum())
    rows = int(_floats(mine, "rows").sum())
    return Use(
        rows=rows,
        rows_per_s=rows / span,
        steady_rows_per_s=_steady(mine),
        seconds=seconds,
        busy=min(1.0, seconds / span),
        process_busy=min(1.0, working / span),
        starved=min(1.0, waiting / span),
        held=min(1.0, handing / span),
    )


def _together(uses: Mapping[str, Use], spans: Mapping[str, tuple[float, float]], mine: pa.Table) -> dict[str, Any]:
    """Shares of all processes, each weighed by how long it was there; rates from the first start to the last end."""
    lengths = {one: max(end - begin, 1e-9) for one, (begin, end) in spans.items()}
    total = sum(lengths.values())
    names = ("busy", "process_busy", "starved", "held")
    shares = {name: sum(getattr(uses[one], name) * lengths[one] for one in uses) / total for name in names}
    begin, end = _span(mine)
    rows = int(_floats(mine, "rows").sum())
    return shares | {
        "rows": rows,
        "rows_per_s": rows / max(end - begin, 1e-9),
        "steady_rows_per_s": _steady(mine),
        "seconds": float(_floats(mine, "seconds").sum()),
    }


def _steady(mine: pa.Table) -> float | None:
    whole = _with_rows(mine)
    return steady_rate(_ends(whole), _floats(whole, "rows"))


def steady_rate(ends: Floats, rows: Floats) -> float | None:
    """Rows a second between the moments when a fifth and four fifths of the rows were finished.

    None with fewer than five packets, or where all between ended at one moment.
    """
    if len(ends) < _LEAST_MOMENTS:
        return None
    order = np.argsort(ends)
    moments, done = ends[order], np.cumsum(rows[order])
    first, last = (int(np.searchsorted(done, share * done[-1])) for share in STEADY)
    length = moments[last] - moments[first]
    return float((done[last] - done[first]) / length) if length > 0 else None


def gpu_use(calls: pa.Table, nodes: pa.Table | None) -> float | None:
    """Mean utilisation of GPUs, 0 to 1, over the samples that fell into a call on the same machine; None without any.

    Of a machine with several GPUs the busiest counts, sample by sample: which of them a call used is not known.
    """
    calls = calls.filter(pc.and_(pc.equal(calls["device"], "cuda"), pc.equal(calls["kind"], CALL)))
    if nodes is None or not calls.num_rows:
        return None
    cards = _during(calls, nodes, "gpus")
    told = [[card["use_percent"] for card in each or () if card["use_percent"] is not None] for each in cards]
    found = [max(uses) / 100 for uses in told if uses]
    return float(np.mean(found)) if found else None


def cpu_use(packets: pa.Table, nodes: pa.Table | None) -> float | None:
    """Mean use of all cores, 0 to 1, over the samples that fell into a packet on the same machine; None of too few."""
    found = [use / 100 for use in _during(packets, nodes, "cpu_percent") if use is not None] if nodes else []
    return float(np.mean(found)) if len(found) >= _LEAST_SAMPLES else None


def _during(records: pa.Table, nodes: pa.Table, name: str) -> Iterator[Any]:
    """What samples of a machine say while one of its records went on."""
    for node in pc.unique(records["node"]).to_pylist():
        mine = records.filter(pc.equal(records["node"], node)).sort_by("started")
        starts, reach = _floats(mine, "started"), np.maximum.accumulate(_ends(mine))
        there = nodes.filter(pc.equal(nodes["node"], node))
        for moment, value in zip(there["time"].to_pylist(), there[name].to_pylist(), strict=True):
            before = int(np.searchsorted(starts, moment, side="right")) - 1
            if before >= 0 and moment <= reach[before]:
                yield value


def _phases(mine: pa.Table, seconds: float) -> dict[str, float]:
    sums = {name: float(pc.sum(mine[name]).as_py() or 0.0) for name in INSIDE}
    known = {name: value / seconds for name, value in sums.items() if value and seconds}
    return known | {"other": max(0.0, 1.0 - sum(known.values()))}


def _percentiles(values: Floats) -> Percentiles:
    """p50, p95 and p99 in ms of values in s; zeros where there are none."""
    if not len(values):
        return (0.0, 0.0, 0.0)
    p50, p95, p99 = (float(one) for one in 1000 * np.percentile(values, (50, 95, 99)))
    return p50, p95, p99


def _with_rows(packets: pa.Table) -> pa.Table:
    return packets.filter(pc.greater(packets["rows"], 0))


def _span(mine: pa.Table) -> tuple[float, float]:
    return float(_floats(mine, "started").min()), float(_ends(mine).max())


def _ends(table: pa.Table) -> Floats:
    ends: Floats = _floats(table, "started") + _floats(table, "seconds")
    return ends


def _floats(table: pa.Table, name: str) -> Floats:
    return np.asarray(table[name].to_numpy(), dtype=np.float64)


def _of(table: pa.Table, worker: str) -> pa.Table:
    return table.filter(pc.equal(table["worker"], worker))


def _rounded(value: Any) -> Any:
    if isinstance(value, float):
        return round(value, 4)
    if isinstance(value, Mapping):
        return {key: _rounded(one) for key, one in value.items()}
    return [_rounded(one) for one in value] if isinstance(value, tuple) else value
