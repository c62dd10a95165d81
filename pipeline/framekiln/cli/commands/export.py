"""`framekiln export`: write chosen frames of an output for other tools."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict
from typing import Annotated

from rich import progress as bars
from rich.console import Console
from typer import Argument, Option

from framekiln.api.output_options import ExportOptions
from framekiln.cli.console import interruptible
from framekiln.cli.options import Json, Out
from framekiln.reporting.terminal.console import print_line

Destination = Annotated[str, Argument(help="An empty folder or URL, or that of the same, stopped export.")]
_FORMATS = "coco, yolo, cvat, labelstudio, mot, folder, webdataset, hf (Hugging Face), lance or clips."
To = Annotated[str, Option(metavar="FORMAT", help=_FORMATS)]

_MANY = 1000
"""Frames from which an export shows its progress."""


def export(output: Out, destination: Destination, to: To, options: ExportOptions, as_json: Json = False) -> None:
    """Write frames and their annotations in the format of another tool."""
    from framekiln.api.output import open_output

    console = Console()
    stopped = "Stopped. The same command continues."
    with interruptible(stopped), _show_progress(console, quiet=as_json) as progress:
        summary = open_output(output).export(to, destination, progress=progress, **options)
    if as_json:
        console.print_json(data=asdict(summary))
        return
    for line in summary.lines():
        print_line(console, line, "bold yellow" if line in summary.warnings else None)


@contextmanager
def _show_progress(console: Console, *, quiet: bool) -> Iterator[Callable[[int, int], None]]:
    """Yield a callback that shows finished frames: a bar, or without a terminal a line for each tenth."""
    columns = (bars.BarColumn(), bars.MofNCompleteColumn(), bars.TimeRemainingColumn())
    disable, tenths = quiet or not console.is_terminal, 0
    with bars.Progress(bars.TextColumn("Exported"), *columns, console=console, disable=disable) as progress:
        task = progress.add_task("Exported")

        def watch(done: int, total: int) -> None:
            nonlocal tenths
            progress.update(task, completed=done, total=total)
            if disable and not quiet and total > _MANY and 10 * done // total > tenths:
                tenths = 10 * done // total
                print_line(console, f"{done:,} of {total:,} exported")

        yield watch
