"""Settings of each cell: the figures that are measured, and for how long."""

from __future__ import annotations

from dataclasses import dataclass

from framekiln.contract.errors import ConfigError
from framekiln.lab.measure.timed import TimeLimits

USUAL_CALLS = 100  # enough for a p95


@dataclass(frozen=True, kw_only=True)
class MeasureOptions:
    """Choices for all cells of a bench."""

    device: str = "cpu"
    iterations: int | None = None  # exactly as many timed calls; None for `seconds`
    seconds: float | None = None  # of timed calls; None for `iterations`, or for enough calls for p95
    least: int = 0  # calls, for a percentile that is asked for, where neither is given
    warmup: int = 5  # timm's and trtexec's defaults lie between 1 and 10
    warmup_s: float = 0.5  # trtexec warms up for 0.2 s
    layers: bool = False
    depth: int = 2  # levels of modules: a part of the model and its blocks
    leak: int = 0  # calls; 0 for no test
    cold_cache: bool = False  # a model called again and again finds its weights in the caches, as in a loop of ours
    memory_cap_gb: float | None = None  # as on a smaller device

    @property
    def limits(self) -> TimeLimits:
        """Limits of a timed loop."""
        warmup = {"warmup": self.warmup, "warmup_s": self.warmup_s}
        if self.iterations is not None:
            count = self.iterations
            return TimeLimits(
                warmup=self.warmup, warmup_s=self.warmup_s, least=count, most=count, wanted=count, seconds=0.0
            )
        if self.seconds is not None:
            least = TimeLimits.least if self.cold_cache else 1  # emptying the caches may take all of the time
            return TimeLimits(**warmup, seconds=self.seconds, least=least, wanted=1)  # type: ignore[arg-type]
        counts = {"least": max(5, self.least), "wanted": max(USUAL_CALLS, self.least)}
        return TimeLimits(**warmup, **counts, seconds=1.0, patience_s=15.0)  # type: ignore[arg-type]


def default_device() -> str:
    """Return cuda where there is a GPU, else cpu."""
    import torch

    return "cuda" if torch.cuda.is_available() else "cpu"


def check_device(device: str | None) -> None:
    """Check that the device that was asked for is there.

    Raises:
        ConfigError: it is a GPU, and torch sees none.
    """
    if device == "cuda" and default_device() != "cuda":
        raise ConfigError("device cuda: torch sees no GPU here; leave it out, or give cpu.", code="FK-BENCH-NO-GPU")
