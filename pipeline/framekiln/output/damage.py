"""Checks of an output: whether a folder is one or may become one, and which of its tables cannot be read any more.

What is damaged counts as missing, and is computed again.
"""

import mimetypes
from collections.abc import Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pyarrow as pa

from framekiln.contract.columns import KEYS, SOURCE
from framekiln.contract.errors import DamagedError, GoneError, OutputError
from framekiln.contract.output_names import COLUMNS, DIGESTS, ERRORS, FACTS, REPORT, RUN_RECORD, UNITS
from framekiln.contract.row_errors import ERRORS_SCHEMA
from framekiln.contract.row_errors import SCHEMA as FAILURES
from framekiln.media.discovery.output_filter import is_output
from framekiln.output.ledger import RETRY_SUFFIX
from framekiln.output.object_store import Store
from framekiln.output.parquet import check_types
from framekiln.output.unit_table import DIGEST_SCHEMA, UNITS_TABLE

ERRORS_SUFFIX = ".errors.parquet"
MARKS = pa.schema([SOURCE.field(name) for name in KEYS])  # rows to be retried
_BY_FOLDER = {UNITS: UNITS_TABLE, DIGESTS: DIGEST_SCHEMA, ERRORS: ERRORS_SCHEMA}
_BY_SUFFIX = {ERRORS_SUFFIX: FAILURES, RETRY_SUFFIX: MARKS}


def damaged_tables(store: Store, folders: Iterable[str], expected: Mapping[str, pa.Schema]) -> list[str]:
    """Read all tables in some folders, and return the paths of damaged ones.

    `expected` has the columns that the tables of each folder must have, among others.
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


def check_is_output(store: Store) -> Store:
    """Return the store itself after checking that a run has written into it.

    Raises OutputError: the folder is missing, a file, or no output.
    """
    store.check_folder()
    if store.exists(RUN_RECORD) or {COLUMNS, FACTS} & set(store.folders()):
        return store
    if "://" not in store.root and not Path(store.root).is_dir():
        raise OutputError(f"There is no folder {store.root!r}; give the output of a run.", code="FK-OUTPUT-MISSING")
    raise OutputError(
        f"{store.root!r} is not an output of Framekiln: it has neither a {RUN_RECORD} nor a folder {COLUMNS}; give "
        "the folder that --output named.",
        code="FK-NOT-AN-OUTPUT",
    )


def check_may_become_output(store: Store) -> None:
    """Check that a run may write into a folder: it is an output, or holds nothing that a run would overwrite or bury.

    Raises OutputError: it is a file, or has a report or a record of another program, or photos and videos of its own.
    """
    names = store.check_folder().names("")
    if is_output([*names, *store.folders()]):
        return
    for name in names:
        if name in (RUN_RECORD, REPORT):
            raise OutputError(
                f"{store.root!r} holds a {name} that no run wrote and this one would replace; move it, or choose "
                "another --output.",
                code="FK-FOREIGN-FILE",
            )
        if (mimetypes.guess_type(name)[0] or "").startswith(("image/", "video/")):
            raise OutputError(
                f"{store.root!r} is no output of an earlier run, and holds photos or videos such as {name!r}; name the "
                "input first and then another folder for the output.",
                code="FK-OUTPUT-HOLDS-MEDIA",
            )
