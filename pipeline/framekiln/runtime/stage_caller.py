"""Calls of a stage that survive exceptions, full memory and dead processes: one loop for both passes.

A pending call has a state that says where it is made. A new call is made HERE, in this process, or in a CHILD process
if the attempt log suspects it of having killed a process. A call that returns is done. Otherwise it has a result of the
types below, and `_follow_up` returns the calls that replace it. Without such calls its rows have failed.

    result          several rows of a ROW stage            one row, one clip, or one file
    -------------   ------------------------------------   ---------------------------------------------------------
    CapturedError   two halves                             failed
    - out of        the same, apart, if it had other       the same, apart, if it had other packets' calls beside it;
      memory        packets' calls beside it; then two     then in chunks of half the size; then ON_CPU, if the
                    halves; the batch limit is halved      profile's `too_large` says so; then failed
    ChildDied       each row, in a CHILD                   failed
    NotTried        two halves                             the same, HERE; failed on the last attempt

ChildDied and NotTried are results of calls in a child. If a call kills this process, the next process finds it in the
attempt log.
"""

import os
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from enum import Enum, auto
from functools import partial
from itertools import takewhile
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from framekiln.contract.columns import KEYS
from framekiln.contract.errors import ContractError
from framekiln.contract.phases import running
from framekiln.contract.stage import Scope, Stage
from framekiln.device import Batches, is_end_of_process, release_memory
from framekiln.device.watchdog import within
from framekiln.planning.step import Step
from framekiln.profiling.records import now
from framekiln.profiling.step_work import StepWork
from framekiln.profiling.tools.torch_profiler import ProfiledStage
from framekiln.runtime.recovery.attempt_log import Attempt
from framekiln.runtime.recovery.batch_limits import BatchLimits
from framekiln.runtime.recovery.captured_error import BROKEN_GPU, CapturedError, capture
from framekiln.runtime.recovery.child_process import ChildDied
from framekiln.runtime.recovery.child_tasks import NotTried, StageCalls, call_in_children, not_set_up
from framekiln.runtime.stage_setup import set_up


@dataclass(frozen=True)
class Batch:
    """The rows of one call, by their numbers in the packet: the first `keep` are computed, the rest is halo."""

    indices: NDArray[np.int64]
    keep: int

    @property
    def own(self) -> NDArray[np.int64]:
        return self.indices[: self.keep]


class CallPlace(Enum):
    """The place of a call."""

    HERE = auto()
    CHILD = auto()
    ON_CPU = auto()  # compute in this process, by a copy of the stage on the CPU


NoResult = CapturedError | ChildDied | NotTried
"""Result types of calls that did not return."""


PendingCall = tuple[Batch, CallPlace]
"""A pending call."""


@dataclass(frozen=True, kw_only=True)
class CallData:
    """The rows that a stage is called on, and the facts that their calls share."""

    rows: pa.Table  # rows of a packet with halo, or of a file
    extra: tuple[Any, ...] = ()  # further arguments of second-pass calls: tables of other steps, the file's reader
    name: str = ""  # name of a second-pass call in the attempt log: the file
    bucket: int = 0  # bucket of the image size; see `BatchLimits`
    attempt: Attempt = field(default_factory=Attempt)
    work: StepWork = field(default_factory=StepWork)


