"""A whole output checked: which of its files are damaged, lost, duplicate or left over.

A run reads only what it needs, so damage can lie in a table for years. The paths found are stored in the output, and
the next run computes these files again.
"""

import json
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial

import pyarrow as pa
import pyarrow.compute as pc

from framekiln.contract.columns import KEYS, MEDIA_ID
from framekiln.contract.errors import DamagedError, GoneError
from framekiln.contract.output_names import (
    COLUMNS,
    DAMAGED,
    DIGESTS,
    ERRORS,
    FACTS,
    FRAMES,
    IMAGES,
    PROFILE,
    REPORT,
    SELECTIONS,
    UNITS,
)
from framekiln.contract.row_errors import ERRORS_SCHEMA
from framekiln.contract.row_errors import SCHEMA as FAILURES
from framekiln.media.units import Unit
from framekiln.output.content_hash import DIGEST_SCHEMA
from framekiln.output.ledger import ERRORS_SUFFIX, MARKS, RETRY_SUFFIX, Ledger
from framekiln.output.object_store import Store
from framekiln.output.parquet import check_types
from framekiln.output.unit_table import UNITS_TABLE, read_units, tabulated_units, unit_of
from framekiln.runtime.second_pass.second_pass import UnitRows, name_rows

_BY_FOLDER = {UNITS: UNITS_TABLE, DIGESTS: DIGEST_SCHEMA, ERRORS: ERRORS_SCHEMA}
_BY_SUFFIX = {ERRORS_SUFFIX: FAILURES, RETRY_SUFFIX: MARKS}
_OTHER = "damaged: its bytes differ from those written"
_CHOICE = f"{_OTHER}; choose the rows again with `framekiln select --save`, or delete it"
_NO_TABLES = frozenset({COLUMNS, FACTS, IMAGES, PROFILE})
_ENDS = {b"\x89PNG": b"IEND\xaeB`\x82", b"\xff\xd8": b"\xff\xd9"}  # PNG, JPEG
_DOTS = 2  # dots in the name of a part; names of failures and marks have a word more


def parts_without_images(store: Store, folders: Iterable[str], *, read: bool = False) -> Iterator[tuple[str, int]]:
    """Yield the paths of parts that name missing or empty images, and the number of these images.

    This costs one reading of the path columns, and one listing of their images. With `read` all images are read, and an
    unreadable or truncated image counts as missing.

    Raises OutputError: the disk or the bucket refuses.
    """
    with ThreadPoolExecutor() as pool:  # a bucket takes 50 ms for each part
        for folder in folders:
            parts = [f"{COLUMNS}/{folder}/{name}" for name in store.names(f"{COLUMNS}/{folder}")]
            parts = [path for path in parts if path.endswith(".parquet") and path.count(".") == _DOTS]
            named = dict(zip(parts, pool.map(lambda path: list_images(store, path), parts), strict=True))
            paths = {image for images in named.values() for image in images}
            lost = store.without_content(IMAGES, paths)
            if read:
                there = list(paths - lost)
                lost |= {path for path, cut in zip(there, pool.map(partial(_is_cut, store), there), strict=True) if cut}
            for path, images in named.items():
                if count := sum(image in lost for image in images):
                    yield path, count


def _is_cut(store: Store, path: str) -> bool:
    """Return whether an image is unreadable or truncated."""
    try:
        data = store.read(path)
    except (DamagedError, FileNotFoundError):
        return True
    if data[:4] == b"RIFF":
        return len(data) < 8 + int.from_bytes(data[4:8], "little")
    return not data.endswith(next((end for start, end in _ENDS.items() if data.startswith(start)), b""))


def list_images(store: Store, part: str) -> list[str]:
    """Return the paths of the images that a part names; none if it is damaged."""
    with suppress(DamagedError, FileNotFoundError), store.parquet(part) as file:
        names = [item.name for item in file.schema_arrow if item.type == pa.string()]
        columns = [column.drop_null() for column in (file.read(columns=names).columns if names else ())]
        columns = [column for column in columns if len(column) and column[0].as_py().startswith(f"{IMAGES}/")]
        return [image for column in columns for image in column.to_pylist()]
    return []


@dataclass(frozen=True, kw_only=True)
class DamagedFile:
    """A damaged file of an output, and its damage."""

    path: str  # path below the output
    text: str


