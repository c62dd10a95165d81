"""Figures of a step, or of a whole run, by name; a figure that was not measured has no entry.

Figures come from run.json where it has them, so that runs with and without records are compared by one definition.
Percentiles come from records only.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from framekiln.profiling.stats.speed import QUANTILES, ms_per_row
from framekiln.profiling.stats.steps import StepStatistics
from framekiln.reporting.compare.runs import Run

OF_THE_RUN = "run"
"""Stands for a step's name where a figure describes the whole run."""


@dataclass(frozen=True, kw_only=True)
class Figure:
    """One figure."""

    name: str  # as gates call it
    title: str
    unit: str
    noisy: bool = False  # resampled calls give its interval
    counted: bool = False  # a count, which chance does not move


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
FIGURES: Mapping[str, Figure] = {figure.name: figure for figure in (*_STEP, *_RUN)}
STEP_FIGURES, RUN_FIGURES = (tuple(figure.name for figure in figures) for figures in (_STEP, _RUN))


def measure(run: Run, step: str) -> dict[str, float]:
    """Return a step's figures; each phase too, as ms a row under `phase NAME`."""
    figures = _from_records(run.statistics[step]) if step in run.statistics else {}
    if not run.record:
        figures = {"rows": run.finished_rows(step)} | figures
    totals = _from_totals(run.part("figures", step))
    figures = totals | figures if run.cut else figures | totals  # which a run that was killed wrote before its end
    if run.cut or step in run.partial_steps:  # each run counts its own errors only
        figures.pop("errors", None)
    return {name: float(value) for name, value in figures.items()}


def _from_totals(totals: Mapping[str, object]) -> dict[str, float]:
    keys = {"rows": "rows", "ms_row": "ms_per_row", "workers": "workers", "set_up": "set_up_s", "errors": "errors"}
    figures = {name: value for name, key in keys.items() if isinstance(value := totals.get(key), int | float)}
    rate, phases, rows = totals.get("rows_per_s"), totals.get("phases_s"), figures.get("rows")
    if isinstance(rate, int | float) and rate > 0:  # 0 stands for a step that never worked
        figures["rate"] = rate
    if isinstance(phases, Mapping) and rows:
        figures |= {f"phase {name}": ms_per_row(seconds, rows) or 0.0 for name, seconds in phases.items()}
    return figures


def _from_records(step: StepStatistics) -> dict[str, float]:
    figures = _from_totals(step.totals.to_dict())
    figures.pop("errors")  # they are in no record
    if step.calls:
        figures |= dict(zip(QUANTILES, step.row_ms, strict=True))
    if step.vram_peak_gb is not None:
        figures["vram"] = step.vram_peak_gb
    return figures


def measure_run(run: Run, price: float | None, energy_wh: float | None) -> dict[str, float]:
    """Return the figures of the whole run; `price` is that of an hour of its machines, in any currency."""
    known = {name: run.record.get(name) for name in ("seconds", "frames")}
    figures = {name: float(value) for name, value in known.items() if isinstance(value, int | float)}
    if run.cut or run.partial_steps:  # the tables are complete, but the time covers only a part
        return {name: value for name, value in figures.items() if name == "frames"}
    images = run.part("figures", "decode").get("rows")
    if isinstance(images, int | float) and images > 0:
        if price is not None and "seconds" in figures:
            figures["cost"] = 1000 * price * figures["seconds"] / 3600 / images
        if energy_wh is not None:
            figures["energy"] = 1000 * energy_wh / images
    return figures
