"""A disk cache of arrays that a stage computes in its set-up, such as embeddings of its categories."""

import hashlib
import io
import json
import tempfile
import zipfile
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from framekiln.contract.user_files import read_small

_DAMAGE = (OSError, ValueError, KeyError, EOFError, MemoryError, RuntimeError, zipfile.BadZipFile)
"""Errors of reading any bytes as arrays; a damaged zip may claim a compression or a password."""


class ArrayCache:
    """A folder of arrays, each named by the fingerprint of its inputs. Without a folder, nothing is kept."""

    def __init__(self, folder: Path | None = None, facts: Mapping[str, Any] | None = None) -> None:
        """Set the folder, which need not exist, and the facts that all arrays depend on, such as the weights."""
        self._folder, self._facts = folder, dict(facts or {})
        self._new: dict[Path, NDArray[np.generic]] = {}

    def array(self, facts: Mapping[str, Any], compute: Callable[[], NDArray[np.generic]]) -> NDArray[np.generic]:
        """Return the cached array of these facts, or compute it; `keep` stores it. A damaged file is computed again.

        `facts` are JSON values: all further inputs of the array.
        """
        if self._folder is None:
            return compute()
        text = json.dumps([self._facts, facts], sort_keys=True, default=str)
        path = self._folder / f"{hashlib.sha256(text.encode()).hexdigest()[:32]}.npz"
        with suppress(*_DAMAGE), np.load(io.BytesIO(read_small(path))) as file:
            kept: NDArray[np.generic] = file["values"]  # a zip has a checksum of its content
            return kept
        values = self._new[path] = compute()
        return values

    def keep(self) -> None:
        """Write the computed arrays; do nothing if the folder is not writable."""
        for path, values in self._new.items():
            with suppress(OSError):
                path.parent.mkdir(parents=True, exist_ok=True)
                with tempfile.TemporaryDirectory(dir=path.parent, prefix=".") as partial:  # shared folder
                    whole = Path(partial) / path.name
                    np.savez(whole, values=values)
                    whole.replace(path)
        self._new = {}
