"""Leftovers of an output that its tables do not use: results of removed files, and of earlier settings.

Runs keep them, since a file or a setting may come back. Delete them to free space, or to forget a person.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc

from framekiln.contract.columns import MEDIA_ID
from framekiln.contract.output_names import COLUMNS, DIGESTS, ERRORS, FACTS, FRAMES, IMAGES, SELECTIONS, UNITS
from framekiln.output.content_hash import DIGEST_SCHEMA
from framekiln.output.object_store import Store
from framekiln.output.recognise import later_tables
from framekiln.output.unit_table import UNITS_TABLE, read_units, unit_of
from framekiln.runtime.check.check import list_images
from framekiln.runtime.second_pass.table_steps import GENERATION

_SELECTED = pa.schema([(MEDIA_ID.name, pa.string())])


@dataclass(frozen=True, kw_only=True)
class Leftovers:
    """Files of an output to delete, and tables to rewrite without some rows."""

    files: Mapping[str, int]  # bytes, by path below the output
    tables: Mapping[str, pa.Table]  # remaining rows, by path

    def delete(self, store: Store) -> None:
        """Delete all leftovers. Raises OutputError: the disk or the bucket refuses."""
        for path, table in self.tables.items():
            store.write_table(path, table)
        for path in self.files:
            store.remove(path)


def find_leftovers(store: Store, folders: Collection[str] | None, written: Collection[str]) -> Leftovers:
    """Find everything that the tables of the last run do not use.

    Args:
        store: the output.
        written: the tables of its steps. Other tables go if they name files without rows.
        folders: of the last run's steps; those of earlier settings are left over. None keeps all.
    """
    used = {unit_of(name) for folder in (FRAMES, ERRORS) for name in store.names(folder)}
    parts = store.sizes(COLUMNS)
    names = {path: path.rpartition("/")[2].partition(".")[0] for path in parts}
    kept = [path for path in parts if names[path] in used and (folders is None or _get_folder(path) in folders)]
    files = {path: parts[path] for path in parts.keys() - set(kept)}
    if folders is not None:
        files |= {path: size for path, size in store.sizes(FACTS).items() if _get_folder(path) not in folders}
    if images := store.sizes(IMAGES):
        named = {image for path in kept for image in list_images(store, path)}
        files |= {path: size for path, size in images.items() if path not in named}
    tables: dict[str, pa.Table] = {}
    every = [media.media_id for unit in read_units(store) for media in unit.media]
    units = _find_rows(store, UNITS, UNITS_TABLE, "unit", sorted(filter(None, used)), tables)
    media_ids = units["media_id"].to_pylist()
    gone = pa.array(sorted(set(every) - set(media_ids)), pa.string())
    paths = [*units["path"].to_pylist(), *(item["path"] for item in units["sidecar"].drop_null().to_pylist())]
    _find_rows(store, SELECTIONS, _SELECTED, "media_id", media_ids, tables)
    _find_rows(store, DIGESTS, DIGEST_SCHEMA, "path", paths, tables)
    for folder in later_tables(store):
        if folder not in written:
            sizes = store.sizes(folder)
            files |= {
                path: size for path, size in sizes.items() if folders is not None or _names_files(store, path, gone)
            }
    return Leftovers(files=files, tables=tables)


def _names_files(store: Store, path: str, files: pa.Array) -> bool:
    """Return whether a table names files; a table continued from run to run stays for its numbers."""
    table = store.read_table(path)
    texts = (column for column in table.columns if column.type == pa.string())
    return GENERATION not in (table.schema.metadata or {}) and any(pc.any(pc.is_in(c, files)).as_py() for c in texts)


def _get_folder(path: str) -> str:
    return path.split("/")[1].removesuffix(".json")


def _find_rows(
    store: Store, folder: str, schema: pa.Schema, column: str, values: Sequence[object], tables: dict[str, pa.Table]
) -> pa.Table:
    """Return the rows of a folder with one of the values; record files with other rows too, without those."""
    wanted, found = pa.array(values, schema.field(column).type), [schema.empty_table()]
    for path in (f"{folder}/{name}" for name in store.names(folder) if name.endswith(".parquet")):
        whole = store.read_table(path, expected=schema)
        rows = whole.filter(pc.is_in(whole[column], wanted))
        found.append(rows.select(schema.names).replace_schema_metadata(None))
        if rows.num_rows < whole.num_rows:
            tables[path] = rows
    return pa.concat_tables(found)
