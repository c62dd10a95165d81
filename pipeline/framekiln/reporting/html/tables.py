"""The tables of an output: the values of each column, under the steps that added them."""

import json
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace

import pyarrow.compute as pc

from framekiln.contract.columns import PLACES, SOURCE
from framekiln.contract.output_names import COLUMNS, DIGESTS, ERRORS, FRAMES, IMAGES, PROFILE, UNITS
from framekiln.contract.row_errors import DECODE
from framekiln.contract.stage import Stage
from framekiln.output.object_store import Store
from framekiln.reporting.html.gallery.contact_sheets import ContactSheet, contact_sheets
from framekiln.reporting.kit.formatting import cell, count
from framekiln.reporting.kit.histograms import Distribution, distributions
from framekiln.reporting.kit.tables import TextTable, plain_table
from framekiln.reporting.table_rows import Extract, TableFiles, extract, find_table, head, is_list

FIRST_ROWS = 10
TALLY = b"tally"  # see `_tallies`
OTHER_FOLDERS = frozenset({COLUMNS, UNITS, FRAMES, ERRORS, DIGESTS, IMAGES, PROFILE})  # not of second-pass steps


@dataclass(frozen=True, kw_only=True)
class ColumnGroup:
    """Columns that one step added."""

    title: str
    columns: Sequence[Distribution]


@dataclass(frozen=True, kw_only=True)
class TableView:
    """A table with the values of its columns, and its first rows where they are shown."""

    name: str
    url: str
    description: str
    rows: int
    read: str  # the rows behind the distributions, in a sentence
    groups: Sequence[ColumnGroup]
    items: Mapping[str, int]  # in all lists of a column, estimated where not all rows were read
    first: TextTable | None = None
    sheets: Sequence[ContactSheet] = ()
    tallies: Sequence[str] = ()  # sentences

    @property
    def title(self) -> str:
        """The name as words."""
        return self.name.replace("_", " ").capitalize()


def table_views(store: Store, stages: Mapping[str, Stage]) -> list[TableView]:
    """Return the frames table and then the tables of second-pass steps, by name."""
    declared = {name: table.description for stage in stages.values() for name, table in stage.tables.items()}
    others = [_view(store, name, declared.get(name, ""), stages) for name in _names(store, declared)]
    return [_view(store, FRAMES, "one row a frame", stages), *others]


def _view(store: Store, name: str, description: str, stages: Mapping[str, Stage]) -> TableView:
    table = find_table(store, name)
    part = extract(store, table)
    columns = distributions(part)
    view = TableView(
        name=name,
        url=store.url(name),
        description=description,
        rows=table.rows,
        read=_read(part, table),
        items=_items(part, table),
        groups=_by_step(columns, stages) if name == FRAMES else [ColumnGroup(title="", columns=columns)],
    )
    if name == FRAMES:
        return view
    first = head(store, table, FIRST_ROWS)
    rows = [[cell(value) for value in row.values()] for row in first.to_pylist()]
    heads = first.column_names
    shown = plain_table(f"First rows of {name}", heads, rows, texts=len(heads)) if rows else None
    return replace(view, first=shown, sheets=contact_sheets(store, table), tallies=_tallies(part, table))


def _tallies(part: Extract, table: TableFiles) -> list[str]:
    """Return a sentence on each column of texts that says by its metadata what its values tell of how many rows.

    `tally` is JSON: a text for each value, and for the empty one what all rows with a value have in common.
    """
    sentences = []
    for item in part.schema:
        if item.name in part.columns and (told := (item.metadata or {}).get(TALLY)):
            words, scale = json.loads(told), table.rows / max(1, part.taken)
            counts = part.columns[item.name].drop_null().value_counts().to_pylist()
            counts.sort(key=lambda entry: (-entry["counts"], entry["values"]))
            found = {entry["values"]: round(scale * entry["counts"]) for entry in counts}
            listed = ", ".join(f"{many:,} {words.get(value, value)}" for value, many in found.items())
            if found:
                sentences.append(f"{sum(found.values()):,} of {table.rows:,} {words['']}: {listed}.")
    return sentences


def _items(part: Extract, table: TableFiles) -> dict[str, int]:
    """Return the number of items in all lists of each column."""
    scale = table.rows / max(1, part.taken)
    lists = [item.name for item in part.schema if is_list(item.type) and item.name in part.columns]
    return {name: round(scale * (pc.sum(part.columns[name]).as_py() or 0)) for name in lists}


def _by_step(columns: Sequence[Distribution], stages: Mapping[str, Stage]) -> list[ColumnGroup]:
    """Return the columns of each first-pass step in order, and those of decoding last."""
    owners = {name: step for step, stage in stages.items() for name in stage.outputs.names}
    owners |= dict.fromkeys((*SOURCE.names, *PLACES.names), DECODE)
    titles = [*(step for step, stage in stages.items() if stage.scope.first_pass), "", DECODE]
    groups = {title: [item for item in columns if owners.get(item.name, "") == title] for title in titles}
    return [ColumnGroup(title=title or "other columns", columns=items) for title, items in groups.items() if items]


def _names(store: Store, declared: Collection[str]) -> list[str]:
    folders = [name for name in store.folders() if name not in OTHER_FOLDERS]
    return [
        name for name in folders if name in declared or any(file.endswith(".parquet") for file in store.names(name))
    ]


def _read(part: Extract, table: TableFiles) -> str:
    if part.whole:
        return f"{count(table.rows, 'row').capitalize()}."
    return f"{table.rows:,} rows; the values are those of {part.taken:,} of them, evenly spaced."
