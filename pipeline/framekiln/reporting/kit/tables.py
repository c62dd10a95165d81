"""Tables as columns of items, drawn by the pages (`kit.html`) and the terminal alike."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import groupby
from operator import itemgetter
from typing import Any, Self

from framekiln.reporting.kit.formatting import MISSING, cell


@dataclass(frozen=True)
class Column:
    """One column of a table."""

    title: str
    get: str | Callable[[Any], Any]  # path of attributes, keys and places in an item, or a function of the item
    css: str = "number"  # class of its cells in page.css: number stands right; words, roomy, muted and code are texts
    show: Callable[[Any], str] = cell  # writes a value
    empty: str = MISSING  # stands for None
    optional: bool = False  # goes where no item has a value
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
        """Return an item's value as it is shown; a text as it is."""
        value = self.value(item)
        return self.empty if value is None else value if isinstance(value, str) else self.show(value)


@dataclass(frozen=True, kw_only=True)
class TextTable:
    """Items under titled columns; the first column heads each row."""

    title: str
    columns: Sequence[Column]
    items: Sequence[Any]
    id: str = ""  # of its section on a page
    note: str = ""  # a sentence below it
    grouped: bool = False  # rows with an equal first cell are one group, which shows it once

    @property
    def shown(self) -> Self:
        """The table without optional columns in which no item has a value."""

        def is_needed(column: Column) -> bool:
            return not column.optional or any(column.value(item) not in (None, "") for item in self.items)

        return replace(self, columns=list(filter(is_needed, self.columns)))

    @property
    def heads(self) -> list[str]:
        """Titles of the columns."""
        return [column.title for column in self.columns]

    @property
    def right(self) -> list[str]:
        """Titles of the columns of numbers."""
        return [column.title for column in self.columns if column.css == "number"]

    @cached_property
    def rows(self) -> list[list[str]]:
        """Texts of each item."""
        return [[column.text(item) for column in self.columns] for item in self.items]

    @property
    def groups(self) -> Iterator[list[list[tuple[str, str]]]]:
        """Rows by group, or all in one; each cell is its text and class."""
        classes = [[f"{one.css} {one.tone(item)}".strip() for one in self.columns] for item in self.items]
        cells = [list(zip(*row, strict=True)) for row in zip(self.rows, classes, strict=True)]
        by_first = groupby(cells, lambda row: row[0][0] if self.grouped else "")
        return (list(rows) for _, rows in by_first)


def words(title: str, get: str | Callable[[Any], Any], css: str = "", **more: Any) -> Column:
    """Return a column of texts, at the left."""
    return Column(title, get, css, **{"empty": "", **more})


def numbers(paths: Mapping[str, str], **more: Any) -> list[Column]:
    """Return columns of numbers, each a title with its path."""
    return [Column(title, path, **more) for title, path in paths.items()]


def plain_table(
    title: str, heads: Sequence[str], rows: Sequence[Sequence[Any]], *, texts: int = 1, **more: Any
) -> TextTable:
    """Return a table of rows of values; `texts` columns at the left hold texts, the others numbers."""
    columns = [Column(head, itemgetter(place), "" if place < texts else "number") for place, head in enumerate(heads)]
    return TextTable(title=title, columns=columns, items=rows, **more)
