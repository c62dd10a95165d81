"""The rate of steps beside each other: they take turns on the GPU and in a process, and overlap otherwise."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from framekiln.lab.predict.source_run import SourceStep

Draws = NDArray[np.float64]
"""1 + n values: the estimate, and each draw of a bootstrap."""
QUANTILES = (0.05, 0.95)  # quantiles of draws: the ends of an interval
GPU = "the GPU"
OTHER_END = {"central": "central", "low": "high", "high": "low"}  # more seconds: a lower rate
HOST = "the host's part of "  # prefix for the steps of a process with a model on the GPU


@dataclass(frozen=True, kw_only=True)
class Interval:
    """A value and its plausible interval: rows a second, or seconds a row."""

    central: float
    low: float
    high: float

    @classmethod
    def each(cls, value: Callable[[str], float]) -> "Interval":
        """Return the interval of a function of `central`, `low` and `high`."""
        return cls(central=value("central"), low=value("low"), high=value("high"))

    @classmethod
    def of(cls, draws: Draws) -> "Interval":
        """Return the estimate with its quantiles."""
        low, high = np.quantile(draws[1:], QUANTILES)
        return cls(central=float(draws[0]), low=float(low), high=float(high))

    def by(self, factor: float) -> "Interval":
        return Interval.each(lambda end: getattr(self, end) * factor)


def pace(steps: Sequence[SourceStep], on_gpu: Mapping[str, float]) -> tuple[float, str]:
    """Return the rate of simultaneous steps, and the limit: seconds a row `on_gpu` add up, all others overlap."""
    rates = {GPU: 1 / max(sum(on_gpu.values()), 1e-9)} if on_gpu else {}
    for process in dict.fromkeys(step.process for step in steps):
        members = [step for step in steps if step.process == process]
        taken = sum(
            each.sample.host_s + (on_gpu[each.name] if each.on_gpu else each.sample.model_s) for each in members
        )
        name = "+".join(step.name for step in members)
        at_once = members[0].workers * members[0].in_flight
        rates[HOST + name if any(step.on_gpu for step in members) else name] = at_once / max(taken, 1e-9)
    limit = min(rates, key=lambda name: rates[name])
    return rates[limit], limit
