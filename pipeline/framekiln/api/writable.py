"""Checks of files and folders before work that would be lost if they could not be written."""

import os
from pathlib import Path

from framekiln.contract.errors import ConfigError
from framekiln.contract.user_files import expand


def check_folder(option: str, path: Path, file: Path | None = None) -> None:
    """Check that a folder, of a `file` if one is named, exists or can be made and written to; nothing is made.

    Raises:
        ConfigError: the path is no folder, or this user may not write into it.
    """
    place, given = expand(path).absolute(), str(file or path)
    existing = next(folder for folder in (place, *place.parents) if os.path.lexists(folder))
    if not existing.is_dir():
        raise ConfigError(
            f"{option} {given!r}: {str(existing)!r} is not a folder; give another one.", code="FK-NOT-A-FOLDER"
        )
    if not os.access(existing, os.W_OK | os.X_OK):
        raise ConfigError(
            f"{option} {given!r}: this user may not write into {str(existing)!r}; give another folder.",
            code="FK-FOLDER-NOT-WRITABLE",
        )


def check_file(option: str, path: Path) -> None:
    """Check that a file can be written, in a folder that exists or can be made.

    Raises:
        ConfigError: see `check_folder`, or the path is a folder.
    """
    check_folder(option, expand(path).absolute().parent, path)
    if os.path.isdir(expand(path)):  # noqa: PTH112 - pathlib raises for a long name
        raise ConfigError(f"{option} {str(path)!r} is a folder; give the name of a file in it.", code="FK-IS-A-FOLDER")
