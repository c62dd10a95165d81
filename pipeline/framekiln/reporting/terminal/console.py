"""Lines and tables of the terminal, safe for any text."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Literal

from rich import box
from rich.console import Console
from rich.markup import escape
from rich.table import Table

DENSE = (0, 1, 0, 0)  # padding of tables with many columns


def printable(text: str) -> str:
    """Return the text with control characters written out.

    An escape sequence in a file name could recolour, hide or rewrite what the terminal shows.
    """
    return "".join(sign if sign.isprintable() or sign == "\n" else ascii(sign)[1:-1] for sign in text)


def print_line(console: Console, text: str, style: str | None = None) -> None:
    """Print a line as it is: no markup, no highlighting, and wrapped by the terminal alone."""
    console.print(printable(text), style=style, highlight=False, soft_wrap=True, markup=False)


def print_table(
    console: Console,
    heads: Sequence[str],
    rows: Iterable[Sequence[str]],
    *,
    right: Sequence[str] = (),
    whole: Sequence[str] = (),
    **style: Any,
) -> None:
    """Print a table; columns in `whole` are never wrapped, and `style` are settings of rich's `Table`."""
    settings: dict[str, Any] = {"title_justify": "left", **style}
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, **settings)
    for head in heads:
        justify: Literal["left", "right"] = "right" if head in right else "left"
        table.add_column(escape(head), justify=justify, overflow="fold", no_wrap=head in whole)
    for row in rows:
        table.add_row(*(escape(printable(text)) for text in row))
    console.print(table)
