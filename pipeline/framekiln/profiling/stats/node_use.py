"""Use of GPUs and cores while a run's records ran, from samples of its nodes."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from framekiln.profiling.records import CALL

_MIN_CPU_SAMPLES = 4  # one second of samples; the first sample of a run has no value

Floats = NDArray[np.float64]


def gpu_use(records: pa.Table, nodes: pa.Table | None) -> float | None:
    """Return the mean utilisation of GPUs, 0 to 1, over samples taken during a call on the same node.

    On a node with several GPUs the busiest one of each sample counts, since records do not tell the GPU of a call.
    None without calls on a GPU or without samples.
    """
    calls = records.filter(pc.and_(pc.equal(records["device"], "cuda"), pc.equal(records["kind"], CALL)))
    if nodes is None or not calls.num_rows:
        return None
    samples = _during(calls, nodes, "gpus")
    known = [[gpu["use_percent"] for gpu in gpus or () if gpu["use_percent"] is not None] for gpus in samples]
    busiest = [max(percents) / 100 for percents in known if percents]
    return float(np.mean(busiest)) if busiest else None


def cpu_use(packets: pa.Table, nodes: pa.Table | None) -> float | None:
    """Return the mean use of all cores, 0 to 1, while packets ran on the node; None with fewer than four samples."""
    samples = _during(packets, nodes, "cpu_percent") if nodes else ()
    shares = [percent / 100 for percent in samples if percent is not None]
    return float(np.mean(shares)) if len(shares) >= _MIN_CPU_SAMPLES else None


def others_use(records: pa.Table, nodes: pa.Table | None) -> float | None:
    """Return the mean use of all cores by programs that are not the run's, 0 to 1, while any record ran.

    None with fewer than four samples, as `cpu_use`.
    """
    if nodes is None:
        return None
    whole, own = (list(_during(records, nodes, name)) for name in ("cpu_percent", "own_cpu_percent"))
    shares = [(one - mine) / 100 for one, mine in zip(whole, own, strict=True) if None not in (one, mine)]
    # A new process is found up to two seconds late, with all it used so far: the mean is right, a sample may not be.
    return max(0.0, float(np.mean(shares))) if len(shares) >= _MIN_CPU_SAMPLES else None


def _during(records: pa.Table, nodes: pa.Table, name: str) -> Iterator[Any]:
    """Yield a column's values from samples that were taken while a record of the same node ran."""
    for node in pc.unique(records["node"]).to_pylist():
        mine = records.filter(pc.equal(records["node"], node)).sort_by("started")
        starts, reach = floats(mine, "started"), np.maximum.accumulate(ends(mine))
        samples = nodes.filter(pc.equal(nodes["node"], node))
        for moment, value in zip(samples["time"].to_pylist(), samples[name].to_pylist(), strict=True):
            before = int(np.searchsorted(starts, moment, side="right")) - 1
            if before >= 0 and moment <= reach[before]:
                yield value


def ends(records: pa.Table) -> Floats:
    """Return when each record ended, in seconds since the epoch."""
    moments: Floats = floats(records, "started") + floats(records, "seconds")
    return moments


def floats(records: pa.Table, name: str) -> Floats:
    """Return a column as numbers."""
    return np.asarray(records[name].to_numpy(), dtype=np.float64)
