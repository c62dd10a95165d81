"""`framekiln export`: hand frames and what was found on them to tools for training and labelling."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Annotated, Any

from rich import progress as bars
from rich.console import Console
from typer import Argument, Option

from framekiln.cli.console import interruptible
from framekiln.cli.options import Json, all_of
from framekiln.reporting.terminal.console import print_line

Out = Annotated[str, Argument(help="Folder or URL of a run's output.")]
Destination = Annotated[str, Argument(help="An empty folder or URL, or one in which the same export was stopped.")]
To = Annotated[
    str,
    Option(
        metavar="FORMAT",
        help="coco, yolo, cvat, labelstudio, mot, folder, webdataset, hf (Hugging Face), lance or clips.",
    ),
]
Selection = Annotated[str | None, Option(metavar="NAME", help="A saved selection. [dim]Default: all frames.[/dim]")]
Where = Annotated[list[str] | None, Option(help="A condition in SQL, as for select; of several all must hold.")]
Include = Annotated[
    str | None,
    Option(
        metavar="KIND,KIND",
        help="boxes, masks, poses, faces, tracks, categories; identities and embeddings leave only when named. "
        "[dim]Default: what the format takes.[/dim]",
    ),
]
Images = Annotated[
    str | None,
    Option(
        help="link, copy, resize:1024 (the short side), crop:faces or none. "
        "[dim]Default: link on a disk, copy into buckets and into files that hold pictures.[/dim]"
    ),
]
Split = Annotated[str | None, Option(metavar="N/N/N", help="Percentages for train, val and test, as 80/10/10.")]
By = Annotated[str, Option(help="file, person, shot or duplicate: none of these is in two splits.")]
Keypoints = Annotated[str, Option(help="coco17, or all that were found.")]
Folders = Annotated[
    str | None, Option(metavar="COLUMN", help="What names the folders of folder. [dim]Default: category.[/dim]")
]
ShardRows = Annotated[int, Option(metavar="NUMBER", help="Frames in each file of webdataset and hf.")]
Clips = Annotated[
    str | None,
    Option(
        metavar="shots|frames", help="Shots with a chosen frame, or runs of chosen frames. [dim]Default: shots.[/dim]"
    ),
]
Cut = Annotated[
    str | None,
    Option(metavar="copy|exact", help="Clips from a key frame on, or encoded again. [dim]Default: copy.[/dim]"),
]
MinSeconds = Annotated[float | None, Option(metavar="SECONDS", help="Shorter clips are left out.")]
MaxSeconds = Annotated[float | None, Option(metavar="SECONDS", help="Longer clips are divided.")]
Column = Annotated[
    list[str] | None, Option(metavar="COLUMN", help="A further column of the clips' table; may be repeated.")
]

_MANY = 1000
"""Frames of an export that takes long enough for lines about its progress."""


def export(
    output: Out,
    destination: Destination,
    to: To,
    selection: Selection = None,
    where: Where = None,
    include: Include = None,
    images: Images = None,
    split: Split = None,
    by: By = "file",
    keypoints: Keypoints = "coco17",
    folders: Folders = None,
    shard_rows: ShardRows = 1000,
    clips: Clips = None,
    cut: Cut = None,
    min_seconds: MinSeconds = None,
    max_seconds: MaxSeconds = None,
    column: Column = None,
    as_json: Json = False,
) -> None:
    """Write frames and what was found on them in the format of another tool."""
    from dataclasses import asdict

    from framekiln.api.output import open_output

    given = {"selection": selection, "where": all_of(where), "include": include, "images": images, "split": split}
    more = {"by": by, "keypoints": keypoints, "folders": folders, "shard_rows": shard_rows, "of": clips, "cut": cut}
    numbers = {"min_seconds": min_seconds, "max_seconds": max_seconds, "columns": column}
    every: dict[str, Any] = {**given, **more, **numbers}
    options: Any = {name: value for name, value in every.items() if value is not None}
    console = Console()
    stopped = "Stopped. The same command goes on."
    with interruptible(stopped), _show_progress(console, quiet=as_json) as progress:
        summary = open_output(output).export(to, destination, progress=progress, **options)
    if as_json:
        console.print_json(data=asdict(summary))
        return
    for line in summary.lines():
        print_line(console, line)


@contextmanager
def _show_progress(console: Console, *, quiet: bool) -> Iterator[Callable[[int, int], None]]:
    """Yield a callback that shows the frames that are done: a bar, or without a terminal a line for each tenth."""
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
