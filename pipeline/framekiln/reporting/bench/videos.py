"""Text of videos' figures that the terminal and the page share: models side by side, and their runs."""

from __future__ import annotations

from framekiln.lab.output.tables import TOO_FEW
from framekiln.lab.sav.measure import VideoRow
from framekiln.lab.sav.summary import ModelSummary
from framekiln.reporting.formatting import MISSING

HEADS = ("model", "objects", "runs", "failed", "fps", "ms a frame", "peak GB", "J", "F", "J&F")
RUN_HEADS = ("model", "video", "object", "run", "frames", "fps", "first ms", "median ms", "p95", "J", "F")


def model_cells(summary: ModelSummary) -> list[str]:
    """Return a model's row under `HEADS`; J and F of random weights mean nothing, and say so."""
    scores = (summary.j, summary.f, summary.j_and_f)
    spread = "" if summary.fps_std is None else f" ± {summary.fps_std:.2f}"
    return [
        summary.model,
        *(str(count) for count in (summary.objects, summary.runs, summary.failed)),
        _number(summary.fps, 2) + spread,
        _number(summary.median_ms, 1 if (summary.median_ms or 0.0) < 1000 else 0),
        _number(summary.peak_gb, 2),
        *(_score(score, summary.weights) for score in scores),
    ]


def run_cells(row: VideoRow) -> list[str]:
    """Return a run's row under `RUN_HEADS`."""
    p95 = getattr(row.latency_ms, "p95", None)
    return [
        *(row.model, row.video, row.object, str(row.run), str(row.frames)),
        _number(row.fps, 2),
        _number(row.first_ms, 1),
        _number(getattr(row.latency_ms, "median", None), 1),
        TOO_FEW if p95 is None and row.latency_ms is not None else _number(p95, 1),
        _score(row.j, row.weights),
        _score(row.f, row.weights),
    ]


def _score(value: float | None, weights: str) -> str:
    return "dummy" if weights.startswith("dummy") else _number(value, 3)


def _number(value: float | None, digits: int) -> str:
    return MISSING if value is None else f"{value:,.{digits}f}"
