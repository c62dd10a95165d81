"""`framekiln select` and `export`: choose frames of an output, and write them for other tools."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict
from typing import Annotated

from rich import progress as bars
from rich.console import Console
from typer import Argument, Option

from framekiln.api.output_options import ExportOptions, SelectOptions
from framekiln.cli.console import interruptible, print_note
from framekiln.cli.options import Json, Out
from framekiln.reporting.terminal.console import print_line

Save = Annotated[str | None, Option(metavar="NAME", help="Save it as selections/NAME.parquet in the output.")]
Against = Annotated[str | None, Option(metavar="NAME", help="Show the difference from a saved selection.")]
_SHOWN = 10


def select(
    output: Out, options: SelectOptions, save: Save = None, against: Against = None, as_json: Json = False
) -> None:
    """Choose frames: by a condition, without copies, some of each shot or person, balanced, varied.

    Options are applied in the order in which `framekiln select -h` lists them.
    """
    from framekiln.api.output import open_output

    out, console = open_output(output), Console()
    chosen = out.select(**options)
    earlier = None if against is None else out.selection(against)
    for note in (*chosen.notes, *(earlier.notes if earlier else ())):
        print_note(note)
    if save is not None:
        chosen.save(save)
    if as_json:
        console.print_json(data=chosen.rows.to_pylist())
        return
    for row in chosen.rows.slice(0, _SHOWN).to_pylist():
        print_line(console, f"{row['media_id']}  frame {row['frame_index']}")
    if len(chosen) > _SHOWN:
        print_line(console, f"... and {len(chosen) - _SHOWN:,} more")
    place = "" if save is None else f", saved as {save}"
    print_line(console, f"{len(chosen):,} of {out.table('frames').count_rows():,} frames{place}.")
    if earlier is not None:
        print_line(console, "Against {}: {:,} frames more, {:,} fewer.".format(against, *chosen.compare(earlier)))


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
        print_line(console, line)


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
