"""Text of clips' figures that the terminal and the page share."""

from __future__ import annotations

from framekiln.lab.clips.measure import ClipRow
from framekiln.lab.output.tables import TOO_FEW
from framekiln.reporting.formatting import MISSING

HEADS = ("clip", "scenario", "pools", "batch", "fps", "mean ms", "p50", "p95", "p99")


def clip_cells(row: ClipRow) -> list[str]:
    """Return a clip's row under `HEADS`."""
    first = [row.clip, row.scenario, "on" if row.pools else "off"]
    latency = row.latency_ms
    if latency is None:
        return [*first, *[MISSING] * 6]
    times = [TOO_FEW if value is None else f"{value:.1f}" for value in (latency.p50, latency.p95, latency.p99)]
    return [*first, f"{row.batch:.1f}", f"{row.fps or 0:.1f}", f"{latency.mean:.1f}", *times]
