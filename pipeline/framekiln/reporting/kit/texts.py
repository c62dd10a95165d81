"""Numbers, times and values as readable text, and tables of them for the pages (`kit.html`) and the terminal."""

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import cached_property
from itertools import groupby
from operator import itemgetter
from typing import Any, Self

MISSING = "–"  # for an unknown value
_MINUTE, _HOUR, DAY = 60, 3600, 86_400  # s
DAYS = 2  # from which durations are in days
LEAST_SHARE = 0.01  # least share of a listed part


def number(value: float) -> str:
    """Return a count with thousands separators, else three significant digits: 12,345; 3.14; 0.0012; 2.1e-05."""
    if isinstance(value, int):
        return f"{value:,}"
    if not math.isfinite(value):
        return "not a number" if math.isnan(value) else f"{value:+}"
    if float(value).is_integer() and abs(value) < 1e9:
        return f"{value:,.0f}"
    return f"{value:,.0f}" if 1000 <= abs(value) < 1e9 else f"{value:.3g}"


def figure(value: float | None) -> str:
    """Return a measured value as a number; a dash for None, and for a damaged record's value."""
    return number(float(value)) if isinstance(value, int | float) else MISSING


def axis_value(value: float, width: float) -> str:
    """Return a position on an axis of the given width, rounded to a hundredth of it."""
    if not 1e-5 < width < 1e9:
        return number(float(value))
    text = f"{value:,.{max(0, 2 - math.floor(math.log10(width)))}f}"
    text = text.rstrip("0").rstrip(".") if "." in text else text
    return "0" if text == "-0" else text


def duration(seconds: float) -> str:
    """Return seconds in the unit that fits: 3.2 ms; 14.2 s; 2 min 13 s; 3 h 5 min; 131 days 3 h."""
    if seconds < 0.9995:
        return f"{number(seconds * 1e3)} ms" if seconds >= 1e-3 else f"{number(seconds * 1e6)} µs"
    if seconds < _MINUTE - 0.05:
        return f"{number(seconds)} s"
    whole = round(seconds)
    if whole < _HOUR:
        return f"{whole // _MINUTE} min {whole % _MINUTE} s"
    if whole < DAYS * DAY:
        return f"{whole // _HOUR} h {whole % _HOUR // _MINUTE} min"
    return f"{whole // DAY:,} days {whole % DAY // _HOUR} h"


def moment(seconds: float) -> str:
    """Return a time of the epoch as a date: 4 March 2026, 05:06 UTC."""
    return datetime.fromtimestamp(seconds, UTC).strftime("%-d %B %Y, %H:%M UTC")


def elapsed(seconds: float) -> str:
    """Return the time since a start: 0.25 s; 12 s; 2:05; 1:02:05; 131 days 3 h."""
    if seconds < _MINUTE - 0.5:
        return f"{number(round(seconds, 2) if seconds < 10 else round(seconds))} s"
    whole = round(seconds)
    if whole >= DAYS * DAY:
        return duration(seconds)
    tail = f"{whole % _HOUR // _MINUTE:02}:{whole % _MINUTE:02}"
    return f"{whole // _HOUR}:{tail}" if whole >= _HOUR else tail.removeprefix("0")


def share(part: float, whole: float = 1.0) -> str:
    """Return a percentage, with a positive part at least <1% and less than all at most >99%."""
    if not whole:
        return "0%"
    percent = 100 * part / whole
    if 0 < percent < 1:
        return "<1%"
    return ">99%" if 99 < percent < 100 else f"{percent:.0f}%"


def shares(parts: Mapping[str, float]) -> str:
    """Return named parts of a whole, the largest first, without those under a hundredth: infer 62%, decode 30%."""
    ranked = sorted(parts.items(), key=lambda pair: -pair[1])
    return ", ".join(f"{name} {share(part)}" for name, part in ranked if part >= LEAST_SHARE)


def count(amount: int, noun: str, plural: str | None = None, *, zero: str = "no") -> str:
    """Return a number of things: 1 file; 1,203 files; no files, or with zero="0": 0 files."""
    return f"{f'{amount:,}' if amount else zero} {noun if amount == 1 else plural or f'{noun}s'}"


