"""Lines and tables of the terminal, safe for any text."""

from collections.abc import Callable, Iterable, Sequence
from io import StringIO
from typing import Any, Literal

from rich import box
from rich.cells import cell_len
from rich.console import Console
from rich.markup import escape
from rich.table import Table as RichTable
from rich.text import Text

from framekiln.contract.errors import without_secrets
from framekiln.reporting.kit.texts import TextTable

Terminal = Console
"""A target of lines and tables, for packages that do not import rich."""
DENSE = (0, 1, 0, 0)  # padding of tables with many columns
_UNLIMITED = 1_000_000  # characters of a line
WIDE = 160  # characters of a line if no terminal sets the width


def printable(text: str) -> str:
    """Return the text with escaped control characters, and without URLs' secrets.

    An escape sequence in a file name could recolour, hide or rewrite the terminal's content.
    """
    signs = without_secrets(text)
    return "".join(sign if sign.isprintable() or sign == "\n" else ascii(sign)[1:-1] for sign in signs)


def print_line(console: Console, text: str, style: str | None = None) -> None:
    """Print a line unchanged: no markup, no highlighting, and wrapped only by the terminal."""
    console.print(printable(text), style=style, highlight=False, soft_wrap=True, markup=False)


def print_wrapped(console: Console, text: str, *, indent: int = 0) -> None:
    """Print text wrapped between words to the terminal's width.

    In a file, lines without an indent stay whole, so that programs find their patterns.
    """
    if not (console.is_terminal or indent):
        print_line(console, text)
        return
    for line in Text(printable(text)).wrap(console, console.width - indent, overflow="fold"):
        print_line(console, " " * indent + line.plain.rstrip())


def print_table(
    console: Console,
    heads: Sequence[str],
    rows: Iterable[Sequence[str]],
    *,
    right: Sequence[str] = (),
    whole: Sequence[str] = (),
    **style: Any,
) -> None:
    """Print a table; columns in `whole` are never wrapped, and `style` holds settings of rich's `Table`.

    Other columns are wrapped between words, never inside one. If that exceeds the terminal's width, each row is printed
    as a list instead.
    """
    settings: dict[str, Any] = {"title_justify": "left", **style}
    table = RichTable(box=box.SIMPLE_HEAD, pad_edge=False, **settings)
    for head in heads:
        justify: Literal["left", "right"] = "right" if head in right else "left"
        table.add_column(escape(head), justify=justify, overflow="fold", no_wrap=head in whole)
    texts = [[printable(text) for text in row] for row in rows]
    for row in texts:
        table.add_row(*map(escape, row))
    columns = [[head, *(row[number] for row in texts)] for number, head in enumerate(heads)]
    natural = [max(cell_len(line) for text in column for line in text.split("\n")) for column in columns]
    words = [max((cell_len(word) for text in column for word in text.split()), default=0) for column in columns]
    least = [pair[head not in whole] for head, pair in zip(heads, zip(natural, words, strict=True), strict=True)]
    gaps = console.measure(table, options=console.options.update(max_width=_UNLIMITED)).maximum - sum(natural)
    widths = fitting_widths(natural, least, console.width - gaps)
    if widths is None:
        _print_list(console, heads, texts, settings.get("title"))
        return
    for column, width in zip(table.columns, widths, strict=True):
        column.width = width
    console.print(table)


def show_table(console: Console, table: TextTable, *, title: bool = True, **style: Any) -> None:
    """Print a table; one with groups shows their first cell once."""
    shown = table.shown
    rows = shown.rows
    if table.grouped:
        rows = [["" if place and rows[place - 1][0] == row[0] else row[0], *row[1:]] for place, row in enumerate(rows)]
    style |= {"title": table.title} if title else {}
    print_table(console, shown.heads, rows, right=shown.right, **style)


def fitting_widths(natural: Sequence[int], least: Sequence[int], room: int) -> list[int] | None:
    """Return a width for each column, between its least and its natural one; None if the least do not fit.

    >>> fitting_widths([4, 40, 60], [4, 10, 20], 64)
    [4, 22, 38]
    >>> fitting_widths([4, 40], [4, 10], 12)
    """
    spare, wish = room - sum(least), sum(natural) - sum(least)
    if spare < 0:
        return None
    share = min(1.0, spare / wish) if wish else 0.0
    return [low + int(share * (high - low)) for low, high in zip(least, natural, strict=True)]


def _print_list(console: Console, heads: Sequence[str], rows: Iterable[Sequence[str]], title: Any) -> None:
    """Print each row as its first value, with the other non-empty values and their heads below."""
    if title:
        print_wrapped(console, str(title))
    for first, *others in rows:
        print_wrapped(console, first)
        for head, text in zip(heads[1:], others, strict=True):
            if text:
                print_wrapped(console, f"{head}: {text}", indent=2)


def stderr_console() -> Console:
    """Return a console for messages, apart from a program's output."""
    return Console(stderr=True)


def printed(show: Callable[[Console], None]) -> str:
    """Return what a function prints, as plain text."""
    text = StringIO()
    show(Console(file=text, width=WIDE))
    return text.getvalue()
