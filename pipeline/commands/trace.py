"""`framemill trace`: a run on one time line, for Perfetto or chrome://tracing."""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterable
from typing import Annotated, Protocol

import typer
from rich.console import Console

from pipeline.commands.executing import told_aside
from pipeline.commands.profile import Out, Run
from pipeline.errors import OutputError
from pipeline.storage import Store
from pipeline.telemetry.profiles import chosen_run
from pipeline.telemetry.timeline import Event, events

File = Annotated[
    str | None,
    typer.Option("--output", "-o", help="File; .gz packs it. [dim]Default: OUT/trace-RUN.json.gz.[/dim]"),
]

_LEVEL = 5  # of gzip: higher ones take longer than making the events


class _Sink(Protocol):
    def write(self, data: bytes, /) -> object: ...


def trace(output: Out, run: Run = None, file: File = None) -> None:
    """Write all processes of a run on one time line, with calls, waiting, memory, machines and each packet's way."""
    store = Store(output).as_folder()
    name = chosen_run(store, run, say=told_aside)
    folder, target = (store, f"trace-{name}.json.gz") if file is None else _beside(file)
    with folder.writing(target) as sink:
        if target.endswith(".gz"):
            with gzip.GzipFile(fileobj=sink, mode="wb", filename="", mtime=0, compresslevel=_LEVEL) as packed:
                _write(packed, events(store, name))
        else:
            _write(sink, events(store, name))
    said = f"{folder.url(target)}: open it at ui.perfetto.dev or chrome://tracing."
    Console().print(said, highlight=False, soft_wrap=True, markup=False)


def _beside(file: str) -> tuple[Store, str]:
    """A file's folder and name.

    Raises:
        OutputError: it names a folder.
    """
    folder, slash, name = file.rpartition("/")
    if name in ("", ".", ".."):
        raise OutputError(f"{file!r} is a folder; give --output the name of a file in it, such as trace.json.gz.")
    return Store(folder or slash or "."), name


def _write(sink: _Sink, made: Iterable[Event]) -> None:
    """An event a line."""
    before = b'{"displayTimeUnit":"ms","traceEvents":[\n'
    for event in made:
        sink.write(before + json.dumps(event, separators=(",", ":")).encode())
        before = b",\n"
    sink.write(b"\n]}\n")
