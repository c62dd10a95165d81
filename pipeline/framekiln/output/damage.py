"""Tables of an output that cannot be read any more. What is damaged counts as missing, and is computed again."""

from collections.abc import Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor

import pyarrow as pa

from framekiln.contract.columns import KEYS, SOURCE
from framekiln.contract.errors import DamagedError, GoneError
from framekiln.contract.output_names import DIGESTS, ERRORS, UNITS
from framekiln.contract.row_errors import ERRORS_SCHEMA
from framekiln.contract.row_errors import SCHEMA as FAILURES
from framekiln.output.content_hash import DIGEST_SCHEMA
from framekiln.output.ledger import RETRY_SUFFIX
from framekiln.output.object_store import Store
from framekiln.output.parquet import check_types
from framekiln.output.unit_table import UNITS_TABLE

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
