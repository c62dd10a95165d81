"""Profilers around single calls of a stage: torch's own, its memory history, and NVTX ranges for Nsight Systems.

A recorder writes each call when it has returned, since a worker may be ended at any moment. A recorder that fails
writes the reason into a file beside its recordings, and the call is made all the same.
"""

import gzip
import json
import pickle
import tempfile
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from contextlib import nullcontext, suppress
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa

from framekiln.contract.stage import Stage
from framekiln.device import torch
from framekiln.output.object_store import Store

Call = Callable[[], Any]
CallProfiler = Callable[[Stage, Call], Any]
"""Makes a call of a stage, observes it and returns its result; its exceptions pass through."""

FIRST = 1  # calls that are not recorded: they load kernels and choose algorithms
FAILED = ".failed.txt"
"""Ending of a file with the reason why a profiler recorded nothing."""
_ROWS = 25  # of a table of operators
_COUNTER = {"ph": "C", "name": "tensors"}  # of a trace
_EVENTS = 200_000  # of the GPU's allocator that are kept, each with its stack


class ProfiledStage:
    """A stage that is called through profilers, the first of them innermost."""

    def __init__(self, profilers: Sequence[CallProfiler]) -> None:
        self._profilers = profilers

    @property
    def is_recording(self) -> bool:
        """True if the next call is recorded, so that it must have none beside it."""
        return any(getattr(profiler, "records_next", False) for profiler in self._profilers)

    def __call__(self, stage: Stage, batch: pa.Table) -> Any:
        """Call the stage and return its result."""
        call: Call = partial(stage, batch)
        for profiler in self._profilers:
            call = partial(profiler, stage, call)
        return call()


class CallRecorder(ABC):
    """A profiler that records some calls, after the first."""

    def __init__(self, step: str, device: str, calls: int, store: Store, name: str) -> None:
        """Bind; `name` is the files' path without their endings."""
        self._step, self._device, self._calls, self._store, self._name = step, device, calls, store, name
        self._seen = 0

    @property
    def records_next(self) -> bool:
        """True until the last call to be recorded has been made."""
        return self._seen < FIRST + self._calls

    def __call__(self, stage: Stage, call: Call) -> Any:
        """See `CallProfiler`."""
        number = self._seen - FIRST + 1
        self._seen += 1
        if not 0 < number <= self._calls:
            return call()
        try:
            self.begin(stage)
        except Exception as error:
            self.fail(error)
            return call()
        try:
            return call()
        finally:
            try:
                self.end(number)
            except Exception as error:
                self.fail(error)

    @abstractmethod
    def begin(self, stage: Stage) -> None:
        """Start recording, before a call."""

    @abstractmethod
    def end(self, number: int) -> None:
        """Stop recording and write, after a call has returned or raised; numbers count from 1."""

    def save(self, ending: str, data: bytes) -> None:
        """Write a file."""
        self._store.write(f"{self._name}{ending}", data)

    def fail(self, error: object) -> None:
        """Write the reason why there is no recording, and record no more."""
        self._calls = 0
        reason = str(error).splitlines()[0].rstrip(".") if str(error) else type(error).__name__
        with suppress(Exception):
            self.save(FAILED, f"step {self._step} could not be recorded: {reason}.".encode())


class NvtxRanges:
    """NVTX ranges: one for each call, named by its step, and in it one for each phase."""

    records_next = True

    def __init__(self, step: str) -> None:
        self._step, self._annotated = step, False

    def __call__(self, stage: Stage, call: Call) -> Any:
        """See `CallProfiler`."""
        if not torch.cuda.is_available():
            return call()
        if not self._annotated:
            self._annotated = True
            stage.annotate = torch.cuda.nvtx.range
        with torch.cuda.nvtx.range(self._step):
            return call()


class TorchProfiler(CallRecorder):
    """Recorder of a Chrome trace for each call, and of tables of all operators by time and by memory."""

    _profile: Any = None
    _range: Any = nullcontext()
    _events: Any = None

    def begin(self, stage: Stage) -> None:
        """See `CallRecorder`."""
        if self._profile is None:
            stage.annotate = torch.profiler.record_function
        self._profile = profiler_of(self._device)
        self._profile.start()
        self._range = torch.profiler.record_function(self._step)
        self._range.__enter__()

    def end(self, number: int) -> None:
        """See `CallRecorder`."""
        self._range.__exit__(None, None, None)
        self._profile.stop()
        self.save(f"-{number}.json.gz", _write_trace(self._profile))
        if self._events is None:
            self._events = self._profile.events()
        else:
            self._events.extend(self._profile.events())
        about = f"Step {self._step}: {number} calls, after {FIRST} that was not recorded.\n\n"
        self.save("-operators.txt", (about + operator_tables(self._events.key_averages(), self._device)).encode())


class MemoryTimeline(CallRecorder):
    """Recorder of tensor memory: on a GPU the allocator's history, on the CPU a counter beside the operators."""

    _profile: Any = None

    def begin(self, stage: Stage) -> None:  # noqa: ARG002
        """See `CallRecorder`."""
        if self._device == "cpu":
            self._profile = profiler_of(self._device)
            self._profile.start()
            return
        torch.cuda.memory._record_memory_history(max_entries=_EVENTS, stacks="python")

    def end(self, number: int) -> None:
        """See `CallRecorder`."""
        if self._device != "cpu":
            try:
                self.save(f"-{number}.pickle", pickle.dumps(torch.cuda.memory._snapshot()))
            finally:
                torch.cuda.memory._record_memory_history(enabled=None)
            return
        self._profile.stop()
        trace = json.loads(gzip.decompress(_write_trace(self._profile)))
        counters = [
            {**_COUNTER, "pid": one["pid"], "ts": one["ts"], "args": {"MB": one["args"]["Total Allocated"] / 1e6}}
            for one in trace["traceEvents"]
            if one.get("name") == "[memory]" and one["args"].get("Device Type") == 0
        ]
        if not counters:
            self.fail("its call made no tensors by torch, whose memory alone can be watched on the CPU")
            return
        trace["traceEvents"] += counters
        self.save(f"-{number}.json.gz", gzip.compress(json.dumps(trace, separators=(",", ":")).encode()))


def profiler_of(device: str) -> Any:
    """Return torch's profiler of a device, with memory and shapes."""
    from torch.profiler import ProfilerActivity, profile

    activities = [ProfilerActivity.CPU, *([] if device == "cpu" else [ProfilerActivity.CUDA])]
    return profile(activities=activities, profile_memory=True, record_shapes=True)


def operator_tables(averages: Any, device: str) -> str:
    """Return the operators by their own time and by their own memory on a device, most first."""
    where = "cpu" if device == "cpu" else "device"
    keys = {"time": f"self_{where}_time_total", "memory": f"self_{where}_memory_usage"}
    table = partial(averages.table, row_limit=_ROWS, max_name_column_width=60)
    return "\n".join(f"By {what}\n\n{table(sort_by=key)}" for what, key in keys.items())


def _write_trace(profile: Any) -> bytes:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "trace.json.gz"
        profile.export_chrome_trace(str(path))
        return path.read_bytes()
