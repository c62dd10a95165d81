"""`framekiln select`: choose frames of an output, for an export or another run."""

from typing import TYPE_CHECKING, Annotated

from rich.console import Console
from typer import Option

from framekiln.api.output_options import SelectOptions
from framekiln.cli.console import print_note
from framekiln.cli.options import Json, Out
from framekiln.contract.errors import ConfigError
from framekiln.reporting.terminal.console import print_line

if TYPE_CHECKING:  # it loads DuckDB
    from framekiln.selection.selection import Selection

Save = Annotated[str | None, Option(metavar="NAME", help="Save it as selections/NAME.parquet in the output.")]
Against = Annotated[str | None, Option(metavar="NAME", help="Show the difference from a saved selection.")]
Shown = Annotated[str | None, Option(metavar="NAME", help="Show a saved selection instead of choosing frames.")]
_SHOWN = 10


def select(
    output: Out,
    options: SelectOptions,
    selection: Shown = None,
    save: Save = None,
    against: Against = None,
    as_json: Json = False,
) -> None:
    """Choose frames: by a condition, without copies, some of each shot or person, balanced, varied.

    Options are applied in the order in which `framekiln select -h` lists them.
    """
    from framekiln.api.output import open_output

    out, console = open_output(output), Console()
    _check_one(selection, options)
    chosen = out.select(**options) if selection is None else out.selection(selection)
    earlier = None if against is None else out.selection(against)
    chosen = chosen if save is None else chosen.save(save)
    for note in (*chosen.notes, *(earlier.notes if earlier else ())):
        print_note(note)
    sides = {} if earlier is None else {"more": chosen.without(earlier), "fewer": earlier.without(chosen)}
    if as_json:
        rows = chosen.rows.to_pylist()
        others = {name: side.rows.to_pylist() for name, side in sides.items()}
        console.print_json(data={"rows": rows, **others} if others else rows)
        return
    _list_frames(console, chosen)
    place = "" if save is None else f", saved as {save}"
    print_line(console, f"{len(chosen):,} of {out.table('frames').count_rows():,} frames{place}.")
    if sides:
        more, fewer = map(len, sides.values())
        print_line(console, f"Against {against}: {more:,} frames more, {fewer:,} fewer.")
        for sign, side in zip("+-", sides.values(), strict=True):
            _list_frames(console, side, f"{sign} ")


def _check_one(selection: str | None, options: SelectOptions) -> None:
    if selection is not None and any(options.values()):
        message = f"The saved selection {selection!r} is shown as it is; leave out the options that choose frames."
        raise ConfigError(message, code="FK-SELECTION-BOTH")


def _list_frames(console: Console, chosen: "Selection", sign: str = "") -> None:
    for row in chosen.rows.slice(0, _SHOWN).to_pylist():
        print_line(console, f"{sign}{row['media_id']}  frame {row['frame_index']}")
    if len(chosen) > _SHOWN:
        print_line(console, f"{sign}... and {len(chosen) - _SHOWN:,} more")