class StageCaller:
    """One step's stage, called until each row has a result or has failed."""

    def __init__(self, step: Step, limits: BatchLimits | None = None, profiler: ProfiledStage | None = None) -> None:
        self._step, self._stage, self._profiler = step, step.stage, profiler
        self._limits = limits or BatchLimits()
        if self._limits.chunks:
            self._stage.chunk_sizes |= self._limits.chunks
        self._cpu_stage: Stage | None = None

    def settle(self, data: CallData, whole: Batch) -> Iterator[tuple[Batch, Any]]:
        """Call the stage on a batch, whole or in smaller ones, and yield each with its result or error.

        Raises ContractError: the stage raised it.
        """
        calls = [self._make_pending(data, whole)]
        while calls:
            count = len([*takewhile(lambda call: call[1] is CallPlace.CHILD, calls)]) or 1  # one child makes several
            current, calls = calls[:count], calls[count:]
            following: list[PendingCall] = []
            if current[0][1] is CallPlace.CHILD:
                results = self._call_children(data, current)
            else:
                results = [self._find_way(data)(partial(self._get_result, data, *current[0], time.perf_counter()))]
            for (batch, state), result in zip(current, results, strict=True):
                if not isinstance(result, NoResult):
                    if state is not CallPlace.ON_CPU:
                        self._limits.confirm(data.bucket, batch.keep)
                    yield batch, result
                    continue
                new = self._follow_up(data, batch, state, result)
                if not new:
                    yield batch, self._explain(result)
                following += new
            calls = [*following, *calls]

    def _follow_up(self, data: CallData, batch: Batch, state: CallPlace, result: NoResult) -> list[PendingCall]:
        """Return the calls that replace one without a result; empty if its rows have failed."""
        is_divisible = self._stage.scope is Scope.ROW and batch.keep > 1
        match result, is_divisible:
            case CapturedError(out_of_memory=True), _:
                release_memory()
                return self._shrink(data, batch, state, is_divisible=is_divisible)
            case ((CapturedError() | NotTried()), True):
                return self._halve(data, batch)
            case ChildDied(), True:
                return [(Batch(row, 1), CallPlace.CHILD) for row in np.split(batch.indices, batch.keep)]
            case NotTried(), False if not data.attempt.is_last:
                return [(batch, CallPlace.HERE)]
        return []

    def _halve(self, data: CallData, batch: Batch) -> list[PendingCall]:
        return [self._make_pending(data, Batch(half, len(half))) for half in np.array_split(batch.indices, 2)]

    def _shrink(self, data: CallData, batch: Batch, state: CallPlace, *, is_divisible: bool) -> list[PendingCall]:
        """Return calls that replace one that ran out of memory; empty if none needs less."""
        chunks, place = self._stage.chunk_sizes, self._step.placement
        if place.in_flight > 1 and not data.work.is_retried:
            again = [(batch, state)]  # apart from now on: another packet's call may have taken the memory
        elif is_divisible:
            self._limits.lower(data.bucket, batch.keep)
            again = self._halve(data, batch)
        elif any(size > 1 for size in chunks.values()):
            chunks.update(self._limits.halve_chunks(data.bucket, chunks))
            again = [self._make_pending(data, batch)]
        elif place.too_large == "cpu" and place.device != "cpu" and state is not CallPlace.ON_CPU:
            again = [(batch, CallPlace.ON_CPU)]
        else:
            return []
        data.work.retry()
        return again

    def _make_pending(self, data: CallData, batch: Batch) -> PendingCall:
        is_suspect = self._name_call(data, batch) in data.attempt.suspects
        return batch, CallPlace.CHILD if is_suspect else CallPlace.HERE

    def _call_children(self, data: CallData, calls: list[PendingCall]) -> list[Any]:
        tables, asked = [self._slice(data, batch) for batch, _ in calls], time.perf_counter()

        def make() -> list[Any]:
            data.work.waited(time.perf_counter() - asked)
            release_memory()  # for the child
            return call_in_children(StageCalls.of(self._step, tables, data.extra), len(tables))

        return Batches.calls.apart(make)

    def _find_way(self, data: CallData) -> Callable[[Callable[[], Any]], Any]:
        """Return what makes a call in this process: beside other packets' calls, or apart."""
        calls, is_recorded = Batches.calls, self._profiler is not None and self._profiler.is_recording
        if data.attempt.is_careful or data.work.is_retried or (is_recorded and not calls.has_owner):
            return calls.apart
        # A recorded call has the GPU to itself; other packets are prepared and written meanwhile, as usual.
        return partial(calls.beside, alone_in=None if self._stage.thread_safe else self._stage, owned=is_recorded)

    def _get_result(self, data: CallData, batch: Batch, state: CallPlace, asked: float) -> Any:
        """Return the stage's result or error; the call is in the attempt log while it is made."""
        data.work.waited(time.perf_counter() - asked)
        table = self._slice(data, batch)
        data.attempt.note(self._name_call(data, batch))
        on_cpu, place, limit_s = state is CallPlace.ON_CPU, self._step.placement, 0.0
        stage, device = (self._set_up_on_cpu(), "cpu") if on_cpu else (self._stage, place.device)
        if self._step.first_pass and data.attempt.is_logged:
            waits = Batches.calls.has_owner and not data.attempt.is_careful  # waits for calls of other packets
            limit_s = place.timeout_s * (place.in_flight if waits else 1)
        started, begin = now(), time.perf_counter()
        try:
            with within(limit_s), running(stage.clock):
                result = self._profiler(stage, table) if self._profiler is not None else stage(table, *data.extra)
            data.work.call_returned(stage, batch.own, device, started, time.perf_counter() - begin)
        except ContractError:
            raise
        except BaseException as error:  # `sys.exit` in a stage must not end its process
            if is_end_of_process(error):
                raise
            data.work.call_failed(stage)
            result = capture(error)
        if data.attempt.is_logged and isinstance(result, CapturedError) and result.broken_gpu:
            os._exit(BROKEN_GPU)  # only another process can use the GPU again; the note stays, as after a death
        data.attempt.note("")
        return result

    def _set_up_on_cpu(self) -> Stage:
        if self._cpu_stage is None:
            step = not_set_up(replace(self._step, placement=self._step.placement.on_cpu()))
            set_up(step)
            self._cpu_stage = step.stage
        return self._cpu_stage

    def _explain(self, result: NoResult) -> CapturedError:
        if isinstance(result, NotTried):
            result = ChildDied("it was alone", result.last_lines)
        if isinstance(result, ChildDied):
            return result.explained(f"step {self._step.name!r}")
        return result.explained(self._step)

    def _name_call(self, data: CallData, batch: Batch) -> str:
        """Return the call's name in the attempt log, the same in every attempt; empty before any death."""
        if not data.attempt.is_careful:
            return ""
        if not self._step.first_pass:
            return f"{self._step.name}: {data.name}"
        media_id, frame = (data.rows[key][int(batch.indices[0])].as_py() for key in KEYS)
        return f"{self._step.name}: {batch.keep} from frame {frame} of {media_id}"

    def _slice(self, data: CallData, batch: Batch) -> pa.Table:
        """Return the rows of a batch in ascending order, as slices of the packet's buffers: pixels are not copied."""
        rows, breaks = data.rows.select(self._stage.received), np.flatnonzero(np.diff(batch.indices) != 1) + 1
        runs = np.split(batch.indices, breaks)
        return pa.concat_tables([rows.slice(int(run[0]), len(run)) for run in runs if len(run)] or [rows.slice(0, 0)])
