"""Detailed recordings of one cell: torch's profiler, Python's, times by line, and synchronisations."""

from __future__ import annotations

import cProfile
import importlib
import io
import pstats
import re
import sys
import traceback
import warnings
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from framekiln.contract.errors import ConfigError
from framekiln.device import torch
from framekiln.lab.measure.layers import modules_to
from framekiln.lab.measure.precision import UnsupportedError
from framekiln.lab.measure.prepared import Prepared
from framekiln.profiling.tools.torch_profiler import profiler_of

_CALLS = 3  # recorded, after one that is not: enough to see what repeats, few enough to read
_ROWS = 30  # of a table
_SYNCING = ("aten::item", "aten::_local_scalar_dense", "aten::nonzero")
"""Operators whose results the CPU needs, so that on a GPU it waits for them."""


@dataclass(frozen=True, kw_only=True)
class DetailOptions:
    """Recordings of the first cell of each model; none by default, since each makes calls slower."""

    trace: bool = False
    cprofile: bool = False
    lines: str = ""  # module:function
    depth: int = 2  # of the ranges in a trace

    @property
    def is_asked(self) -> bool:
        """Return whether anything is recorded."""
        return self.trace or self.cprofile or bool(self.lines)


@dataclass(frozen=True, kw_only=True)
class Details:
    """Recordings of one model."""

    files: tuple[str, ...]
    notes: tuple[str, ...] = ()  # why a recording is missing
    syncs: Mapping[str, int] = field(default_factory=dict)  # waits for the GPU in a call, by operator or line


def record(prepared: Prepared, title: str, options: DetailOptions, folder: Path) -> Details:
    """Make all recordings that were asked for.

    Args:
        prepared: the model.
        title: of the model and its cell, for the files' names.
        options: which recordings.
        folder: of the files.
    """
    name = re.sub(r"[^\w.-]+", "-", title)
    asked: list[Callable[[], list[Path]]] = []
    if options.trace:
        asked.append(lambda: write_trace(prepared, folder, name, options.depth))
    if options.cprofile:
        asked.append(lambda: write_cprofile(prepared, folder, name))
    if options.lines:
        asked.append(lambda: write_lines(prepared, folder, name, options.lines))
    files, notes = list[str](), list[str]()
    for make in asked:
        try:
            files += map(str, make())
        except UnsupportedError as error:
            notes.append(str(error))
    return Details(files=tuple(files), notes=tuple(notes), syncs=synchronisations(prepared) if options.trace else {})


def write_trace(prepared: Prepared, folder: Path, name: str, depth: int) -> list[Path]:
    """Write a Chrome trace with a range for each module, and tables of operators by time and by memory."""
    prepared.call()
    handles = _ranges(prepared, depth)
    try:
        with profiler_of(prepared.device) as recorded:
            for number in range(_CALLS):
                with torch.profiler.record_function(f"call {number}"):
                    prepared.call()
            prepared.wait()
    finally:
        for handle in handles:
            handle.remove()
    folder.mkdir(parents=True, exist_ok=True)
    trace, table = folder / f"{name}.json.gz", folder / f"{name}-operators.txt"
    recorded.export_chrome_trace(str(trace))
    where, averages = "cpu" if prepared.device == "cpu" else "device", recorded.key_averages()
    keys = f"self_{where}_time_total", f"self_{where}_memory_usage"
    table.write_text("\n".join(averages.table(sort_by=key, row_limit=_ROWS) for key in keys))
    return [trace, table]


def write_cprofile(prepared: Prepared, folder: Path, name: str) -> list[Path]:
    """Write Python's profile of some calls, as data for pstats and as text by cumulative time."""
    prepared.call()
    profiler = cProfile.Profile()
    with profiler:
        for _ in range(_CALLS):
            prepared.call()
        prepared.wait()
    folder.mkdir(parents=True, exist_ok=True)
    data, text, buffer = folder / f"{name}.pstats", folder / f"{name}-cprofile.txt", io.StringIO()
    profiler.dump_stats(data)
    pstats.Stats(profiler, stream=buffer).sort_stats("cumulative").print_stats(_ROWS)
    text.write_text(buffer.getvalue())
    return [data, text]


def write_lines(prepared: Prepared, folder: Path, name: str, target: str) -> list[Path]:
    """Write the times of a function's lines over some calls.

    Args:
        prepared: the model.
        folder: of the file.
        name: of the file.
        target: module:function or module:Class.method.

    Raises:
        ConfigError: there is no such function.
        UnsupportedError: line_profiler is not installed, or no call runs the function.
    """
    function = function_of(target)
    try:
        from line_profiler import LineProfiler
    except ImportError as error:
        raise UnsupportedError("line_profiler is not installed: pip install 'framekiln[bench]'") from error
    profiler, buffer = LineProfiler(), io.StringIO()
    profiler.add_function(function)
    prepared.call()
    profiler.enable_by_count()
    try:
        for _ in range(_CALLS):
            prepared.call()
    finally:
        profiler.disable_by_count()
    if not any(profiler.get_stats().timings.values()):
        raise UnsupportedError(f"no line of {target} ran: a call of the model does not reach it")
    profiler.print_stats(stream=buffer, stripzeros=False)
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{name}-lines.txt"
    path.write_text(buffer.getvalue())
    return [path]


def function_of(target: str) -> Any:
    """Return the function that `module:function` or `module:Class.method` names.

    Raises:
        ConfigError: there is none.
    """
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

    On a GPU torch warns at each operation that waits, and the warning names the line. On a CPU the operators are
    counted that would wait on a GPU.
    """
    prepared.call()
    return _counted_operators(prepared) if prepared.device == "cpu" else _warned_lines(prepared)


def _counted_operators(prepared: Prepared) -> dict[str, int]:
    with profiler_of("cpu") as recorded:
        prepared.call()
    counts = {event.key: event.count for event in recorded.key_averages() if event.key in _SYNCING}
    counts.pop("aten::_local_scalar_dense", None) if "aten::item" in counts else None
    return counts


def _warned_lines(prepared: Prepared) -> dict[str, int]:
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


def _ranges(prepared: Prepared, depth: int) -> list[Any]:
    """Put a range of the profiler, and of NVTX on a GPU, around each module; returns handles to remove them."""
    handles: list[Any] = []
    for path, module, _ in modules_to(prepared.roots, depth):
        opened: list[Any] = []

        def before(*_: object, path: str = path, opened: list[Any] = opened) -> None:
            opened.append(torch.profiler.record_function(path))
            opened[-1].__enter__()
            if prepared.device != "cpu":
                torch.cuda.nvtx.range_push(path)  # type: ignore[no-untyped-call]

        def after(*_: object, opened: list[Any] = opened) -> None:
            if prepared.device != "cpu":
                torch.cuda.nvtx.range_pop()  # type: ignore[no-untyped-call]
            opened.pop().__exit__(None, None, None)

        handles.append(module.register_forward_pre_hook(before))
        handles.append(module.register_forward_hook(after, always_call=True))
    return handles
