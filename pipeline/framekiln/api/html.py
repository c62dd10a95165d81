"""Small pieces of HTML for notebooks, which escape every text."""

from collections.abc import Iterable, Sequence
from html import escape

from framekiln.reporting.terminal.console import printable


def table(heads: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    """Return a table; numbers are to the right."""
    head = "".join(f"<th>{_escape_text(text)}</th>" for text in heads)
    body = "".join(f"<tr>{''.join(map(_draw_cell, row))}</tr>" for row in rows)
    return f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"


def lines(texts: Iterable[str]) -> str:
    """Return a paragraph of lines; empty for none."""
    whole = "<br>".join(map(_escape_text, texts))
    return f"<p>{whole}</p>" if whole else ""


def _draw_cell(value: object) -> str:
    if isinstance(value, int | float):
        return f'<td style="text-align:right">{value:,}</td>'
    return f'<td style="text-align:left">{_escape_text(str(value))}</td>'


def _escape_text(text: str) -> str:
    return escape(printable(text))
