"""Results of a step: lines of JSON in a file, which its process appends to and the caller reads."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

Record = Callable[..., None]
"""The type of `Results.record`: figures by name; `ok=False` is a failed check."""


class SkippedError(Exception):
    """The reason why a step has nothing to measure here."""


class Results:
    """A step's file of results."""

    def __init__(self, path: Path) -> None:
        self._path, self._began = path, time.monotonic()

    def record(self, **figures: Any) -> None:
        """Append a line, which survives whatever happens to the process next."""
        line = json.dumps(rounded(figures | {"at_s": time.monotonic() - self._began}))
        with self._path.open("a") as file:
            file.write(line + "\n")


def results_path(folder: Path, step: str) -> Path:
    """Return the file of a step's results."""
    return folder / f"{step}.jsonl"


def read_results(folder: Path, step: str) -> list[dict[str, Any]]:
    """Return a step's lines so far; a torn last line is left out."""
    path = results_path(folder, step)
    text = path.read_text() if path.exists() else ""
    return [json.loads(line) for line in text.splitlines(keepends=True) if line.endswith("\n")]


def rounded(value: Any) -> Any:
    """Return a value for JSON: four significant digits, null for a number that is not finite."""
    if isinstance(value, np.generic):
        value = value.item()
    if isinstance(value, float):
        return float(f"{value:.4g}") if np.isfinite(value) else None
    if isinstance(value, Mapping):
        return {str(key): rounded(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [rounded(item) for item in value]
    return value if isinstance(value, bool | int | str | None) else str(value)
