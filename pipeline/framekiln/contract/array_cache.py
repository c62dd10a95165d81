"""Arrays that a stage computes in its set-up, kept on disk from run to run, such as embeddings of its categories."""

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
"""Errors of reading any bytes as arrays; a zip may state a compression or a password that it does not have."""


class ArrayCache:
    """A folder of arrays by the fingerprint of what they are computed from. Without a folder nothing is kept."""

    def __init__(self, folder: Path | None = None, facts: Mapping[str, Any] | None = None) -> None:
        """Name the folder, which need not exist, and facts that all its arrays depend on, such as the weights."""
        self._folder, self._facts = folder, dict(facts or {})
        self._new: dict[Path, NDArray[np.generic]] = {}

    def array(self, facts: Mapping[str, Any], compute: Callable[[], NDArray[np.generic]]) -> NDArray[np.generic]:
        """Return the kept array of these facts, or compute it, for `keep`. A missing or damaged file is computed again.

        The facts are all that it depends on besides the cache's own: JSON values.
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
        """Write what was computed; where the folder is not writable, nothing is kept."""
        for path, values in self._new.items():
            with suppress(OSError):
                path.parent.mkdir(parents=True, exist_ok=True)
                with tempfile.TemporaryDirectory(dir=path.parent, prefix=".") as partial:  # others may write it too
                    whole = Path(partial) / path.name
                    np.savez(whole, values=values)
                    whole.replace(path)
        self._new = {}
