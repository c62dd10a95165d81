"""One record of a measurement: calls of one subject in one way, with their time, phases, memory and outcome.

Samples are: a calibration's trials, a bench's cells, clips and videos, and the steps of a run that a prediction starts
from. So searches, fits, targets, gates and histories read one type.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from pydantic import Field, SerializerFunctionWrapHandler, model_serializer

from framekiln.planning.settings import Strict

SampleOutcome = Literal["ok", "oom", "unsupported", "error"]

BEYOND = 5
"""Calls that must lie beyond a percentile: 100 for p95, 500 for p99. The p99 of 50 calls is always their largest."""
PERCENTILES = {"p50": 0.5, "p90": 0.9, "p95": 0.95, "p99": 0.99}
INTERVAL_CALLS = 40  # least calls of a side whose change gets an interval

COPIES, MODEL = ("upload", "download"), "infer"
"""Phases on the bus, and the model's own phase; all others belong to the host."""


@dataclass(frozen=True, kw_only=True)
class Statistics:
    """Times in milliseconds; a figure is None with too few calls for it."""

    count: int
    mean: float
    median: float
    std: float | None  # sample deviation; None for one call
    min: float
    max: float
    p50: float | None
    p90: float | None
    p95: float | None
    p99: float | None
    values: tuple[float, ...] = ()

    @classmethod
    def of(cls, seconds: Sequence[float], *, keep: bool = True) -> "Statistics":
        """Return the statistics of at least one time in seconds, with all times in ms if `keep`."""
        ms = 1000 * np.asarray(seconds, np.float64)
        count = len(ms)
        known = {
            name: float(np.quantile(ms, share)) if round(count * (1 - share), 9) >= BEYOND else None
            for name, share in PERCENTILES.items()
        }
        return cls(
            count=count,
            mean=float(ms.mean()),
            median=float(np.median(ms)),
            std=float(ms.std(ddof=1)) if count > 1 else None,
            min=float(ms.min()),
            max=float(ms.max()),
            values=tuple(round(float(value), 6) for value in ms) if keep else (),
            **known,
        )


def calls_for(share: float) -> int:
    """Return the least number of calls for a percentile."""
    return round(BEYOND / (1 - share))


PERCENTILE_RULE = f"A percentile needs five calls beyond it: p95 {calls_for(0.95)} calls, p99 {calls_for(0.99)}."


class Sample(Strict):
    """Calls of one subject in one way, or why there are none. Phases and items are per row."""

    subject: str = ""  # a model or a step; with a clip, or with a video's object
    placement: str = ""  # how it was called
    work: str = ""  # what is computed, however it is called
    outcome: SampleOutcome = "ok"
    why: str = ""  # reason of any outcome other than ok
    batch: int = Field(1, ge=1)  # rows a call
    megapixels: float = Field(0.0, ge=0)  # mean of a row at full size
    calls: int = Field(0, ge=0)  # timed ones, after one untimed
    seconds: float = Field(0.0, ge=0)  # time of a call; 0 if none was timed
    phases: Mapping[str, float] = Field(default_factory=dict)  # seconds a row, by phase
    items: Mapping[str, float] = Field(default_factory=dict)  # faces, prompts, masks, ... a row, by kind
    peak_gb: float | None = None  # most memory allocated; None if the device does not report it
    reserved_gb: float | None = None  # most memory held by torch
    latency: Statistics | None = None  # time of a call, or of a frame of a clip or a video
    figures: Mapping[str, float] = Field(default_factory=dict)  # measured ones of `lab.samples.FIGURES`

    @property
    def name(self) -> str:
        """The subject and how it was called."""
        return f"{self.subject}, {self.placement}"

    @property
    def rows_per_s(self) -> float:
        """Rows a second, call after call; 0 if none was timed."""
        return self.batch / self.seconds if self.seconds else 0.0

    @property
    def model_s(self) -> float:
        """Seconds a row in the model."""
        return self.phases.get(MODEL, 0.0)

    @property
    def copies_s(self) -> float:
        """Seconds a row in copies over the bus."""
        return sum(self.phases.get(name, 0.0) for name in COPIES)

    @property
    def host_s(self) -> float:
        """Seconds a row on the host."""
        return max(0.0, sum(self.phases.values()) - self.model_s - self.copies_s)

    @model_serializer(mode="wrap")
    def _leave_out_unmeasured(self, serialize: SerializerFunctionWrapHandler) -> dict[str, Any]:
        return {name: value for name, value in serialize(self).items() if value not in (None, "", {})}
