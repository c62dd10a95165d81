"""Small pieces of HTML for notebooks, which escape every text."""

from collections.abc import Iterable
from html import escape

from framekiln.reporting.kit.texts import TextTable
from framekiln.reporting.terminal.console import printable


def table(data: TextTable) -> str:
    """Return a table with numbers aligned right; empty if it has no rows."""
    shown = data.shown
    sides = ["right" if column.css == "number" else "left" for column in shown.columns]
    head = "".join(f"<th>{_escape_text(text)}</th>" for text in shown.heads)
    body = ""
    for row in shown.rows:
        pairs = zip(sides, map(_escape_text, row), strict=True)
        cells = [f'<td style="text-align:{side}">{text}</td>' for side, text in pairs]
        body += f"<tr>{''.join(cells)}</tr>"
    return f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>" if body else ""


def lines(texts: Iterable[str]) -> str:
    """Return a paragraph of lines; empty without lines."""
    whole = "<br>".join(map(_escape_text, texts))
    return f"<p>{whole}</p>" if whole else ""


def _escape_text(text: str) -> str:
    return escape(printable(text))
