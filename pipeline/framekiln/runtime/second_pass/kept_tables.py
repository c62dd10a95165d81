"""Tables that a stage of the second pass keeps: it receives those of the output's last run, and replaces them.

Such a table is a file that counts up from run to run. A killed run may leave two files, of which the later one counts.
A damaged file counts as missing.
"""

from collections.abc import Collection
from contextlib import suppress

import pyarrow as pa

from framekiln.contract.errors import DamagedError
from framekiln.contract.stage import Stage, Table
from framekiln.output.expected_columns import exact, optional
from framekiln.output.object_store import Store

GENERATION = b"framekiln.generation"
"""Key in a Parquet file's metadata for the number of tables before it."""


def kept_tables(store: Store, stage: Stage) -> dict[str, pa.Table]:
    """Return the tables of the last run that a stage keeps, without rows where there are none.

    Columns that an earlier version did not write are null, and columns that a later one wrote are left out.

    Raises:
        OutputError: the disk or the bucket refuses.
    """
    return {name: _read(store, name, stage.tables[name]) for name in stage.keeps}


def last_files(store: Store, table: str, replacements: Collection[str]) -> set[str]:
    """Return the name of the file with the last content of a table, unless one of `replacements` exists."""
    generations = _read_generations(store, table)
    return set() if generations.keys() & set(replacements) else set(_find_last(generations))


def numbered(store: Store, content: pa.Table, table: str) -> pa.Table:
    """Return the content of a table, to be written as its last."""
    number = 1 + max(_read_generations(store, table).values(), default=0)
    return content.replace_schema_metadata({**(content.schema.metadata or {}), GENERATION: str(number)})


def _read(store: Store, name: str, table: Table) -> pa.Table:
    schema, empty = table.schema, table.schema.empty_table()
    for file in _find_last(_read_generations(store, name)):
        with suppress(DamagedError):  # a foreign file: its columns have other types or names
            content = store.read_table(f"{name}/{file}", expected=exact(optional(schema, table.keys)))
            present = [item for item in schema if item.name in content.column_names]
            content = content.select([item.name for item in present]).cast(pa.schema(present))
            return pa.concat_tables([empty, content], promote_options="default")
    return empty


def _find_last(generations: dict[str, int]) -> list[str]:
    return [max(generations, key=lambda name: (generations[name], name))] if generations else []


def _read_generations(store: Store, table: str) -> dict[str, int]:
    """Return the number of each readable file of a table; 0 if it was written before tables were kept."""
    found = {}
    for name in store.names(table):
        try:
            with store.parquet(f"{table}/{name}") as file:
                for _ in file.iter_batches():
                    pass  # a damaged page is found where it is read
                found[name] = int((file.schema_arrow.metadata or {}).get(GENERATION, b"0"))
        except (DamagedError, ValueError):  # the latter: of the number
            continue
    return found
