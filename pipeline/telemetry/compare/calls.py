"""Records of calls as a comparison needs them: columns of numbers, by step, each worker's in the order of time."""

from __future__ import annotations

import math
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from pipeline.errors import DamagedError
from pipeline.storage import Store
from pipeline.telemetry.records import CALL, PACKET, SET_UP, to_table
from pipeline.telemetry.streams import CALLS, read, runs

_MARGIN_S = 2.0  # run.json says when a run began to the second
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


def read_calls(store: Store, run: str | None) -> dict[str, Calls]:
    """By step, what a run wrote down of its calls; empty where it kept no records that this version can read.

    Raises:
        DamagedError: they cannot be read by any.
    """
    if run is None:
        return {}
    try:
        table = read(store, CALLS, run, to_table)
    except (KeyError, ValueError):  # of another version
        return {}
    return {step: _step(table.filter(pc.equal(table["step"], step))) for step in pc.unique(table["step"]).to_pylist()}


def run_of(store: Store, record: Mapping[str, Any]) -> str | None:
    """The run that an output's run.json tells of, where it kept records: by its name, else by when it began.

    Args:
        store: the output; other runs into it may have left records too.
        record: its run.json; empty where no run has come to its end, which asks for the one that began last.
    """
    known, named = runs(store), record.get("throughput")
    if isinstance(named, Mapping) and named.get("run") in known:
        return str(named["run"])
    every = {run: _began(store, run) for run in known}
    begun = {run: at for run, at in every.items() if at is not None}
    if record:
        begin, end = _window(record)
        begun = {run: at for run, at in begun.items() if begin <= at <= end}
    damaged = [run for run, at in every.items() if at is None]  # where no other is meant, it may be one of these
    return max(begun, key=lambda run: begun[run], default=next(iter(damaged), None))


def _began(store: Store, run: str) -> float | None:
    """When a run's first record began; None where its records are damaged."""
    try:
        return float(pc.min(read(store, CALLS, run, to_table)["started"]).as_py() or 0.0)
    except DamagedError:
        return None
    except (KeyError, ValueError):  # of another version
        return 0.0


def _window(record: Mapping[str, Any]) -> tuple[float, float]:
    """When it began and ended, in seconds since the epoch, amply; empty where it does not say."""
    with suppress(KeyError, TypeError, ValueError):
        begun = datetime.fromisoformat(record["started"]).timestamp()
        return begun - _MARGIN_S, begun + float(record["seconds"]) + _MARGIN_S
    return math.inf, -math.inf


def _step(table: pa.Table) -> Calls:
    kinds = np.array(table["kind"].to_pylist(), dtype=object)
    started, seconds = table["started"].to_numpy(), table["seconds"].to_numpy()
    rows = table["rows"].to_numpy()
    packets = kinds == PACKET  # those without rows too, of files that fail or end: their time is the step's
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
