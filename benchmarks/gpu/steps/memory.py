"""Limits on memory: a stage whose batch does not fit keeps to the limit, and returns each row.

The limit lies between what the stage needs for one row and what it took for the profile's batch. A batch may fit
under a limit that is below what it took, where the allocator packs it better: then a lower one is tried.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from benchmarks.gpu.options import GpuOptions, Recorder, SkippedError
from benchmarks.gpu.stage_steps import Case, measured, step_of
from benchmarks.made_rows import Size, rows_for
from framekiln.device import limit_memory, memory_gb, release_memory
from framekiln.planning.step import Step
from framekiln.profiling.step_work import StepWork
from framekiln.runtime.stage_setup import set_up
from framekiln.runtime.step_results import PacketCaller

ROWS = {"categorize": 256, "segment": 8, "inpaint": 32}
_SMALL_ROWS = {"categorize": 64, "segment": 4, "inpaint": 16}
_PARTS = (0.4, 0.2, 0.1, 0.05)  # of the way from the need of one row to that of the whole batch
_LEFT_GB = 0.3  # that may stay allocated: a larger buffer, cuFFT's plans


@dataclass
class LimitedStage:
    """A stage called without a limit, and then with one."""

    step: Step  # not set up
    rows: int
    photo: Size
    parts = ("",)

    def prepare(self) -> None:
        """Set the stage up."""
        set_up(self.step)

    def measure(self, _part: str) -> Mapping[str, Any]:
        """Return what was lost, and the memory in GB."""
        device = self.step.placement.device
        self.step.stage.chunk_sizes.update(dict.fromkeys(self.step.stage.chunk_kinds or (), 1024))
        photos = rows_for(self.step, [self.photo] * self.rows)
        one, whole = self._reserved(photos.slice(0, 1)), self._reserved(photos)
        release_memory()
        base = _gb(device)[0]
        for part in _PARTS:
            limit = one + part * (whole - one)
            limit_memory(limit)
            work = StepWork()
            outcome = PacketCaller(self.step).run(photos, np.zeros(self.rows, bool), work=work)
            _, reserved, _ = _gb(device)
            release_memory()
            if work.is_retried:
                break
        left = _gb(device)[0] - base
        lost = len(outcome.failures) + self.rows - outcome.columns.num_rows
        figures = {"one_row_gb": one, "all_rows_gb": whole, "limit_gb": limit, "reserved_gb": reserved, "left_gb": left}
        is_kept = not lost and reserved <= limit and left < _LEFT_GB and work.is_retried
        why = outcome.failures[0].message[:300] if outcome.failures else ""
        return {"ok": is_kept, "rows": self.rows, "lost": lost, "ran_out": work.is_retried, "why": why, **figures}

    def _reserved(self, rows: pa.Table) -> float:
        """Return what the allocator holds after a call: limits are on that, and it keeps all that it took."""
        release_memory()
        PacketCaller(self.step).run(rows, np.zeros(rows.num_rows, bool))
        return _gb(self.step.placement.device)[1]


def _gb(device: str) -> tuple[float, float, float]:
    memory = memory_gb(device)
    assert memory is not None
    return memory


def measure(options: GpuOptions, record: Recorder) -> None:
    """Record each stage's limit, and whether it was kept without a lost row."""
    if options.device == "cpu":
        raise SkippedError("a CPU has no memory of its own to limit")
    held = {}
    for stage, rows in (_SMALL_ROWS if options.small else ROWS).items():
        case = Case(stage=stage, sizes=(), placement={"batch": rows, "compile": False})
        held[stage] = LimitedStage(step_of(case, options), rows, options.photo)
    for stage, _, answer in measured(options.wanted(held), 1):
        record(stage=stage, **answer)
