"""A step's calls as columns of numbers, sorted by worker and time, as a comparison of runs resamples them."""

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

from framekiln.contract.errors import DamagedError
from framekiln.output.object_store import Store
from framekiln.profiling.record_log import CALLS, read, runs
from framekiln.profiling.records import CALL, PACKET, SET_UP
from framekiln.profiling.stats.node_use import Floats, ends, floats

_MARGIN_S = 2.0  # run.json stores the start of a run to the second


@dataclass(frozen=True, kw_only=True, eq=False)
class StepCalls:
    """One step's n calls and its packets in one run, sorted by worker and time."""

    worker: NDArray[np.int64]  # n, numbers from 0
    started: Floats  # n, seconds since the epoch
    seconds: Floats  # n, inside the call
    rows: NDArray[np.int64]  # n, at least 1 each
    vram_peak_gb: float | None = None
    set_up_s: float | None = None  # of the slowest worker
    packet_rows: int = 0
    packet_s: float = 0.0  # inside packets, over all workers, without the wait for others in the model
    span_s: float = 0.0  # from the first packet's start to the end of the last

    @property
    def cycles(self) -> Floats:
        """Seconds from each call's start to its worker's next call; for a worker's last call, its own seconds."""
        following = np.append(self.started[1:], np.inf)
        last = np.append(self.worker[1:] != self.worker[:-1], True)
        return np.where(last, self.seconds, np.maximum(following - self.started, self.seconds))


def calls_of(worker: Any, started: Any, seconds: Any, rows: Any, **more: Any) -> StepCalls:
    """Return calls sorted by worker and time; calls without rows are left out."""
    names, numbers = np.unique(np.asarray(worker), return_inverse=True)
    times, spent = np.asarray(started, np.float64), np.asarray(seconds, np.float64)
    amounts = np.asarray(rows, np.int64)
    order = np.lexsort((times, numbers)) if len(names) else np.zeros(0, np.int64)
    order = order[amounts[order] > 0]
    return StepCalls(
        worker=numbers[order].astype(np.int64), started=times[order], seconds=spent[order], rows=amounts[order], **more
    )


def read_calls(store: Store, run: str | None) -> dict[str, StepCalls]:
    """Return a run's calls by step; empty without records that this version can read.

    Raises:
        DamagedError: the records cannot be read by any version.
    """
    if run is None:
        return {}
    try:
        records = read(store, CALLS, run)
    except (KeyError, ValueError):  # of another version
        return {}
    names = pc.unique(records["step"]).to_pylist()
    return {name: _step(records.filter(pc.equal(records["step"], name))) for name in names}


def run_of(store: Store, record: Mapping[str, Any]) -> str | None:
    """Return the run that a run.json describes, if it kept records: by its name, else by its start.

    An empty record, as before any run has ended, selects the run that began last.
    """
    known = runs(store)
    if record.get("run") in known:
        return str(record["run"])
    starts = {run: _began(store, run) for run in known}
    damaged = [run for run, began in starts.items() if began is None]
    dated = {run: began for run, began in starts.items() if began is not None}
    if record:
        begin, end = _window(record)
        dated = {run: began for run, began in dated.items() if begin <= began <= end}
    return max(dated, key=lambda run: dated[run], default=next(iter(damaged), None))


def _began(store: Store, run: str) -> float | None:
    """Return when a run's first record began; None where its records are damaged."""
    try:
        return float(pc.min(read(store, CALLS, run)["started"]).as_py() or 0.0)
    except DamagedError:
        return None
    except (KeyError, ValueError):  # of another version
        return 0.0


def _window(record: Mapping[str, Any]) -> tuple[float, float]:
    """Return a run's start and end with a margin, in seconds since the epoch; an empty window if unknown."""
    with suppress(KeyError, TypeError, ValueError):
        began = datetime.fromisoformat(record["started"]).timestamp()
        return began - _MARGIN_S, began + float(record["seconds"]) + _MARGIN_S
    return math.inf, -math.inf


def _step(records: pa.Table) -> StepCalls:
    kinds = np.array(records["kind"].to_pylist(), dtype=object)
    started, seconds, rows = floats(records, "started"), floats(records, "seconds"), records["rows"].to_numpy()
    packets = kinds == PACKET  # also those without rows: their time is part of the step's
    chosen = kinds == CALL if (kinds == CALL).any() else packets
    more: dict[str, Any] = {"vram_peak_gb": pc.max(records["vram_peak_gb"]).as_py()}
    if (set_up := seconds[kinds == SET_UP]).size:
        more["set_up_s"] = float(set_up.max())
    if packets.any():
        more["packet_rows"] = int(rows[packets].sum())
        more["packet_s"] = float(seconds[packets].sum() - floats(records, "queue")[packets].sum())
        more["span_s"] = ends(records)[packets].max() - started[packets].min()
    workers = np.array(records["worker"].to_pylist(), dtype=object)[chosen].astype(str)
    return calls_of(workers, started[chosen], seconds[chosen], rows[chosen], **more)
