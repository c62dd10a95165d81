"""Live figures handed to Ray's metrics agent, from whom Prometheus fetches them; which costs the run's workers nothing.

The board does it, which has all samples anyway. Where no agent runs, the figures go nowhere.
"""

from __future__ import annotations

from contextlib import suppress
from typing import Any

from ray.util.metrics import Counter, Gauge, Histogram

from pipeline.sample import Reading, Sample
from pipeline.telemetry.metrics import BOUNDS, METRICS, Metric, told


class Exporter:
    """A run's metrics in this process."""

    def __init__(self, run: str) -> None:
        self._run = run
        self._do = {metric.name: _made(metric) for metric in METRICS}

    def add(self, sample: Sample | Reading) -> None:
        """Count one; a metric that Ray refuses is no reason to lose a sample."""
        with suppress(Exception):
            for metric, value, labels in told(sample, self._run):
                self._do[metric.name](value, labels)


def _made(metric: Metric) -> Any:
    """What adds, sets or observes a value with its labels."""
    about = {"description": metric.what, "tag_keys": metric.labels}
    if metric.kind == "counter":
        return Counter(metric.name, **about).inc
    if metric.kind == "gauge":
        return Gauge(metric.name, **about).set
    return Histogram(metric.name, boundaries=list(BOUNDS), **about).observe
