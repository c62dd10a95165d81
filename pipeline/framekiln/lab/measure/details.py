"""Detailed recordings of one cell: which ones, and the files that they gave."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from framekiln.lab.measure.precision import UnsupportedError
from framekiln.lab.measure.prepared import Prepared
from framekiln.lab.measure.tracing import synchronisations, write_cprofile, write_lines, write_trace


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
