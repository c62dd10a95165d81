"""Checks that a folder is an output, finished or not, or may become an output."""

import mimetypes

from framekiln.contract.errors import OutputError
from framekiln.contract.output_names import COLUMNS, FACTS, FOLDERS, PREVIEW, REPORT, RUN_RECORD
from framekiln.media.discovery.output_filter import is_output
from framekiln.output.object_store import Store


def check_is_output(store: Store) -> Store:
    """Return the store after checking that a run has written into it.

    Raises OutputError: the folder is missing, a file, or no output.
    """
    store.check_folder()
    if store.exists(RUN_RECORD) or {COLUMNS, FACTS} & set(store.folders()):
        return store
    if store.appends and not store.folder.is_dir():
        raise OutputError(f"There is no folder {store.root!r}; give the output of a run.", code="FK-OUTPUT-MISSING")
    raise OutputError(
        f"{store.root!r} is not an output of Framekiln: it has neither a {RUN_RECORD} nor a folder {COLUMNS}; give "
        "the folder that --output named.",
        code="FK-NOT-AN-OUTPUT",
    )


def later_tables(store: Store) -> list[str]:
    """Return the names of the tables that steps of the second pass wrote."""
    others = (name for name in store.folders() if name not in FOLDERS)
    return [name for name in others if any(file.endswith(".parquet") for file in store.names(name))]


def check_may_become_output(store: Store) -> None:
    """Check that a run may write into a folder: it is an output, or holds nothing that a run would overwrite.

    Raises OutputError: it is a file, or holds another program's report or record, or photos and videos.
    """
    names = store.check_folder().names("")
    if is_output([*names, *store.folders()]):
        return
    for name in names:
        if name in (RUN_RECORD, REPORT, PREVIEW):
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
