"""Live metrics for Ray's metrics agent, from which Prometheus fetches them.

The coordinator exports them, since it has all events; workers do nothing for it. Without an agent they are dropped.
"""

from contextlib import suppress
from typing import Any

from ray.util.metrics import Counter, Gauge, Histogram

from framekiln.profiling.events import Reading, StepEvent
from framekiln.profiling.export.prometheus import BOUNDS, METRICS, Metric, observations


class Exporter:
    """The metrics of a run."""

    def __init__(self, run: str) -> None:
        self._run = run
        self._record = {metric.name: _make_recorder(metric) for metric in METRICS}

    def add(self, event: StepEvent | Reading) -> None:
        """Count an event; a metric that Ray refuses is skipped."""
        with suppress(Exception):
            for metric, value, labels in observations(event, self._run):
                self._record[metric.name](value, labels)


def _make_recorder(metric: Metric) -> Any:
    about = {"description": metric.what, "tag_keys": metric.labels}
    if metric.kind == "counter":
        return Counter(metric.name, **about).inc
    if metric.kind == "gauge":
        return Gauge(metric.name, **about).set
    return Histogram(metric.name, boundaries=list(BOUNDS), **about).observe