def shorten(text: str, longest: int) -> str:
    """Return the text, with an ellipsis in the middle if it is longer than `longest` characters."""
    half = (longest - 1) // 2
    return text if len(text) <= longest else f"{text[: longest - 1 - half]}…{text[len(text) - half :]}"


def coordinate(value: float) -> str:
    """Return a coordinate of a drawing with at most one decimal."""
    return f"{value:.1f}".removesuffix(".0")


def cell(value: Any, longest: int = 60) -> str:
    """Return a value of a table as a short text: lists by their length, null as a dash."""
    if value is None:
        return MISSING
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int | float):
        return number(value)
    if isinstance(value, list):
        return f"[{len(value):,}]"
    return shorten(str(value), longest)


@dataclass(frozen=True)
class Column:
    """One column of a table."""

    title: str
    get: str | Callable[[Any], Any]  # path of attributes, keys and places in an item, or a function of the item
    css: str = "number"  # class of its cells in page.css: number stands right; words, roomy, muted and code are texts
    show: Callable[[Any], str] = cell  # writes a value
    empty: str = MISSING  # for None
    optional: bool = False  # left out if no item has a value
    tone: Callable[[Any], str] = lambda _: ""  # class of an item's cell: good or bad

    def value(self, item: Any) -> Any:
        """Return an item's value; None where a part of the path is None."""
        if callable(self.get):
            return self.get(item)
        for name in self.get.split("."):
            if isinstance(item, Mapping):
                item = item.get(name)
            elif item is not None:
                item = item[int(name)] if name.isdigit() else getattr(item, name)
        return item

    def text(self, item: Any) -> str:
        """Return an item's value as shown; a text unchanged."""
        value = self.value(item)
        return self.empty if value is None else value if isinstance(value, str) else self.show(value)


@dataclass(frozen=True, kw_only=True)
class TextTable:
    """Items under titled columns; the first column heads each row."""

    title: str
    columns: Sequence[Column]
    items: Sequence[Any]
    id: str = ""  # id of its section on a page
    note: str = ""  # a sentence below it
    grouped: bool = False  # rows with an equal first cell form a group, which shows it once

    @property
    def shown(self) -> Self:
        """The table without optional columns that no item has a value for."""

        def is_needed(column: Column) -> bool:
            return not column.optional or any(column.value(item) not in (None, "") for item in self.items)

        return replace(self, columns=list(filter(is_needed, self.columns)))

    @property
    def heads(self) -> list[str]:
        return [column.title for column in self.columns]

    @property
    def right(self) -> list[str]:
        """Titles of the columns of numbers."""
        return [column.title for column in self.columns if column.css == "number"]

    @cached_property
    def rows(self) -> list[list[str]]:
        return [[column.text(item) for column in self.columns] for item in self.items]

    @property
    def groups(self) -> Iterator[list[list[tuple[str, str]]]]:
        """Rows by group, or all in one; each cell has its text and class."""
        classes = [[f"{one.css} {one.tone(item)}".strip() for one in self.columns] for item in self.items]
        cells = [list(zip(*row, strict=True)) for row in zip(self.rows, classes, strict=True)]
        by_first = groupby(cells, lambda row: row[0][0] if self.grouped else "")
        return (list(rows) for _, rows in by_first)


def words(title: str, get: str | Callable[[Any], Any], css: str = "", **more: Any) -> Column:
    """Return a column of texts, aligned left."""
    return Column(title, get, css, **{"empty": "", **more})


def numbers(paths: Mapping[str, str], **more: Any) -> list[Column]:
    """Return columns of numbers, each a title with its path."""
    return [Column(title, path, **more) for title, path in paths.items()]


def plain_table(
    title: str, heads: Sequence[str], rows: Sequence[Sequence[Any]], *, texts: int = 1, **more: Any
) -> TextTable:
    """Return a table of rows of values; `texts` columns at the left are texts, the others numbers."""
    columns = [Column(head, itemgetter(place), "" if place < texts else "number") for place, head in enumerate(heads)]
    return TextTable(title=title, columns=columns, items=rows, **more)
