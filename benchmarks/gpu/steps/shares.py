"""Each stage as a worker runs it, with several packets at a time, against its model's ceiling.

The rate counts whole calls: preprocessing, copies, the model, postprocessing. `share` is that of the ceiling, the model
alone on its own terms. `share_of_own_calls` is that of the stage's own model calls, repeated on input that is already
on the device. One process on the GPU is compared with two, and what a process costs besides its models is read.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np

from benchmarks.gpu.options import GpuOptions, Recorder
from benchmarks.gpu.stage_steps import Case, call, measured, step_of, uncompiled
from benchmarks.gpu.steps.ceilings import AREA, ceilings
from benchmarks.made_rows import Size, rows_for
from framekiln.device import Batches, CallScheduler, DeviceMemory, Meter, memory_gb, recorded_calls, wait
from framekiln.lab.measure.timed import TimeLimits, timed
from framekiln.lab.sweep.runner import CellChild
from framekiln.planning.step import Step
from framekiln.runtime.stage_setup import set_up
from framekiln.runtime.step_results import PacketCaller

CEILING = {"categorize": "clip", "instances": "clip", "faces": "arcface", "segment": "segment", "inpaint": "lama"}
_SMALL: Sequence[Size] = ((256, 320), (200, 300))
_GROUPS = 5  # packets of each thread, of which the first and the last do not count
_PATIENCE = 4.0  # multiple of the timed seconds, for stages with slow packets


@dataclass
class StageWork:
    """A stage's work on one packet of a case, over and over."""

    step: Step  # not set up
    cases: Mapping[str, Case]  # by title, placed alike
    seconds: float

    @property
    def parts(self) -> Sequence[str]:
        """The titles."""
        return list(self.cases)

    def prepare(self) -> None:
        """Set the stage up, and begin with the first case."""
        import torch

        torch.set_num_threads(max(1, int(self.step.placement.cpus)))  # as in a worker's process under Ray
        began = time.perf_counter()
        set_up(self.step)
        self._set_up_s, self._uncompiled = time.perf_counter() - began, uncompiled()
        self._caller = PacketCaller(self.step)
        self._begin(self.parts[0])

    def _begin(self, title: str) -> None:
        self._case = self.cases[title]
        self._rows = rows_for(self.step, self._case.sizes, self._case.masks)
        memory_gb(self.step.placement.device)  # its peak begins anew
        with recorded_calls() as self._calls:
            self.packet()

    def packet(self) -> int:
        """Work on a packet, and return its rows.

        Raises:
            RuntimeError: the stage failed on a row.
        """
        if failures := self._caller.run(self._rows, np.zeros(self._rows.num_rows, bool)).failures:
            raise RuntimeError(f"{failures[0].kind}: {failures[0].message}")
        return self._rows.num_rows

    def measure(self, title: str) -> Mapping[str, Any]:
        """Return the rates of the worker and of its model's calls alone. Raises RuntimeError: it failed on a row."""
        self._begin(title)
        place = self.step.placement
        alone = self._alone()
        cpu, wall = time.process_time(), time.perf_counter()
        rate = self.rate()
        cores = (time.process_time() - cpu) / (time.perf_counter() - wall)
        memory = memory_gb(place.device, anew=False)
        return {
            "rows_per_s": rate,
            "units_per_s": rate * self._units() / self._rows.num_rows,
            "share_of_own_calls": rate / alone if alone else None,
            "cores": cores,
            "set_up_s": self._set_up_s,
            "reserved_gb": memory[1] if memory else None,
            "peak_gb": memory[2] if memory else None,
            "batch": place.batch,
            "in_flight": place.in_flight,
            "compiled": place.compile,
            **self._uncompiled,
        }

    def rate(self) -> float:
        """Return rows a second in the steady state, with as many packets at a time as the profile says."""
        place = self.step.placement
        linger_s = place.linger_ms / 1000 if place.in_flight > 1 else None
        calls = Batches.calls = CallScheduler(place.device, linger_s)
        moments: list[tuple[float, int]] = []
        begin, lock = time.perf_counter(), threading.Lock()

        def enough(seconds: float) -> bool:
            is_steady = len(moments) >= _GROUPS * place.in_flight and seconds > self.seconds
            return is_steady or seconds > _PATIENCE * self.seconds

        def work() -> None:
            while not enough(time.perf_counter() - begin):
                with calls.packet():
                    rows = self.packet()
                with lock:
                    moments.append((time.perf_counter(), rows))

        with ThreadPoolExecutor(place.in_flight) as pool:
            for thread in [pool.submit(work) for _ in range(place.in_flight)]:
                thread.result()
        Batches.calls = CallScheduler()
        calls.close()
        return steady(sorted(moments), begin, place.in_flight)

    def _alone(self) -> float:
        import torch

        device = self.step.placement.device

        def repeat() -> None:
            with torch.inference_mode():
                for call in self._calls:
                    call()

        return timed(repeat, partial(wait, device), TimeLimits(seconds=self.seconds)).rate(self._rows.num_rows)

    def _units(self) -> float:
        """Return what the ceiling counts in a packet: images, faces, crops, or areas of LaMa's ceiling."""
        tensors = [call.args[0] for call in self._calls]  # type: ignore[attr-defined]
        if self._case.stage == "segment":
            return self._rows.num_rows
        if self._case.stage == "inpaint":
            return sum(tensor[..., 0].numel() for tensor in tensors) / AREA
        return sum(len(tensor) for tensor in tensors)


