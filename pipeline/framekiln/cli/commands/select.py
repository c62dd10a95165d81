"""`framekiln select`: choose frames of an output, and save the choice by a name."""

from typing import Annotated

from rich.console import Console
from typer import Argument, Option

from framekiln.cli.console import print_note
from framekiln.cli.options import Json, all_of
from framekiln.reporting.terminal.console import print_line

Out = Annotated[str, Argument(help="Folder or URL of a run's output.")]
Where = Annotated[
    list[str] | None,
    Option(help="A condition in SQL, such as 'sharpness > 300 and len(faces) = 1'; of several all must hold."),
]
Unique = Annotated[bool, Option("--unique", help="Without copies, and without frames that the next one repeats.")]
Per = Annotated[
    list[str] | None,
    Option(metavar="NAME=NUMBER", help="At most so many of each: shot=1, identity=20, media_id=5; may be repeated."),
]
Balance = Annotated[
    str | None, Option(metavar="COLUMN", help="As many of each value; with --limit small groups are whole.")
]
Diverse = Annotated[int | None, Option(metavar="NUMBER", help="So many, as unlike as can be.")]
Order = Annotated[
    str | None,
    Option(metavar="COLUMNS", help="The highest first: sharpness, or -noise for the lowest; 'rating, -noise'."),
]
Limit = Annotated[int | None, Option(metavar="NUMBER", help="At most so many.")]
Save = Annotated[str | None, Option(metavar="NAME", help="Save it as selections/NAME.parquet in the output.")]
Against = Annotated[str | None, Option(metavar="NAME", help="Say how it differs from a saved selection.")]
_SHOWN = 10


def select(
    output: Out,
    where: Where = None,
    unique: Unique = False,
    per: Per = None,
    balance: Balance = None,
    diverse: Diverse = None,
    order: Order = None,
    limit: Limit = None,
    save: Save = None,
    against: Against = None,
    as_json: Json = False,
) -> None:
    """Choose frames: by a condition, without copies, some of each shot or person, balanced, unlike each other.

    Options are applied in the order in which `framekiln select -h` lists them.
    """
    from framekiln.api.output import open_output
    from framekiln.selection.request import read_per

    out, console = open_output(output), Console()
    given = {"where": all_of(where), "unique": unique, "per": read_per(per), "balance": balance, "diverse": diverse}
    chosen = out.select(**given, order=order, limit=limit)
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
