"""Set-up and first call of each stage, with the cache of compiled code as it is found, and then with a filled one.

Stages are set up side by side, as processes of a run are. On a new machine the first round measures compilation, on the
CPU's cores. Its code stays in `FRAMEKILN_CACHE` for the steps after this one.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from benchmarks.gpu.options import GpuOptions, Recorder
from benchmarks.gpu.stage_steps import STAGES, Case, measured, step_of, uncompiled
from benchmarks.made_rows import Size, rows_for
from framekiln.device import wait
from framekiln.planning.step import Step
from framekiln.runtime.stage_setup import set_up
from framekiln.runtime.step_results import PacketCaller
from framekiln.weights.checksums import cache_root


@dataclass
class WarmUp:
    """A stage that is set up and called once."""

    step: Step  # not set up
    photo: Size
    parts = ("",)

    def prepare(self) -> None:
        """Do nothing: what is prepared side by side is measured here."""

    def measure(self, _part: str) -> Mapping[str, Any]:
        """Return the seconds of imports and set-up, of the first call, and of a second one."""
        rows = rows_for(self.step, [self.photo])
        seconds = [time.perf_counter()]
        set_up(self.step)
        caller = PacketCaller(self.step)
        seconds.append(time.perf_counter())
        for _ in range(2):
            if failures := caller.run(rows, np.zeros(rows.num_rows, bool)).failures:
                raise RuntimeError(failures[0].message)
            wait(self.step.placement.device)
            seconds.append(time.perf_counter())
        names = ("set_up_s", "first_call_s", "next_call_s")
        return {**dict(zip(names, np.diff(seconds).tolist(), strict=True)), **uncompiled()}


def measure(options: GpuOptions, record: Recorder) -> None:
    """Record each stage, twice if its model is compiled."""
    cases = {stage: Case(stage=stage, sizes=()) for stage in STAGES}
    held = {stage: WarmUp(step_of(case, options), options.photo) for stage, case in cases.items()}
    for cache in ("as found", "filled") if options.compile else ("none",):
        files, began = sum(1 for _ in (cache_root() / "compiled").rglob("*")), time.perf_counter()
        for stage, _, answer in measured(options.wanted(held), options.at_once, alone=False):
            record(stage=stage, cache=cache, compiled=options.compile, **answer)
        record(cache=cache, files_before=files, all_s=time.perf_counter() - began)
