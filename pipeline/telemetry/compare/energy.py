"""What a run's GPUs used, from the power that node samplers wrote down; what the rest drew is not measured."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterator, Mapping
from contextlib import suppress
from typing import Any

import numpy as np

from pipeline.storage import Store
from pipeline.telemetry.compare.calls import PROFILE, window
from pipeline.telemetry.compare.runs import Run

LONGEST_GAP_S = 5.0  # twenty samples: across a longer one nothing is known


def energy_wh(run: Run) -> float | None:
    """Energy of a run's GPUs in Wh; None where no power was measured."""
    begin, end = window(run.record) or (-np.inf, np.inf)
    moments: dict[str, dict[float, float]] = defaultdict(dict)
    for row in _samples(run.store):
        watts = [card["power_w"] for card in row.get("gpus") or () if card.get("power_w") is not None]
        if watts and begin <= row["time"] <= end:
            moments[row["node"]][row["time"]] = sum(watts)
    found = [_joules(at) for at in moments.values() if len(at) > 1]
    return sum(found) / 3600 if found else None


def _joules(watts: Mapping[float, float]) -> float:
    times = np.array(sorted(watts))
    power, steps = np.array([watts[at] for at in times.tolist()]), np.diff(times)
    return float((steps * (power[1:] + power[:-1]) / 2)[steps <= LONGEST_GAP_S].sum())


def _samples(store: Store) -> Iterator[Mapping[str, Any]]:
    for name in store.names(PROFILE):
        if name.startswith("nodes-") and name.endswith(".parquet"):
            yield from store.read_table(f"{PROFILE}/{name}", ["node", "time", "gpus"]).to_pylist()
        elif name.startswith("nodes-"):
            for line in store.read(f"{PROFILE}/{name}").splitlines():
                with suppress(ValueError):  # the last line of a killed run may be torn
                    yield json.loads(line)
