"""Whether a folder is an output, finished or not."""

from __future__ import annotations

from pathlib import Path

from framekiln.contract.errors import OutputError
from framekiln.contract.output_names import COLUMNS, FACTS, RUN_RECORD
from framekiln.output.object_store import Store


def check_is_output(store: Store) -> Store:
    """Return the store itself after checking that a run has written into it.

    Raises:
        OutputError: the folder is missing, a file, or no output.
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
