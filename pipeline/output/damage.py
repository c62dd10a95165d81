"""Tables of an output that cannot be read any more. What is damaged counts as missing, and is computed again."""

from __future__ import annotations

from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from functools import partial

from pipeline.contract.errors import DamagedError, GoneError
from pipeline.output.object_store import Store

_ERRORS = ".errors.parquet"


def damaged_tables(store: Store, folders: Iterable[str]) -> list[str]:
    """Return the paths of tables that cannot be read, after reading all of them through.

    Raises:
        OutputError: the disk or the bucket refuses.
    """
    paths = [f"{folder}/{name}" for folder in folders for name in store.names(folder) if name.endswith(".parquet")]
    with ThreadPoolExecutor() as pool:  # Arrow decodes outside the interpreter's lock
        return [
            path for path, whole in zip(paths, pool.map(partial(_is_whole, store), paths), strict=True) if not whole
        ]


def remove_table(store: Store, path: str) -> None:
    """Delete a table; with a part's failures the part goes too, since its rows say nothing without them."""
    store.remove(path)
    if path.endswith(_ERRORS):
        store.remove(path.removesuffix(_ERRORS) + ".parquet")


def _is_whole(store: Store, path: str) -> bool:
    try:
        with store.parquet(path) as file:
            for _ in file.iter_batches():
                pass
    except GoneError:
        return True
    except DamagedError:
        return False
    return True
