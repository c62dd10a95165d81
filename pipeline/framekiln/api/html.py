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
    rows = [
        "".join(
            f'<td style="text-align:{side}">{_escape_text(text)}</td>' for side, text in zip(sides, row, strict=True)
        )
        for row in shown.rows
    ]
    body = "".join(f"<tr>{row}</tr>" for row in rows)
    return f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>" if rows else ""


def lines(texts: Iterable[str]) -> str:
    """Return a paragraph of lines; empty without lines."""
    whole = "<br>".join(map(_escape_text, texts))
    return f"<p>{whole}</p>" if whole else ""


def _escape_text(text: str) -> str:
    return escape(printable(text))
