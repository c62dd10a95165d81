"""`framekiln select`: choose frames of an output, for an export or another run."""

from typing import Annotated

from rich.console import Console
from typer import Option

from framekiln.api.output_options import SelectOptions
from framekiln.cli.console import print_note
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
