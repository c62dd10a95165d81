"""Torch's profilers of single calls: its profiler, its memory history, and NVTX ranges for Nsight Systems."""

import gzip
import json
import pickle
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import Any

from framekiln.contract.stage import Stage
from framekiln.profiling.tools.call_recorder import FIRST, Call, CallRecorder

_ROWS = 25  # of a table of operators
_EVENTS = 200_000  # of the GPU's allocator that are kept, each with its stack


class NvtxRanges:
    """NVTX ranges: one for each call, named by its step, and in it one for each phase."""

    records_next = True

    def __init__(self, step: str) -> None:
        self._step, self._annotated = step, False

    def __call__(self, stage: Stage, call: Call) -> Any:
        """See `CallProfiler`."""
        import torch

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
        import torch

        if self._profile is None:
            stage.annotate = torch.profiler.record_function
        self._profile = _profile(self._device)
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
        self.save("-operators.txt", self._write_tables(number).encode())

    def _write_tables(self, number: int) -> str:
        where, averages = "cpu" if self._device == "cpu" else "device", self._events.key_averages()
        parts = [f"Step {self._step}: {number} calls, after {FIRST} that was not recorded.\n"]
        for what, key in (("time", f"self_{where}_time_total"), ("memory", f"self_{where}_memory_usage")):
            parts.append(f"By {what}\n\n{averages.table(sort_by=key, row_limit=_ROWS, max_name_column_width=60)}")
        return "\n".join(parts)


class MemoryTimeline(CallRecorder):
    """Recorder of tensor memory: on a GPU the allocator's history, on the CPU a counter beside the operators."""

    _profile: Any = None

    def begin(self, stage: Stage) -> None:  # noqa: ARG002
        """See `CallRecorder`."""
        if self._device == "cpu":
            self._profile = _profile(self._device)
            self._profile.start()
            return
        import torch

        torch.cuda.memory._record_memory_history(max_entries=_EVENTS, stacks="python")

    def end(self, number: int) -> None:
        """See `CallRecorder`."""
        if self._device != "cpu":
            import torch

            try:
                self.save(f"-{number}.pickle", pickle.dumps(torch.cuda.memory._snapshot()))
            finally:
                torch.cuda.memory._record_memory_history(enabled=None)
            return
        self._profile.stop()
        trace = json.loads(gzip.decompress(_write_trace(self._profile)))
        counters = list(_find_counters(trace["traceEvents"]))
        if not counters:
            self.fail("its call made no tensors by torch, whose memory alone can be watched on the CPU")
            return
        trace["traceEvents"] += counters
        self.save(f"-{number}.json.gz", gzip.compress(json.dumps(trace, separators=(",", ":")).encode()))


def _profile(device: str) -> Any:
    from torch.profiler import ProfilerActivity, profile

    activities = [ProfilerActivity.CPU, *([] if device == "cpu" else [ProfilerActivity.CUDA])]
    return profile(activities=activities, profile_memory=True, record_shapes=True)


def _write_trace(profile: Any) -> bytes:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "trace.json.gz"
        profile.export_chrome_trace(str(path))
        return path.read_bytes()


def _find_counters(events: Sequence[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    for event in events:
        if event.get("name") == "[memory]" and event["args"].get("Device Type") == 0:
            value = {"MB": event["args"]["Total Allocated"] / 1e6}
            yield {"ph": "C", "name": "tensors", "pid": event["pid"], "ts": event["ts"], "args": value}
