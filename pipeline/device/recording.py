"""Torch's own instruments around single calls of a stage: its profiler, its memory's history, marks for Nsight Systems.

Each call is recorded by itself and written when it has returned, since a worker may be ended at any moment. An
instrument that fails says so in a file beside, and the call is made all the same.
"""

from __future__ import annotations

import gzip
import json
import pickle
import tempfile
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from contextlib import nullcontext, suppress
from functools import partial
from pathlib import Path
from typing import Any, Protocol

import pyarrow as pa

from pipeline.stage import Stage

Call = Callable[[], Any]

FIRST = 1  # calls that are not recorded: they load kernels and choose algorithms
_ROWS = 25  # of a table of operators
_EVENTS = 200_000  # of the GPU's allocator that are kept, each with its stack


class Files(Protocol):
    """Where recordings go: see `pipeline.storage.Store`."""

    def write(self, path: str, data: bytes) -> None:
        """Write a file whole."""


class Calls(Protocol):
    """An instrument: it makes calls of a stage, and looks at them."""

    def __call__(self, stage: Stage, call: Call) -> Any:
        """What the call returns; what it raises passes."""


class Probe:
    """Calls a stage through instruments, the first of them innermost."""

    def __init__(self, around: Sequence[Calls]) -> None:
        self._around = around

    def __call__(self, stage: Stage, batch: pa.Table) -> Any:
        """What the stage returns."""
        call: Call = partial(stage, batch)
        for one in self._around:
            call = partial(one, stage, call)
        return call()


class Marks:
    """NVTX ranges: one a call, named by its step, and in it one a phase."""

    def __init__(self, step: str) -> None:
        self._step, self._marked = step, False

    def __call__(self, stage: Stage, call: Call) -> Any:
        """See `Calls`."""
        import torch

        if not torch.cuda.is_available():
            return call()
        if not self._marked:
            self._marked = True
            stage.mark = torch.cuda.nvtx.range
        with torch.cuda.nvtx.range(self._step):
            return call()


class Recorded(ABC):
    """Records some calls, after the first."""

    def __init__(self, step: str, device: str, calls: int, files: Files, name: str) -> None:
        """Bind.

        Args:
            step: the step's name.
            device: where it runs.
            calls: how many to record.
            files: where to.
            name: what files are called, but for their endings.
        """
        self._step, self._device, self._calls, self._files, self._name = step, device, calls, files, name
        self._made = 0

    def __call__(self, stage: Stage, call: Call) -> Any:
        """See `Calls`."""
        number = self._made - FIRST + 1
        self._made += 1
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
        """A call is about to be made."""

    @abstractmethod
    def end(self, number: int) -> None:
        """It has returned, or raised; numbers count from 1."""

    def save(self, ending: str, data: bytes) -> None:
        """Write a file."""
        self._files.write(f"{self._name}{ending}", data)

    def fail(self, error: object) -> None:
        """Say why there is nothing, and record no more."""
        self._calls = 0
        reason = str(error).splitlines()[0].rstrip(".") if str(error) else type(error).__name__
        with suppress(Exception):
            self.save(".failed.txt", f"step {self._step} could not be recorded: {reason}.".encode())


class TorchProfiler(Recorded):
    """A Chrome trace of each call, and tables of the operators of all, by time and by memory."""

    _profile: Any = None
    _range: Any = nullcontext()
    _events: Any = None

    def begin(self, stage: Stage) -> None:
        """See `Recorded`."""
        import torch

        if self._profile is None:
            stage.mark = torch.profiler.record_function
        self._profile = _profile(self._device)
        self._profile.start()
        self._range = torch.profiler.record_function(self._step)
        self._range.__enter__()

    def end(self, number: int) -> None:
        """See `Recorded`."""
        self._range.__exit__(None, None, None)
        self._profile.stop()
        self.save(f"-{number}.json.gz", _trace(self._profile))
        if self._events is None:
            self._events = self._profile.events()
        else:
            self._events.extend(self._profile.events())
        self.save("-operators.txt", self._tables(number).encode())

    def _tables(self, number: int) -> str:
        where, found = "cpu" if self._device == "cpu" else "device", self._events.key_averages()
        parts = [f"Step {self._step}: {number} calls, after {FIRST} that was not recorded.\n"]
        for what, key in (("time", f"self_{where}_time_total"), ("memory", f"self_{where}_memory_usage")):
            parts.append(f"By {what}\n\n{found.table(sort_by=key, row_limit=_ROWS, max_name_column_width=60)}")
        return "\n".join(parts)


class MemoryTimeline(Recorded):
    """Memory of tensors over time: on a GPU the allocator's history, on the CPU a counter beside the operators."""

    _profile: Any = None

    def begin(self, stage: Stage) -> None:  # noqa: ARG002
        """See `Recorded`."""
        if self._device == "cpu":
            self._profile = _profile(self._device)
            self._profile.start()
            return
        import torch

        torch.cuda.memory._record_memory_history(max_entries=_EVENTS, stacks="python")

    def end(self, number: int) -> None:
        """See `Recorded`."""
        if self._device != "cpu":
            import torch

            try:
                self.save(f"-{number}.pickle", pickle.dumps(torch.cuda.memory._snapshot()))
            finally:
                torch.cuda.memory._record_memory_history(enabled=None)
            return
        self._profile.stop()
        told = json.loads(gzip.decompress(_trace(self._profile)))
        counters = list(_counters(told["traceEvents"]))
        if not counters:
            self.fail("its call made no tensors by torch, whose memory alone can be watched on the CPU")
            return
        told["traceEvents"] += counters
        self.save(f"-{number}.json.gz", gzip.compress(json.dumps(told, separators=(",", ":")).encode()))


def _profile(device: str) -> Any:
    from torch.profiler import ProfilerActivity, profile

    activities = [ProfilerActivity.CPU, *([] if device == "cpu" else [ProfilerActivity.CUDA])]
    return profile(activities=activities, profile_memory=True, record_shapes=True)


def _trace(profile: Any) -> bytes:
    """A Chrome trace, packed."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "trace.json.gz"
        profile.export_chrome_trace(str(path))
        return path.read_bytes()


def _counters(events: Sequence[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    """Counter events of what the profiler says of each allocation: tensors since the call began."""
    for event in events:
        if event.get("name") == "[memory]" and event["args"].get("Device Type") == 0:
            value = {"MB": event["args"]["Total Allocated"] / 1e6}
            yield {"ph": "C", "name": "tensors", "pid": event["pid"], "ts": event["ts"], "args": value}