def check_output(store: Store, fingerprints: Mapping[str, str], expected: Mapping[str, pa.Schema]) -> list[DamagedFile]:
    """Return the damage of an output, and store the paths of files to replace for the next run.

    The fingerprints belong to the steps of the last finished run, decoding first. `expected` columns are by folder.
    Either is empty if unknown.

    Raises OutputError: the disk or the bucket refuses.
    """
    parts = [f"{COLUMNS}/{name}" for name in store.folders(COLUMNS)]
    tables = [name for name in store.folders() if name not in _NO_TABLES]
    damaged = damaged_tables(store, [*tables, *parts], expected)
    findings = [DamagedFile(path=path, text=_CHOICE if path.startswith(SELECTIONS) else _OTHER) for path in damaged]
    findings += [DamagedFile(path=path, text=_OTHER) for path in _list_damaged_explanations(store)]
    skip = set(damaged)
    findings += [
        DamagedFile(path=path, text=f"names {count} images that are missing or damaged")
        for path, count in parts_without_images(store, store.folders(COLUMNS), read=True)
        if path not in skip
    ]
    folders = [f"{name}-{fingerprint}" for name, fingerprint in fingerprints.items()]
    findings += _find_double_rows(store, skip)
    if not skip & {f"{UNITS}/{name}" for name in store.names(UNITS)}:  # the next run writes them again
        units = _read_wanted(store, folders, skip)
        findings += _find_lost_errors(store, units, skip)
        findings += _find_lost_files(store, units, folders[0], skip) if folders else ()
    if findings:
        store.write(DAMAGED, json.dumps([finding.path for finding in findings]).encode())
    else:
        store.remove(DAMAGED)
    return [*findings, *_find_lost_parts(store, folders)]  # a run finds lost parts itself


def listed_damage(store: Store) -> list[str]:
    """Return the paths that an earlier check stored; none without a check, or if its list is damaged."""
    with suppress(DamagedError, FileNotFoundError):
        paths = store.read_json(DAMAGED)
        return [path for path in paths if isinstance(path, str)] if isinstance(paths, list) else []
    return []


def _read_wanted(store: Store, folders: Sequence[str], skip: set[str]) -> list[Unit]:
    """Return the units with rows in `frames/`, and each one's files that the last run used.

    A limit or a preview may use only some of a unit's files. The name of the unit's table is a hash of them. If the
    tables hold such a file, the unit is complete.
    """
    names, first = {unit_of(name): name for name in store.names(FRAMES)}, set(store.folders(COLUMNS))
    folders = [folder for folder in folders if folder in first]
    units = [unit for unit in read_units(store) if unit.name in names]
    for i, unit in enumerate(units):
        rows, name = UnitRows(unit=unit.name, parts={}, files=unit.media), names[unit.name]
        if name_rows(rows, folders) != name:
            present = frozenset(_list_media(store, {f"{folder}/{name}" for folder in (FRAMES, ERRORS)} - skip))
            if name_rows(replace(rows, media=present), folders) == name:
                units[i] = replace(unit, media=tuple(media for media in unit.media if media.media_id in present))
    return units


def _list_media(store: Store, paths: Iterable[str]) -> set[str]:
    """Return the files with a row in some tables."""
    columns = (store.read_table(path, [MEDIA_ID.name])[MEDIA_ID.name] for path in paths if store.exists(path))
    return {media for column in columns for media in pc.unique(column).to_pylist()}


def _find_lost_errors(store: Store, units: Sequence[Unit], skip: set[str]) -> Iterator[DamagedFile]:
    """Yield files of `frames/` from units with failures that have no file in `errors/`.

    Failures of a file that a later unit read again, as `retry` does, belong to that unit.
    """
    frames, present = store.names(FRAMES), set(store.names(ERRORS))
    failed: dict[str | None, list[str]] = defaultdict(list)  # paths by unit
    for step in store.folders(COLUMNS):
        for name in store.names(f"{COLUMNS}/{step}"):
            if name.endswith(ERRORS_SUFFIX):
                failed[name.partition(".")[0]].append(f"{COLUMNS}/{step}/{name}")
    holder: dict[str, str] = {}  # for each file: the assembled unit with the latest attempt
    for unit in sorted(units, key=lambda unit: unit.attempt):
        holder |= dict.fromkeys((media.media_id for media in unit.media), unit.name)
    for name in (name for name in frames if name not in present):
        paths = [path for path in failed[unit_of(name)] if path not in skip]
        if any(holder.get(media) == unit_of(name) for media in _list_media(store, paths)):
            yield DamagedFile(path=f"{FRAMES}/{name}", text="has failures without a line in the table of errors")


