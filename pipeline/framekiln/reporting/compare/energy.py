"""Energy of a run's GPUs, from the power that node samplers recorded; nothing else is measured."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping

import numpy as np

from framekiln.contract.errors import DamagedError
from framekiln.profiling.record_log import NODES, read
from framekiln.reporting.compare.runs import Run

LONGEST_GAP_S = 5.0  # twenty samples; a longer gap is not interpolated


def energy_wh(run: Run) -> float | None:
    """Return the energy of a run's GPUs in Wh; None where no power was measured."""
    if run.recorded is None:
        return None
    try:
        samples = read(run.store, NODES, run.recorded)
    except (DamagedError, KeyError, ValueError):  # damaged, or of another version
        return None
    watts: dict[str, dict[float, float]] = defaultdict(dict)  # by node and time
    for row in samples.select(["node", "time", "gpus"]).to_pylist():
        powers = [gpu["power_w"] for gpu in row["gpus"] or () if gpu["power_w"] is not None]
        if powers:
            watts[row["node"]][row["time"]] = sum(powers)
    joules = [_joules(samples) for samples in watts.values() if len(samples) > 1]
    return sum(joules) / 3600 if joules else None


def _joules(watts: Mapping[float, float]) -> float:
    """Integrate power over time by the trapezoidal rule, without long gaps."""
    times = np.array(sorted(watts))
    power, steps = np.array([watts[time] for time in times.tolist()]), np.diff(times)
    return float((steps * (power[1:] + power[:-1]) / 2)[steps <= LONGEST_GAP_S].sum())
