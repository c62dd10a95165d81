"""Profilers around single calls of a stage: torch's own, its memory history, and NVTX ranges for Nsight Systems.

A recorder writes each call on its return, since a worker may be ended at any moment. A failing recorder writes the
reason into a file beside its recordings; the call is made all the same.
"""

import gzip
import json
import pickle
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa

from framekiln.contract.stage import Stage
from framekiln.device import torch
from framekiln.output.object_store import Store

StageCall = Callable[[], Any]
CallProfiler = Callable[[Stage, StageCall], Any]
"""Makes a call of a stage, observes it and returns its result; its exceptions pass through."""

FIRST = 1  # first calls, not recorded: they load kernels and choose algorithms
FAILED = ".failed.txt"
"""Ending of a file with the reason why a profiler recorded nothing."""
_ROWS = 25  # rows in a table of operators
_COUNTER = {"ph": "C", "name": "tensors"}  # a counter in a trace
_EVENTS = 200_000  # events of the GPU's allocator that are kept, each with its stack


class ProfiledStage:
    """A stage called through profilers, the first of them innermost."""

    def __init__(self, profilers: Sequence[CallProfiler]) -> None:
        self._profilers = profilers

    @property
    def is_recording(self) -> bool:
        """True if the next call is recorded, and so must run alone."""
        return any(getattr(profiler, "records_next", False) for profiler in self._profilers)

    def __call__(self, stage: Stage, batch: pa.Table) -> Any:
        call: StageCall = partial(stage, batch)
        for profiler in self._profilers:
            call = partial(profiler, stage, call)
        return call()


class CallRecorder:
    """A profiler that records some calls after the first ones."""

    def __init__(self, record: "Recording", step: str, device: str, calls: int, store: Store, name: str) -> None:
        """Bind; `name` is the files' path without their endings."""
        self.step, self.device = step, device
        self.events: Any = None  # events of all recorded calls
        self._record, self._calls, self._store, self._name = record, calls, store, name
        self._seen = 0

    @property
    def records_next(self) -> bool:
        """True until all calls have been recorded."""
        return self._seen < FIRST + self._calls

    def __call__(self, stage: Stage, call: StageCall) -> Any:
        number = self._seen - FIRST + 1
        self._seen += 1
        if not 0 < number <= self._calls:
            return call()
        recording = self._record(self, stage, number)
        try:
            recording.__enter__()
        except Exception as error:
            self.fail(error)
            return call()
        try:
            return call()
        finally:
            try:
                recording.__exit__(None, None, None)
            except Exception as error:
                self.fail(error)

    def save(self, ending: str, data: bytes) -> None:
        self._store.write(f"{self._name}{ending}", data)

    def fail(self, error: object) -> None:
        """Write the reason for the missing recording, and stop recording."""
        self._calls = 0
        reason = str(error).splitlines()[0].rstrip(".") if str(error) else type(error).__name__
        with suppress(Exception):
            self.save(FAILED, f"step {self.step} could not be recorded: {reason}.".encode())


Recording = Callable[[CallRecorder, Stage, int], AbstractContextManager[None]]
"""Surrounds a call (numbered from 1), and writes its recording."""


class NvtxRanges:
    """NVTX ranges: one for each call, named after its step, and inside it one for each phase."""

    records_next = True

    def __init__(self, step: str) -> None:
        self._step, self._annotated = step, False

    def __call__(self, stage: Stage, call: StageCall) -> Any:
        if not torch.cuda.is_available():
            return call()
        if not self._annotated:
            self._annotated = True
            stage.annotate = torch.cuda.nvtx.range
        with torch.cuda.nvtx.range(self._step):
            return call()


@contextmanager
def record_trace(recorder: CallRecorder, stage: Stage, number: int) -> Iterator[None]:
    """Record a Chrome trace of a call, and tables of all calls' operators by time and by memory."""
    stage.annotate = torch.profiler.record_function
    with profiler_of(recorder.device) as profile, torch.profiler.record_function(recorder.step):
        yield
    recorder.save(f"-{number}.json.gz", _write_trace(profile))
    if recorder.events is None:
        recorder.events = profile.events()
    else:
        recorder.events.extend(profile.events())
    about = f"Step {recorder.step}: {number} calls; the first {FIRST} not recorded.\n\n"
    tables = operator_tables(recorder.events.key_averages(), recorder.device)
    recorder.save("-operators.txt", (about + tables).encode())


@contextmanager
def record_memory(recorder: CallRecorder, _: Stage, number: int) -> Iterator[None]:
    """Record tensor memory: on a GPU the allocator's history, on the CPU the operators' counts."""
    if recorder.device != "cpu":
        torch.cuda.memory._record_memory_history(max_entries=_EVENTS, stacks="python")
        yield
        try:
            recorder.save(f"-{number}.pickle", pickle.dumps(torch.cuda.memory._snapshot()))
        finally:
            torch.cuda.memory._record_memory_history(enabled=None)
        return
    with profiler_of(recorder.device) as profile:
        yield
    trace = json.loads(gzip.decompress(_write_trace(profile)))
    counters = [
        {**_COUNTER, "pid": one["pid"], "ts": one["ts"], "args": {"MB": one["args"]["Total Allocated"] / 1e6}}
        for one in trace["traceEvents"]
        if one.get("name") == "[memory]" and one["args"].get("Device Type") == 0
    ]
    if not counters:
        recorder.fail("its call made no torch tensors; on the CPU only their memory is recorded")
        return
    trace["traceEvents"] += counters
    recorder.save(f"-{number}.json.gz", gzip.compress(json.dumps(trace, separators=(",", ":")).encode()))


def profiler_of(device: str) -> Any:
    """Return torch's profiler of a device, with memory and shapes."""
    from torch.profiler import ProfilerActivity, profile

    activities = [ProfilerActivity.CPU, *([] if device == "cpu" else [ProfilerActivity.CUDA])]
    return profile(activities=activities, profile_memory=True, record_shapes=True)


def operator_tables(averages: Any, device: str) -> str:
    """Return the operators by their own time, and by their own memory on a device, most first."""
    where = "cpu" if device == "cpu" else "device"
    table = partial(averages.table, row_limit=_ROWS, max_name_column_width=60)
    by_time, by_memory = (table(sort_by=f"self_{where}_{key}") for key in ("time_total", "memory_usage"))
    return f"By time\n\n{by_time}\nBy memory\n\n{by_memory}"


def _write_trace(profile: Any) -> bytes:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "trace.json.gz"
        profile.export_chrome_trace(str(path))
        return path.read_bytes()
