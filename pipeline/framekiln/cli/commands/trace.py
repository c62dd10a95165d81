"""`framekiln trace`: the timeline of a run, for Perfetto or chrome://tracing."""

import gzip
import json
from contextlib import ExitStack
from typing import Annotated, Any

from rich.console import Console
from typer import Option

from framekiln.cli.commands.profile import Out, Run
from framekiln.cli.console import print_note
from framekiln.contract.errors import OutputError
from framekiln.output.object_store import Store
from framekiln.profiling.export.trace_events import events
from framekiln.profiling.run_profile import choose_run
from framekiln.reporting.terminal.console import print_line

_LEVEL = 5  # of gzip: higher levels take longer than the events themselves


def trace(
    output: Out,
    run: Run = None,
    file: Annotated[
        str | None,
        Option("--output", "-o", help="File; .gz compresses it. [dim]Default: OUT/trace-RUN.json.gz.[/dim]"),
    ] = None,
) -> None:
    """Write the timeline of a run: processes, calls, waiting, memory, machines and the path of each packet."""
    store = Store(output).check_folder()
    name = choose_run(store, run, warn=print_note)
    folder, target = (store, f"trace-{name}.json.gz") if file is None else _open_folder(file)
    with ExitStack() as stack:
        sink: Any = stack.enter_context(folder.writing(target))
        if target.endswith(".gz"):
            packed = gzip.GzipFile(fileobj=sink, mode="wb", filename="", mtime=0, compresslevel=_LEVEL)
            sink = stack.enter_context(packed)
        before = b'{"displayTimeUnit":"ms","traceEvents":[\n'
        for event in events(store, name):  # one on each line
            sink.write(before + json.dumps(event, separators=(",", ":")).encode())
            before = b",\n"
        sink.write(b"\n]}\n")
    print_line(Console(), f"{folder.url(target)}: open it at ui.perfetto.dev or chrome://tracing.")


def _open_folder(file: str) -> tuple[Store, str]:
    """Return a file's folder and name. Raises OutputError if the path is a folder."""
    folder, slash, name = file.rpartition("/")
    if name in ("", ".", ".."):
        raise OutputError(
            f"{file!r} is a folder; give --output the name of a file in it, such as trace.json.gz.",
            code="FK-IS-A-FOLDER",
        )
    return Store(folder or slash or "."), name
