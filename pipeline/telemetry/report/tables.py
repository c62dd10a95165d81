"""The tables of an output, column by column, under the steps that made them."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

from pipeline.columns import SOURCE
from pipeline.failure import DECODE
from pipeline.identity import DIGESTS
from pipeline.ledger import COLUMNS, UNITS
from pipeline.second import ERRORS, FRAMES
from pipeline.stage import Stage
from pipeline.storage import Store
from pipeline.telemetry.report.distributions import Distribution, distributions
from pipeline.telemetry.report.gallery import said
from pipeline.telemetry.report.rows import Extract, Folder, extract, head, look
from pipeline.telemetry.report.sheets import Sheet, sheets
from pipeline.telemetry.report.words import count

FIRST_ROWS = 10
# These hold no table of a second-pass step.
OTHER_FOLDERS = frozenset({COLUMNS, UNITS, FRAMES, ERRORS, DIGESTS, "images", "profile"})


@dataclass(frozen=True, kw_only=True)
class Group:
    """Columns that one step added."""

    title: str
    columns: tuple[Distribution, ...]


@dataclass(frozen=True, kw_only=True)
class TableView:
    """A table with its columns' values, and its first rows where they are shown."""

    name: str
    url: str
    description: str
    rows: int
    read: str  # which rows the distributions are of
    groups: tuple[Group, ...]
    heads: tuple[str, ...] = ()
    first: tuple[tuple[str, ...], ...] = ()
    sheets: tuple[Sheet, ...] = ()


def frames_view(store: Store, stages: Mapping[str, Stage]) -> TableView:
    """One row a frame: the columns of each step in their order, those of decoding last."""
    folder = look(store, FRAMES)
    part = extract(store, folder)
    groups = _by_step(distributions(part), stages)
    return TableView(
        name=FRAMES,
        url=store.url(FRAMES),
        description="one row a frame",
        rows=folder.rows,
        read=_read(part, folder),
        groups=groups,
    )


def _by_step(columns: Sequence[Distribution], stages: Mapping[str, Stage]) -> tuple[Group, ...]:
    makers = {name: step for step, stage in stages.items() for name in stage.outputs.names}
    makers |= dict.fromkeys(SOURCE.names, DECODE)
    titles = [*(step for step, stage in stages.items() if stage.scope.first_pass), "", DECODE]
    found = {title: tuple(item for item in columns if makers.get(item.name, "") == title) for title in titles}
    return tuple(Group(title=title or "other columns", columns=items) for title, items in found.items() if items)


def table_views(store: Store, stages: Mapping[str, Stage]) -> list[TableView]:
    """The tables of second-pass steps, by name."""
    about = {name: table.description for stage in stages.values() for name, table in stage.tables.items()}
    return [_table_view(store, name, about.get(name, "")) for name in _tables(store, about)]


def _tables(store: Store, declared: Collection[str]) -> list[str]:
    there = [name for name in store.folders() if name not in OTHER_FOLDERS]
    return [name for name in there if name in declared or any(file.endswith(".parquet") for file in store.names(name))]


def _table_view(store: Store, name: str, description: str) -> TableView:
    folder = look(store, name)
    part = extract(store, folder)
    first = head(store, folder, FIRST_ROWS)
    return TableView(
        name=name,
        url=store.url(name),
        description=description,
        rows=folder.rows,
        read=_read(part, folder),
        groups=(Group(title="", columns=tuple(distributions(part))),),
        heads=tuple(first.column_names) if first is not None else (),
        first=tuple(tuple(said(value) for value in row.values()) for row in first.to_pylist())
        if first is not None
        else (),
        sheets=sheets(store, folder),
    )


def _read(part: Extract, folder: Folder) -> str:
    if part.whole:
        return f"{count(folder.rows, 'row').capitalize()}."
    return f"{folder.rows:,} rows; the values are those of {part.taken:,} of them, evenly spaced."
