"""Records of calls as a comparison needs them: columns of numbers, by step, each worker's in the order of time."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from pipeline.storage import Store

PROFILE = "profile"
CALL, PACKET, SET_UP = "call", "packet", "set-up"
_MARGIN_S = 2.0  # run.json says when a run began to the second
_READ: Mapping[str, Any] = {
    "run": pa.string(),
    "kind": pa.string(),
    "step": pa.string(),
    "worker": pa.string(),
    "started": pa.float64(),
    "seconds": pa.float64(),
    "rows": pa.int64(),
    "vram_peak_gb": pa.float64(),
}
Floats = NDArray[np.float64]


@dataclass(frozen=True, kw_only=True, eq=False)
class Calls:
    """One step's calls in one run (n of them) and its packets, sorted by worker and time."""

    worker: NDArray[np.int64]  # n, numbers from 0
    started: Floats  # n, s since the epoch
    seconds: Floats  # n, inside the call
    rows: NDArray[np.int64]  # n, at least 1 each
    vram_peak_gb: float | None = None
    set_up_s: float | None = None  # of the slowest worker
    packet_rows: int = 0
    packet_s: float = 0.0  # inside packets, over all workers
    span_s: float = 0.0  # from the first packet's start to the end of the last

    @property
    def cycles(self) -> Floats:
        """Seconds from each call's start to its worker's next call; of a worker's last call, inside it."""
        following = np.append(self.started[1:], np.inf)
        last = np.append(self.worker[1:] != self.worker[:-1], True)
        return np.where(last, self.seconds, np.maximum(following - self.started, self.seconds))


def calls_of(worker: Any, started: Any, seconds: Any, rows: Any, **more: Any) -> Calls:
    """Calls in any order, as `Calls`; those without rows are left out."""
    names, numbers = np.unique(np.asarray(worker), return_inverse=True)
    times, spent = np.asarray(started, np.float64), np.asarray(seconds, np.float64)
    amounts = np.asarray(rows, np.int64)
    order = np.lexsort((times, numbers)) if len(names) else np.zeros(0, np.int64)
    order = order[amounts[order] > 0]
    return Calls(
        worker=numbers[order].astype(np.int64), started=times[order], seconds=spent[order], rows=amounts[order], **more
    )


def read_calls(store: Store, record: Mapping[str, Any]) -> dict[str, Calls]:
    """By step, what an output's last run wrote down of its calls; empty where it kept no records.

    Args:
        store: the output; records of earlier runs into it may lie there too.
        record: its run.json, which says when the run was; empty for the run that wrote last.
    """
    names = [name for name in store.names(PROFILE) if name.startswith("calls-")]
    parts = [part for name in names if (part := _table(store, f"{PROFILE}/{name}")) is not None and len(part)]
    if not parts:
        return {}
    table = _of_run(pa.concat_tables(parts), record)
    return {step: _step(table.filter(pc.equal(table["step"], step))) for step in _steps(table)}


def _steps(table: pa.Table) -> list[str]:
    return [str(name) for name in pc.unique(table["step"]).to_pylist()]


def _table(store: Store, path: str) -> pa.Table | None:
    schema = pa.schema(list(_READ.items()))
    if path.endswith(".parquet"):
        found = store.read_table(path)
        columns = [
            found[name].cast(kind) if name in found.column_names else pa.nulls(len(found), kind)
            for name, kind in _READ.items()
        ]
        return pa.table(columns, schema=schema)
    if path.endswith(".jsonl"):
        lines = [{name: line.get(name) for name in _READ} for line in _lines(store.read(path))]
        return pa.Table.from_pylist(lines, schema=schema)
    return None


def _lines(data: bytes) -> Iterator[dict[str, Any]]:
    """Whole lines of a stream; a killed worker may have torn the last."""
    for line in data.splitlines():
        with suppress(ValueError):
            if isinstance(said := json.loads(line), dict):
                yield said


def window(record: Mapping[str, Any]) -> tuple[float, float] | None:
    """When the run of a run.json began and ended, in seconds since the epoch, amply; None where it does not say."""
    with suppress(KeyError, TypeError, ValueError):
        begun = datetime.fromisoformat(record["started"]).timestamp()
        return begun - _MARGIN_S, begun + float(record["seconds"]) + _MARGIN_S
    return None


def _of_run(table: pa.Table, record: Mapping[str, Any]) -> pa.Table:
    """Records of the run that run.json tells of: by its name, else by the time."""
    named = record.get("throughput")
    if isinstance(named, Mapping) and named.get("run") in table["run"].to_pylist():
        return table.filter(pc.equal(table["run"], named["run"]))
    known = window(record)
    if known is None:
        firsts = table.group_by("run").aggregate([("started", "max")])
        latest = max(zip(firsts["started_max"].to_pylist(), firsts["run"].to_pylist(), strict=True))[1]
        return table.filter(pc.equal(table["run"], latest))
    times = table["started"].to_numpy()
    return table.filter(pa.array((times >= known[0]) & (times <= known[1])))


def _step(table: pa.Table) -> Calls:
    kinds = np.array(table["kind"].to_pylist(), dtype=object)
    started, seconds = table["started"].to_numpy(), table["seconds"].to_numpy()
    rows = pc.fill_null(table["rows"], 0).to_numpy()
    packets = (kinds == PACKET) & (rows > 0)
    picked = kinds == CALL if (kinds == CALL).any() else packets
    more: dict[str, Any] = {"vram_peak_gb": pc.max(table["vram_peak_gb"]).as_py()}
    if (set_up := seconds[kinds == SET_UP]).size:
        more["set_up_s"] = float(set_up.max())
    if packets.any():
        first, last = started[packets].min(), (started + seconds)[packets].max()
        more |= {
            "packet_rows": int(rows[packets].sum()),
            "packet_s": float(seconds[packets].sum()),
            "span_s": last - first,
        }
    workers = np.array(table["worker"].to_pylist(), dtype=object)[picked].astype(str)
    return calls_of(workers, started[picked], seconds[picked], rows[picked], **more)
