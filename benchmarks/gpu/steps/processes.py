"""One process on the GPU against two, and what a process costs besides its models."""

from __future__ import annotations

from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Any

from benchmarks.gpu.options import GpuOptions, Record
from benchmarks.gpu.stage_steps import Case, call, step_of
from benchmarks.gpu.steps.shares import StageWork
from framekiln.device import DeviceMemory, Meter
from framekiln.lab.sweep.runner import CellChild


class MeteredWork(StageWork):
    """The same, with the memory of its process."""

    def prepare(self) -> None:
        """See `StageWork`."""
        self._meter = Meter(self.step.placement.device)
        self._meter.begin()
        super().prepare()

    def seen(self) -> DeviceMemory:
        """Return the device and the memory of the context, where no other process uses the GPU."""
        return self._meter.seen()


def measure(options: GpuOptions, record: Record) -> None:
    """Record the rates of `categorize` in one process with several packets and with one, and in two processes."""
    case = Case(stage="categorize", sizes=[options.photo] * (2 if options.small else 128))
    step = step_of(case, options)
    single = replace(step, placement=replace(step.placement, in_flight=1))
    with CellChild.of(MeteredWork(single, case, options.seconds)) as other:
        call(other, "prepare")
        record(processes=1, in_flight=1, rows_per_s=call(other, "rate"), **_memory(other))
    with (
        CellChild.of(MeteredWork(step, case, options.seconds)) as one,
        CellChild.of(MeteredWork(step, case, options.seconds)) as two,
    ):
        call(one, "prepare")
        alone = call(one, "rate")
        record(processes=1, in_flight=step.placement.in_flight, rows_per_s=alone)
        call(two, "prepare")
        with ThreadPoolExecutor(2) as pool:
            rates = list(pool.map(lambda child: call(child, "rate"), (one, two)))
    record(processes=2, in_flight=step.placement.in_flight, rows_per_s=sum(rates), against_one=sum(rates) / alone)


def _memory(child: CellChild) -> Mapping[str, Any]:
    device: DeviceMemory = call(child, "seen")
    return {"device": device.name, "total_gb": device.total_gb, "context_gb": device.context_gb}
