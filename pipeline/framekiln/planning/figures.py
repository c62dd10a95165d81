"""The figures of a run by their names in gates, targets and histories, with units."""

from collections.abc import Mapping
from dataclasses import dataclass

OF_THE_RUN = "run"
"""The step name of figures that describe the whole run."""


@dataclass(frozen=True, kw_only=True)
class Figure:
    """One figure."""

    name: str  # as in gates and targets
    title: str
    unit: str
    noisy: bool = False  # its calls give its interval
    counted: bool = False  # a count, which chance does not change


_STEP = (
    Figure(name="rows", title="rows", unit="", counted=True),
    Figure(name="rate", title="rows a second", unit="1/s", noisy=True),
    Figure(name="ms_row", title="busy time a row", unit="ms", noisy=True),
    Figure(name="p50", title="a call's time a row, median", unit="ms", noisy=True),
    Figure(name="p95", title="a call's time a row, 95th percentile", unit="ms", noisy=True),
    Figure(name="p99", title="a call's time a row, 99th percentile", unit="ms", noisy=True),
    Figure(name="vram", title="VRAM peak", unit="GB"),
    Figure(name="gpu_use", title="GPU use during calls", unit="%"),
    Figure(name="workers", title="processes that took part", unit="", counted=True),
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
RECORDED = tuple(name for name in STEP_FIGURES if name != "errors")
"""Figures of a step that records of calls give, for targets."""
RECORDED_OF_RUN = ("gpu_use", "vram_percent")
"""Figures of all GPUs of a run, for targets: use during any step's calls, and the fullest one's memory."""
