"""The rate of steps that run beside each other: turns on the GPU, turns in a process, all else at the same time."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from framekiln.lab.predict.source_run import SourceStep

GPU = "the GPU"
HOST = "the host's part of "  # before the steps of a process with a model on the GPU


@dataclass(frozen=True, kw_only=True)
class Interval:
    """A value and its plausible interval: rows a second, or seconds a row."""

    central: float
    low: float
    high: float

    def by(self, factor: float) -> "Interval":
        """Return all three times a positive factor."""
        return Interval(central=self.central * factor, low=self.low * factor, high=self.high * factor)


def pace(steps: Sequence[SourceStep], on_gpu: Mapping[str, float]) -> tuple[float, str]:
    """Return the rate of steps that run at once, and the limit: seconds a row `on_gpu` add up, all others overlap."""
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
