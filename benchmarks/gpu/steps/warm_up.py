"""Set-up and first call of each stage, with an empty cache of compiled code and then with a filled one.

Stages are set up side by side, as in a run. With an empty cache this measures compilation, on the CPU's cores.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass
from tempfile import TemporaryDirectory

import numpy as np

from benchmarks.gpu.options import GpuOptions, Record
from benchmarks.gpu.stage_steps import STAGES, Case, MeasureError, measured, step_of
from benchmarks.made_rows import Size, rows_for
from framekiln.device import wait
from framekiln.planning.step import Step
from framekiln.runtime.stage_setup import set_up
from framekiln.runtime.step_results import PacketCaller


@dataclass
class WarmUp:
    """A stage that is set up and called once; it is pickled before use."""

    step: Step  # not set up
    photo: Size

    def measure(self) -> Mapping[str, float]:
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
        return dict(zip(("set_up_s", "first_call_s", "next_call_s"), np.diff(seconds).tolist(), strict=True))


def measure(options: GpuOptions, record: Record) -> None:
    """Record each stage, cold and warm."""
    placement = {"compile": options.compile}
    cases = {stage: Case(stage=stage, sizes=(), placement=placement) for stage in STAGES}
    held = {stage: WarmUp(step_of(case, options), options.photo) for stage, case in cases.items()}
    with TemporaryDirectory() as folder:
        environment = {"TORCHINDUCTOR_CACHE_DIR": folder}
        for cache in ("empty", "filled") if options.compile else ("none",):
            began = time.perf_counter()
            for stage, answer in measured(
                options.wanted(held), options.at_once, methods=("measure",), environment=environment
            ):
                if isinstance(answer, MeasureError):
                    record(stage=stage, cache=cache, ok=False, why=str(answer))
                else:
                    record(stage=stage, cache=cache, compiled=options.compile, **answer)
            record(cache=cache, all_s=time.perf_counter() - began)
