"""What a run's GPUs used, from the power that node samplers wrote down; what the rest drew is not measured."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping

import numpy as np

from pipeline.errors import DamagedError
from pipeline.telemetry.compare.runs import Run
from pipeline.telemetry.nodes import to_table
from pipeline.telemetry.streams import NODES, read

LONGEST_GAP_S = 5.0  # twenty samples: across a longer one nothing is known


def energy_wh(run: Run) -> float | None:
    """Energy of a run's GPUs in Wh; None where no power was measured."""
    if run.recorded is None:
        return None
    try:
        samples = read(run.store, NODES, run.recorded, to_table)
    except (DamagedError, KeyError, ValueError):  # or of another version
        return None
    moments: dict[str, dict[float, float]] = defaultdict(dict)
    for row in samples.select(["node", "time", "gpus"]).to_pylist():
        watts = [card["power_w"] for card in row["gpus"] or () if card["power_w"] is not None]
        if watts:
            moments[row["node"]][row["time"]] = sum(watts)
    found = [_joules(at) for at in moments.values() if len(at) > 1]
    return sum(found) / 3600 if found else None


def _joules(watts: Mapping[float, float]) -> float:
    times = np.array(sorted(watts))
    power, steps = np.array([watts[at] for at in times.tolist()]), np.diff(times)
    return float((steps * (power[1:] + power[:-1]) / 2)[steps <= LONGEST_GAP_S].sum())
