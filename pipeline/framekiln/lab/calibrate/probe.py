"""Measurement of one stage in a child process: set-up, time and memory of its calls, alone on the device.

The measurement adds no wait inside a call. It reads the phases from the stage's clock after each call, and the memory
from the meter after the last call.
"""

import math
import statistics
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa

from framekiln.contract.errors import ContractError
from framekiln.device import DeviceMemory, Meter, flops_of, release_memory, take_failures, weights_bytes
from framekiln.lab.measure.timed import TimeLimits, timed
from framekiln.lab.models.sample_rows import batch_of, open_rows
from framekiln.lab.sweep.batch_search import Limits
from framekiln.planning.sample import Sample
from framekiln.planning.step import Step
from framekiln.profiling.step_work import pixels
from framekiln.runtime.recovery.captured_error import CapturedError, capture
from framekiln.runtime.stage_setup import set_up

_LEAST, _MOST = 3, 50  # timed calls, unless they are slow; a median of three tolerates one disturbed call
_PATIENCE = 5.0  # multiple of `timed_s` in which small batches may reach every row


class Probe:
    """The measurement of one step in its process."""

    def __init__(self, step: Step, sizes: Sequence[Path], limits: Limits, meter: Meter | None) -> None:
        """Keep the arguments, and load nothing; each file of `sizes` holds rows with images of one size."""
        self._step, self._paths, self._limits = step, sizes, limits
        self._meter = meter or Meter(step.placement.device)
        self._rows: list[pa.Table] = []

    def set_up(self) -> tuple[dict[str, Any], list[str]]:
        """Load the model; return its part of `StepFigures`, and why functions of a compiled step run uncompiled."""
        self._meter.begin()
        self._rows = [open_rows(path) for path in self._paths]
        began = time.perf_counter()
        set_up(self._step)
        taken = time.perf_counter() - began
        size, held = weights_bytes(self._step.stage), self._meter.held()
        weights_gb = (size or 0) / 1e9 if held is None else held
        return {"set_up_s": taken, "weights_gb": weights_gb, "weights_bytes": size}, list(take_failures())

    def trial(self, size: int, count: int) -> Sample | CapturedError:
        """Make one untimed call of `count` rows, then timed ones within the limits."""
        try:
            return self._time_call(size, count)
        except ContractError:
            raise
        except Exception as error:
            raised = capture(error)
        self._clear_counts()
        release_memory()
        about = {"subject": self._step.name, "batch": count, "outcome": "oom", "why": "memory ran out"}
        return Sample.model_validate(about) if raised.out_of_memory else raised

    def flops(self, size: int) -> float | None:
        """Return the FLOPs of a row, counted in a call of one row."""
        batch = batch_of(self._step.stage, self._rows[size], 1)
        return flops_of(lambda: self._step.stage(batch))

    def seen(self) -> tuple[DeviceMemory, Mapping[str, int]]:
        """Return the device and the chunk sizes of the calls so far."""
        return self._meter.seen(), dict(self._step.stage.chunk_sizes)

    def _time_call(self, size: int, count: int) -> Sample:
        stage, rows = self._step.stage, self._rows[size]
        self._meter.clear()
        began = time.perf_counter()
        self._call(batch_of(stage, rows, count))
        first = time.perf_counter() - began
        self._clear_counts()
        batch: list[pa.Table] = []

        def before(number: int) -> None:
            batch[:] = [batch_of(stage, rows, count, start=count * number)]

        limits = TimeLimits(
            warmup=0,
            least=_LEAST,
            seconds=self._limits.timed_s,
            wanted=math.ceil(rows.num_rows / count),  # rows differ in cost: small batches go on until each had its call
            patience_s=_PATIENCE * self._limits.timed_s,
            most=1 if first > self._limits.slow_s else _MOST,
            slow_s=self._limits.slow_s,
        )
        taken = timed(lambda: self._call(batch[0]), lambda: None, limits, before=before).seconds
        peaks, done, place = self._meter.peaks(), count * len(taken), self._step.placement
        return Sample(
            subject=self._step.name,
            placement=f"{place.device}, {place.precision}{', compiled' if place.compile else ''}",
            batch=count,
            megapixels=float(pixels(rows).mean()) / 1e6,
            calls=len(taken),
            seconds=(statistics.fmean if count < rows.num_rows else statistics.median)(taken),
            phases={name: seconds / done for name, seconds in stage.clock.take().items()},
            items={kind: number / done for kind, number in stage.item_counts.take().items()},
            peak_gb=peaks[0] if peaks else None,
            reserved_gb=peaks[1] if peaks else None,
        )

    def _clear_counts(self) -> None:
        self._step.stage.clock.take()
        self._step.stage.item_counts.take()

    def _call(self, batch: pa.Table) -> None:
        result = self._step.stage(batch)
        if result.num_rows != batch.num_rows:
            problem = f"was given {batch.num_rows} rows and returned {result.num_rows}"
            raise ContractError(f"Step {self._step.name!r} {problem}.", code="FK-ROW-COUNT")
