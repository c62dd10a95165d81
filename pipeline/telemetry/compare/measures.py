"""A step's figures in one run, by name; what was not measured has no entry.

Where run.json tells a figure, it is that of run.json, so that runs with and without records of calls are compared by
one definition; quantiles are of records alone.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from pipeline.telemetry.compare.calls import Calls
from pipeline.telemetry.compare.runs import Run

QUANTILES: Mapping[str, float] = {"p50": 0.5, "p95": 0.95, "p99": 0.99}
OF_THE_RUN = "run"
"""What stands for a step's name where a figure is of the whole run."""


@dataclass(frozen=True, kw_only=True)
class Figure:
    """One figure."""

    name: str  # as gates call it
    title: str
    unit: str
    noisy: bool = False  # whether calls say how far chance moves it
    counted: bool = False  # whether it is a count, which chance does not move


_STEP = (
    Figure(name="rows", title="rows", unit="", counted=True),
    Figure(name="rate", title="rows a second", unit="1/s", noisy=True),
    Figure(name="ms_row", title="busy time a row", unit="ms", noisy=True),
    Figure(name="p50", title="a call's time a row, median", unit="ms", noisy=True),
    Figure(name="p95", title="a call's time a row, 95th percentile", unit="ms", noisy=True),
    Figure(name="p99", title="a call's time a row, 99th percentile", unit="ms", noisy=True),
    Figure(name="vram", title="VRAM peak", unit="GB"),
    Figure(name="workers", title="workers", unit="", counted=True),
    Figure(name="set_up", title="set-up of the slowest worker", unit="s"),
    Figure(name="errors", title="errors", unit="", counted=True),
)
_RUN = (
    Figure(name="seconds", title="start to end", unit="s"),
    Figure(name="frames", title="frames in the tables", unit="", counted=True),
    Figure(name="energy", title="energy of the GPUs", unit="Wh per 1,000 images"),
    Figure(name="cost", title="cost, in the unit of --price", unit="per 1,000 images"),
)
FIGURES: Mapping[str, Figure] = {one.name: one for one in (*_STEP, *_RUN)}
STEP_FIGURES, RUN_FIGURES = (tuple(one.name for one in those) for those in (_STEP, _RUN))


def measure(run: Run, step: str) -> dict[str, float]:
    """A step's figures; phases too, each as ms a row under `phase NAME`."""
    calls = run.calls.get(step)
    told = run.part("figures", step)
    found = _from_records(calls) if calls is not None else {}
    if not run.record:
        found = {"rows": run.rows_so_far(step)} | found
    found |= _from_run_file(told)
    if step in run.of_others:  # nobody has added up the errors of all runs
        found.pop("errors", None)
    return {name: float(value) for name, value in found.items()}


def _from_run_file(told: Mapping[str, object]) -> dict[str, float]:
    keys = {"rows": "rows", "ms_row": "ms_per_row", "workers": "workers", "set_up": "set_up_s", "errors": "errors"}
    found = {name: value for name, key in keys.items() if isinstance(value := told.get(key), int | float)}
    rate, phases, rows = told.get("rows_per_s"), told.get("phases_s"), found.get("rows")
    if isinstance(rate, int | float) and rate > 0:  # 0 stands for "never at work"
        found["rate"] = rate
    if isinstance(phases, Mapping) and rows:
        found |= {f"phase {name}": 1000 * seconds / rows for name, seconds in phases.items()}
    return found


def _from_records(calls: Calls) -> dict[str, float]:
    found: dict[str, float] = {}
    if calls.packet_rows:
        found |= {"rows": calls.packet_rows, "ms_row": 1000 * calls.packet_s / calls.packet_rows}
        found |= {"rate": calls.packet_rows / calls.span_s} if calls.span_s > 0 else {}
    if len(calls.rows):
        each = 1000 * calls.seconds / calls.rows
        found |= {name: float(np.quantile(each, share)) for name, share in QUANTILES.items()}
        found["workers"] = len(np.unique(calls.worker))
    if calls.vram_peak_gb is not None:
        found["vram"] = calls.vram_peak_gb
    if calls.set_up_s is not None:
        found["set_up"] = calls.set_up_s
    return found


def measure_run(run: Run, price: float | None, energy_wh: float | None) -> dict[str, float]:
    """Figures of the whole run.

    Args:
        run: the run.
        price: of an hour of its machines, in any currency; None where it is not known.
        energy_wh: that its machines used, in Wh; None where it was not measured.
    """
    told = {name: run.record.get(name) for name in ("seconds", "frames")}
    found = {name: float(value) for name, value in told.items() if isinstance(value, int | float)}
    if run.of_others:  # its tables are whole, and its time is that of a part
        return {name: value for name, value in found.items() if name == "frames"}
    images = run.part("figures", "decode").get("rows")
    if isinstance(images, int | float) and images > 0:
        if price is not None and "seconds" in found:
            found["cost"] = 1000 * price * found["seconds"] / 3600 / images
        if energy_wh is not None:
            found["energy"] = 1000 * energy_wh / images
    return found
