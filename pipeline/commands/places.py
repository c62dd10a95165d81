"""Where a command will write is looked at before it works: minutes of measuring are not lost to a wrong word."""

from __future__ import annotations

import os
from pathlib import Path

from pipeline.errors import ConfigError


def check_folder(option: str, path: Path) -> None:
    """Make sure that a folder is there, or can be made, and takes files; nothing is made yet.

    Raises:
        ConfigError: something else stands there, or this user may not write there.
    """
    place = path.expanduser().absolute()
    there = next(one for one in (place, *place.parents) if os.path.lexists(one))
    if not there.is_dir():
        raise ConfigError(f"{option} {str(path)!r}: {str(there)!r} is not a folder; give another one.")
    if not os.access(there, os.W_OK | os.X_OK):
        raise ConfigError(f"{option} {str(path)!r}: this user may not write into {str(there)!r}; give another folder.")


def check_file(option: str, path: Path) -> None:
    """Make sure that a file can be written, in a folder that is there or can be made.

    Raises:
        ConfigError: as `check_folder`, or it is a folder.
    """
    check_folder(option, path.expanduser().absolute().parent)
    if path.expanduser().is_dir():
        raise ConfigError(f"{option} {str(path)!r} is a folder; give the name of a file in it.")