def _find_lost_files(store: Store, units: Sequence[Unit], decode: str, skip: set[str]) -> Iterator[DamagedFile]:
    """Yield decode parts and files of `frames/` of units with a file that has neither a row nor an error."""
    tables = {f"{folder}/{name}" for folder in (FRAMES, ERRORS) for name in store.names(folder)}
    if skip & tables:
        return  # the next run writes them again
    present, lacking = _list_media(store, tables), {}
    for unit in units:
        if lost := sum(media.media_id not in present for media in unit.media):
            lacking[unit.name] = f"lacks {lost} of {len(unit.media)} files, without an error"
    for folder in (f"{COLUMNS}/{decode}", FRAMES) if lacking else ():
        for name in store.names(folder):
            for unit_name, text in lacking.items():
                if name.startswith(unit_name):
                    yield DamagedFile(path=f"{folder}/{name}", text=text)


def _find_double_rows(store: Store, skip: set[str]) -> Iterator[DamagedFile]:
    paths = [path for name in store.names(FRAMES) if (path := f"{FRAMES}/{name}") not in skip]
    keys = [store.read_table(path, KEYS) for path in paths]
    files = [
        pa.table([*table.columns, pa.repeat(pa.scalar(i), table.num_rows)], [*KEYS, "file"])
        for i, table in enumerate(keys)
    ]
    if not files:
        return
    rows = pa.concat_tables(files)
    counts = rows.group_by(list(KEYS)).aggregate([([], "count_all")])
    double = rows.join(counts.filter(pc.greater(counts["count_all"], 1)), list(KEYS), join_type="inner")
    for entry in pc.value_counts(double["file"]).to_pylist():
        yield DamagedFile(path=paths[entry["values"]], text=f"has {entry['counts']} duplicate rows")


def _find_lost_parts(store: Store, folders: Sequence[str]) -> Iterator[DamagedFile]:
    ledger = Ledger(store)
    assembled = tabulated_units(store)
    for folder in set(folders) & set(store.folders(COLUMNS)):
        if lost := sum(ledger.parts(folder, folders[0], unit) is None for unit in assembled):
            yield DamagedFile(
                path=f"{COLUMNS}/{folder}", text=f"lacks results of {lost} of {len(assembled)} units of files"
            )


def damaged_tables(store: Store, folders: Iterable[str], expected: Mapping[str, pa.Schema]) -> list[str]:
    """Read all tables in some folders, and return the paths of damaged ones.

    `expected`: columns that each folder's tables must have, among others.
    Raises OutputError: the disk or the bucket refuses.
    """
    paths = [f"{folder}/{name}" for folder in folders for name in store.names(folder) if name.endswith(".parquet")]
    schemas = {**expected, **_BY_FOLDER}

    def is_whole(path: str) -> bool:
        folder = path.rpartition("/")[0]
        by_suffix = (schema for suffix, schema in _BY_SUFFIX.items() if path.endswith(suffix))
        return _is_whole(store, path, next(by_suffix, schemas.get(folder)))

    with ThreadPoolExecutor() as pool:  # Arrow decodes outside the interpreter's lock
        return [path for path, whole in zip(paths, pool.map(is_whole, paths), strict=True) if not whole]


def _list_damaged_explanations(store: Store) -> list[str]:
    """Return the paths of damaged files that explain runs and change no result: facts, records and the report."""
    texts = [*(f"{FACTS}/{name}" for name in store.names(FACTS)), REPORT]
    return [*damaged_tables(store, [PROFILE], {}), *(path for path in texts if not _is_whole_text(store, path))]


def _is_whole_text(store: Store, path: str) -> bool:
    """Return whether a page has its end, or a JSON file an object; true for an absent one."""
    try:
        data = store.read(path)
        return data.rstrip().endswith(b"</html>") if path == REPORT else isinstance(json.loads(data), dict)
    except FileNotFoundError:
        return True
    except (DamagedError, RecursionError, ValueError):
        return False


def _is_whole(store: Store, path: str, expected: pa.Schema | None) -> bool:
    try:
        with store.parquet(path) as file:
            check_types(file.schema_arrow, expected)
            for _ in file.iter_batches():
                pass
    except GoneError:
        return True
    except DamagedError:
        return False
    return True
