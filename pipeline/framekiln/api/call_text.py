"""The text of a call, for the report's lines on how to run again."""

import os
from collections.abc import Mapping
from typing import Any

from framekiln.contract.stage import Stage


def call_text(name: str, *places: Any, **options: Any) -> str:
    """Return a call as Python, without options that are None.

    >>> call_text("framekiln.run", "photos", "out", stages=["lighting", Stage], limit=None)
    "framekiln.run('photos', 'out', stages=['lighting', Stage])"
    """
    given = [f"{key}={_write_value(value)}" for key, value in options.items() if value is not None]
    return f"{name}({', '.join([*map(_write_value, places), *given])})"


def _write_value(value: Any) -> str:
    if isinstance(value, type):
        return value.__name__
    if isinstance(value, Stage):
        return f"{type(value).__name__}({value.config!r})"
    if isinstance(value, os.PathLike):
        return repr(os.fspath(value))
    if isinstance(value, Mapping):
        return f"{{{', '.join(f'{key!r}: {_write_value(item)}' for key, item in value.items())}}}"
    if isinstance(value, list | tuple):
        inside = ", ".join(map(_write_value, value))
        return f"[{inside}]" if isinstance(value, list) else f"({inside},)"
    return repr(value)