def steady(moments: Sequence[tuple[float, int]], begin: float, in_flight: int) -> float:
    """Return the rows a second of packets, without the first and the last that all threads had at a time.

    Packets that share batches end together. Between the ends of two such groups lies a whole number of them. Where
    there are fewer than three groups, all rows since `begin` count.

    Args:
        moments: seconds and rows of packets that have ended, in order.
        begin: of the first packet, seconds.
        in_flight: packets at a time.
    """
    if len(moments) < 3 * in_flight or len(moments) < 3:
        return sum(rows for _, rows in moments) / (moments[-1][0] - begin)
    counted = moments[in_flight:-in_flight]
    return sum(rows for _, rows in counted) / (counted[-1][0] - moments[in_flight - 1][0])


def cases(options: GpuOptions) -> Iterator[tuple[str, Case]]:
    """Yield the cases by title: packets as decoding makes them, mixed sizes, and many masks."""
    large, square, four = (800, 1280), (1024, 1024), (3000, 4000)
    mixed = [(512 + 8 * i, 512 + 24 * i) for i in range(40)]

    def case(stage: str, count: int, sizes: Sequence[Size], **more: Any) -> Case:
        return Case(stage=stage, sizes=[sizes[i % len(sizes)] for i in range(count)], **more)

    if options.small:
        yield from ((f"{stage}, 2 small ones", case(stage, 2, _SMALL, masks=2)) for stage in CEILING)
        return
    yield "categorize, 170 of 1024x1024", case("categorize", 170, [square])
    yield "categorize, 43 of 1280x800", case("categorize", 43, [large])
    yield "categorize, 10 of 1280x800, as with all steps", case("categorize", 10, [large])
    yield "categorize, 120 of 40 sizes", case("categorize", 120, mixed)
    yield "faces, 43 of 1280x800", case("faces", 43, [large])
    few = {"in_flight": 4}  # random weights keep all 3,072 masks of an image, 800 MB
    yield "segment, 4 of 1280x800, 100 masks", case("segment", 4, [large], placement=few)
    yield "segment, 2 of 12 MP, 100 masks", case("segment", 2, [four], placement=few)
    yield "instances, 4 of 1280x800, 100 masks each", case("instances", 4, [large], masks=100)
    yield "inpaint, 16 of 1280x800", case("inpaint", 16, [large])
    yield "inpaint, 16 of 16 sizes", case("inpaint", 16, mixed[:16])


def measure(options: GpuOptions, record: Recorder) -> None:
    """Record the rates of all cases, and their shares of the ceilings that were measured."""
    known = ceilings(options)
    chosen = options.wanted(dict(cases(options)))
    held = {}
    for stage in CEILING:
        own = {title: case for title, case in chosen.items() if case.stage == stage}
        if own:
            held[stage] = StageWork(step_of(next(iter(own.values())), options), own, options.seconds)
    for stage, title, answer in measured(held, options.at_once):
        limit, rate = known.get(CEILING[stage]), answer.get("units_per_s")
        record(case=title, share=rate / limit if limit and rate else None, **answer)


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


def measure_processes(options: GpuOptions, record: Recorder) -> None:
    """Record the rates of `categorize` in one process with several packets and with one, and in two processes."""
    case = Case(stage="categorize", sizes=[options.photo] * (2 if options.small else 128))
    step, cases = step_of(case, options), {"": case}
    single = replace(step, placement=replace(step.placement, in_flight=1))
    with CellChild.of(MeteredWork(single, cases, options.seconds)) as other:
        call(other, "prepare")
        record(processes=1, in_flight=1, rows_per_s=call(other, "rate"), **_memory(other))
    with (
        CellChild.of(MeteredWork(step, cases, options.seconds)) as one,
        CellChild.of(MeteredWork(step, cases, options.seconds)) as two,
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
