"""Detailed recordings of one cell: torch's profiler, Python's, times by line, and synchronisations."""

import cProfile
import importlib
import io
import pstats
import re
import sys
import traceback
import warnings
from collections import Counter
from collections.abc import Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from framekiln.contract.errors import ConfigError
from framekiln.device import torch
from framekiln.lab.measure.layers import around_modules
from framekiln.lab.measure.prepared import Prepared
from framekiln.lab.modules import UnsupportedError
from framekiln.profiling.tools.torch_profiler import operator_tables, profiler_of

_CALLS = 3  # recorded calls, after one unrecorded: enough to show a pattern, few enough to read
_ROWS = 30  # rows of a table
_SYNCING = ("aten::item", "aten::_local_scalar_dense", "aten::nonzero")
"""Operators with results for the CPU, which on a GPU must wait for them."""


@dataclass(frozen=True, kw_only=True)
class DetailOptions:
    """Recordings of the first cell of each model; none by default, since each slows calls down."""

    trace: bool = False
    cprofile: bool = False
    lines: str = ""  # module:function
    depth: int = 2  # depth of the ranges in a trace

    @property
    def is_asked(self) -> bool:
        return self.trace or self.cprofile or bool(self.lines)


@dataclass(frozen=True, kw_only=True)
class Details:
    """Recordings of one model."""

    files: tuple[str, ...]
    notes: tuple[str, ...] = ()  # why a recording is missing
    syncs: Mapping[str, int] = field(default_factory=dict)  # waits for the GPU in a call, by operator or line


def record(prepared: Prepared, title: str, options: DetailOptions, folder: Path) -> Details:
    """Make all requested recordings, in files of a folder named by the title."""
    folder.mkdir(parents=True, exist_ok=True)
    start = str(folder / re.sub(r"[^\w.-]+", "-", title))
    asked = {"trace": options.trace, "cprofile": options.cprofile, "lines": bool(options.lines)}
    files, notes = list[str](), list[str]()
    for name, make in {"trace": _write_trace, "cprofile": _write_cprofile, "lines": _write_lines}.items():
        try:
            files += make(prepared, start, options) if asked[name] else []
        except UnsupportedError as error:
            notes.append(str(error))
    return Details(files=tuple(files), notes=tuple(notes), syncs=synchronisations(prepared) if options.trace else {})


def _write_trace(prepared: Prepared, start: str, options: DetailOptions) -> list[str]:
    """Write a Chrome trace with a range for each module, and tables of operators by time and by memory."""
    prepared.call()
    with _mark_ranges(prepared, options.depth), profiler_of(prepared.device) as recorded:
        for number in range(_CALLS):
            with torch.profiler.record_function(f"call {number}"):
                prepared.call()
        prepared.wait()
    trace, table = f"{start}.json.gz", f"{start}-operators.txt"
    recorded.export_chrome_trace(trace)
    Path(table).write_text(operator_tables(recorded.key_averages(), prepared.device))
    return [trace, table]


def _write_cprofile(prepared: Prepared, start: str, _: DetailOptions) -> list[str]:
    prepared.call()
    profiler, buffer = cProfile.Profile(), io.StringIO()
    with profiler:
        for _number in range(_CALLS):
            prepared.call()
        prepared.wait()
    data, text = f"{start}.pstats", f"{start}-cprofile.txt"
    profiler.dump_stats(data)
    pstats.Stats(profiler, stream=buffer).sort_stats("cumulative").print_stats(_ROWS)
    Path(text).write_text(buffer.getvalue())
    return [data, text]


def _write_lines(prepared: Prepared, start: str, options: DetailOptions) -> list[str]:
    """Write the times of a function's lines over some calls.

    Raises UnsupportedError: line_profiler is not installed, or no call runs the function.
    """
    function = function_of(options.lines)
    try:
        from line_profiler import LineProfiler
    except ImportError as error:
        raise UnsupportedError("line_profiler is not installed: pip install 'framekiln[bench]'") from error
    profiler, buffer = LineProfiler(function), io.StringIO()
    prepared.call()
    with profiler:
        for _ in range(_CALLS):
            prepared.call()
    if not any(profiler.get_stats().timings.values()):
        raise UnsupportedError(f"no line of {options.lines} ran: a call of the model does not reach it")
    profiler.print_stats(stream=buffer, stripzeros=False)
    Path(f"{start}-lines.txt").write_text(buffer.getvalue())
    return [f"{start}-lines.txt"]


def function_of(target: str) -> Any:
    """Return the function named `module:function` or `module:Class.method`. Raises ConfigError: there is none."""
    module, _, path = target.partition(":")
    try:
        found: Any = sys.modules.get(module) or importlib.import_module(module)
        for name in path.split("."):
            found = getattr(found, name)
    except (ImportError, AttributeError, ValueError) as error:
        problem = f"--lines {target!r}: there is no such function; give module:function, or module:Class.method."
        raise ConfigError(problem, code="FK-BENCH-LINES") from error
    return found


def synchronisations(prepared: Prepared) -> dict[str, int]:
    """Return how often a call waits for the GPU, by operator or by line of code.

    On a GPU torch warns at each operation that waits, and the warning names the line. On a CPU, operators that would
    wait on a GPU are counted.
    """
    prepared.call()
    if prepared.device != "cpu":
        return _count_warnings(prepared)
    with profiler_of("cpu") as recorded:
        prepared.call()
    counts = {event.key: event.count for event in recorded.key_averages() if event.key in _SYNCING}
    if "aten::item" in counts:  # it calls the other
        counts.pop("aten::_local_scalar_dense", None)
    return counts


def _count_warnings(prepared: Prepared) -> dict[str, int]:
    lines: Counter[str] = Counter()

    def seen(message: Any, *_: object, **__: object) -> None:
        if "synchroniz" in str(message):
            frames = [frame for frame in traceback.extract_stack() if "/torch/" not in frame.filename]
            lines[f"{frames[-2].filename}:{frames[-2].lineno}"] += 1

    cuda: Any = torch.cuda
    with warnings.catch_warnings():
        warnings.simplefilter("always")
        warnings.showwarning = seen
        cuda.set_sync_debug_mode("warn")
        try:
            prepared.call()
        finally:
            cuda.set_sync_debug_mode("default")
    return dict(lines)


def _mark_ranges(prepared: Prepared, depth: int) -> AbstractContextManager[None]:
    """Put a range of the profiler, and on a GPU of NVTX, around each module's calls; ranges are nested."""
    opened: list[Any] = []

    def before(path: str, *_: object) -> None:
        opened.append(torch.profiler.record_function(path))
        opened[-1].__enter__()
        if prepared.device != "cpu":
            torch.cuda.nvtx.range_push(path)  # type: ignore[no-untyped-call]

    def after(*_: object) -> None:
        if prepared.device != "cpu":
            torch.cuda.nvtx.range_pop()  # type: ignore[no-untyped-call]
        opened.pop().__exit__(None, None, None)

    return around_modules(prepared.roots, depth, before, after)
