"""`framekiln export`: hand frames and what was found on them to tools for training and labelling."""

from typing import Annotated

from rich.console import Console
from typer import Argument, Option

from framekiln.cli.options import Json
from framekiln.reporting.terminal.console import print_line

Out = Annotated[str, Argument(help="Folder or URL of a run's output.")]
Destination = Annotated[str, Argument(help="An empty folder or URL, or one in which the same export was stopped.")]
To = Annotated[str, Option(metavar="FORMAT", help="coco, yolo, cvat, labelstudio or mot.")]
Selection = Annotated[str | None, Option(metavar="NAME", help="A saved selection. [dim]Default: all frames.[/dim]")]
Where = Annotated[str | None, Option(help="A condition in SQL, as for select.")]
Include = Annotated[
    str | None,
    Option(
        metavar="KIND,KIND",
        help="boxes, masks, poses, faces, tracks, categories; identities and embeddings leave only when named. "
        "[dim]Default: what the format takes.[/dim]",
    ),
]
Images = Annotated[str, Option(help="link, copy, resize:1024 (the longest side), crop:faces or none.")]
Split = Annotated[str | None, Option(metavar="N/N/N", help="Percentages for train, val and test, as 80/10/10.")]
By = Annotated[str, Option(help="file, person, shot or duplicate: none of these is in two splits.")]
Keypoints = Annotated[str, Option(help="coco17, or all that were found.")]


def export(
    output: Out,
    destination: Destination,
    to: To,
    selection: Selection = None,
    where: Where = None,
    include: Include = None,
    images: Images = "link",
    split: Split = None,
    by: By = "file",
    keypoints: Keypoints = "coco17",
    as_json: Json = False,
) -> None:
    """Write frames and what was found on them in the format of another tool."""
    from dataclasses import asdict

    from framekiln.api.output import open_output

    console = Console()
    summary = open_output(output).export(
        to,
        destination,
        selection=selection,
        where=where,
        include=include,
        images=images,
        split=split,
        by=by,
        keypoints=keypoints,
    )
    if as_json:
        console.print_json(data=asdict(summary))
        return
    for line in summary.lines():
        print_line(console, line)
