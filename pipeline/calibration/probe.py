"""What the child process does: one stage set up and called on batches, alone on its device, timed and weighed.

Nothing is waited for inside a call but what the stage waits for itself: its phases are read by the stage's clock after
the call, and its memory by the meter after the last one.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import pyarrow as pa

from pipeline.calibration.figures import Trial
from pipeline.calibration.rows import batch_of
from pipeline.calibration.search import Full, Limits
from pipeline.device import Meter, Seen, flops_of, meter_of, release_memory, weights_bytes
from pipeline.errors import ContractError
from pipeline.raised import Raised, let_go
from pipeline.readiness import set_up
from pipeline.recorder import pixels
from pipeline.step import Step

_LEAST, _MOST = 3, 50  # timed calls, where one is not slow: a median of three withstands one that was disturbed
_PATIENCE = 5.0  # times `timed_s` that calls of few rows may take until each row was in one


@dataclass(frozen=True, kw_only=True)
class Ready:
    """A stage that was set up."""

    seconds: float
    weights_gb: float
    weights_bytes: int | None


class Probe:
    """One step in its process."""

    def __init__(self, step: Step, sizes: Sequence[Path], limits: Limits, meter: Meter | None = None) -> None:
        """Begin; nothing is loaded yet.

        Args:
            step: with a stage that has not been set up.
            sizes: Arrow files of rows, each of pictures of one size.
            limits: how long calls are timed.
            meter: of memory; None for the device's own.
        """
        self._step, self._paths, self._limits = step, sizes, limits
        self._meter = meter or meter_of(step.placement.device)
        self._rows: list[pa.Table] = []

    def set_up(self) -> Ready:
        """Load the model."""
        self._meter.begin()
        self._rows = [_opened(path) for path in self._paths]
        began = time.perf_counter()
        set_up(self._step)
        taken = time.perf_counter() - began
        size, held = weights_bytes(self._step.stage), self._meter.held()
        return Ready(seconds=taken, weights_gb=(size or 0) / 1e9 if held is None else held, weights_bytes=size)

    def trial(self, size: int, count: int) -> Trial | Full | Raised:
        """Calls of so many rows: one that is not timed, then as many as the limits say."""
        try:
            return self._timed(size, count)
        except ContractError:
            raise
        except Exception as error:
            raised = let_go(error)
        self._step.stage.clock.take()
        self._step.stage.items.clear()
        release_memory()
        return Full() if raised.out_of_memory else raised

    def flops(self, size: int) -> float | None:
        """Of one row, by a call of one."""
        batch = batch_of(self._step.stage, self._rows[size], 1)
        return flops_of(lambda: self._step.stage(batch))

    def seen(self) -> tuple[Seen, Mapping[str, int]]:
        """The device, and the chunks that calls were made in."""
        return self._meter.seen(), dict(self._step.stage.chunk_rows)

    def _timed(self, size: int, count: int) -> Trial:
        stage, rows = self._step.stage, self._rows[size]
        self._meter.clear()
        first = self._call(batch_of(stage, rows, count))
        stage.clock.take()
        stage.items.clear()
        taken: list[float] = []
        phases: dict[str, float] = {}
        while not self._enough(first, taken, rows.num_rows / count):
            taken.append(self._call(batch_of(stage, rows, count, start=count * len(taken))))
            for name, seconds in stage.clock.take().items():
                phases[name] = phases.get(name, 0.0) + seconds
        peaks = self._meter.peaks()
        done = count * len(taken)
        items = {kind: number / done for kind, number in stage.items.items()}
        stage.items.clear()
        return Trial(
            batch=count,
            megapixels=float(pixels(rows).mean()) / 1e6,
            calls=len(taken),
            rows_per_s=count / (statistics.fmean if count < rows.num_rows else statistics.median)(taken),
            phases={name: seconds / done for name, seconds in phases.items()},
            items=items,
            peak_gb=peaks[0] if peaks else None,
            reserved_gb=peaks[1] if peaks else None,
        )

    def _call(self, batch: pa.Table) -> float:
        """Seconds of a call, results included."""
        began = time.perf_counter()
        result = self._step.stage(batch)
        taken = time.perf_counter() - began
        if result.num_rows != batch.num_rows:
            name = self._step.name
            raise ContractError(f"Step {name!r} was given {batch.num_rows} rows and returned {result.num_rows}.")
        return taken

    def _enough(self, first: float, taken: Sequence[float], around: float) -> bool:
        """Whether there were calls enough: `around` of them see each row once, and what a row holds may take time."""
        if not taken:
            return False
        if max(first, *taken) > self._limits.slow_s or len(taken) >= _MOST:
            return True
        seen = len(taken) >= around or sum(taken) >= _PATIENCE * self._limits.timed_s
        return seen and len(taken) >= _LEAST and sum(taken) >= self._limits.timed_s


def written(rows: pa.Table, path: Path) -> Path:
    """Rows as a file that a child maps into its memory."""
    with pa.OSFile(str(path), "wb") as sink, pa.ipc.new_file(sink, rows.schema) as writer:
        writer.write_table(rows)
    return path


def for_batch(step: Step, count: int) -> Step:
    """The step placed for calls of so many rows: a compiled model is compiled for one size."""
    return replace(step, placement=replace(step.placement, batch_rows=count))


def _opened(path: Path) -> pa.Table:
    return pa.ipc.open_file(pa.memory_map(str(path))).read_all()
