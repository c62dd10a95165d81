"""Limits of a step's batch and chunks, learned when memory runs out and kept for the next run.

What fits depends on the model, the GPU and the size of the images, so each size of images has a limit of its own. A
limit is not final: another program may have filled the GPU when it was learned. So a larger batch is tried from time
to time, more rarely after each failure.
"""

from __future__ import annotations

import json
import os
import uuid
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path

from framekiln.device import device_name
from framekiln.planning.step import Step, fingerprint
from framekiln.weights.checksums import cache_root

_PATIENCE = 64  # calls before a larger one is tried: one that fails costs about two calls, so some 3 % of the time
_NOT_OURS = (OSError, ValueError, TypeError, KeyError, AttributeError, OverflowError, RecursionError)
"""Errors of reading a file that is missing or that nobody wrote so."""
_RUNS = 8  # one run in so many tries whole chunks again


@dataclass
class BatchLimit:
    """The largest batch that fits, for images of about one size."""

    rows: int  # raised when a larger batch has worked
    patience: int = _PATIENCE  # calls at the limit before a larger batch is tried
    calm: int = 0  # calls at the limit since a batch failed or a larger one was tried


@dataclass
class BatchLimits:
    """A step's limits by size of images, and the sizes of its chunks that fit."""

    path: Path | None = None  # None: kept in this process only
    rows: dict[int, BatchLimit] = field(default_factory=dict)  # by bucket; see `bucket_of`
    chunks: dict[str, int] = field(default_factory=dict)
    runs: int = 0  # processes that read the file

    @classmethod
    def load(cls, step: Step, folder: Path | None) -> BatchLimits:
        """Return the limits that earlier runs learned for this step on this device; empty without any."""
        if folder is None:
            return cls()
        place = step.placement
        facts = {"use": step.use, "weights": sorted(step.weights), "settings": step.stage.config, "gb": place.vram_gb}
        how = {"device": device_name(place.device), "precision": place.precision, "compile": place.compile}
        path = folder / f"{step.name}-{fingerprint(facts | how)}.json"
        try:
            stored = json.loads(path.read_text(encoding="utf-8"))
            rows = {
                int(bucket): BatchLimit(**{name: int(number) for name, number in limit.items()})
                for bucket, limit in stored["rows"].items()
            }
            chunks = {str(kind): int(size) for kind, size in stored["chunks"].items()}
            limits = cls(path, rows, chunks, int(stored["runs"]) + 1)
        except _NOT_OURS:
            return cls(path)
        if limits.runs % _RUNS == 0:
            limits.chunks = {}
        limits._save()
        return limits

    def allowed(self, bucket: int, batch: int) -> int:
        """Return the rows of the next call, at most `batch`."""
        limit = self.rows.get(bucket)
        if limit is None:
            return batch
        factor = 2 if limit.calm >= limit.patience else 1
        return max(1, min(batch, factor * limit.rows))

    def lower(self, bucket: int, rows: int) -> None:
        """Halve the limit, after a call of so many rows did not fit."""
        limit = self.rows.get(bucket, BatchLimit(rows))
        was_trial = rows > limit.rows
        patience = 2 * limit.patience if was_trial else _PATIENCE
        self.rows[bucket] = BatchLimit(min(limit.rows, max(1, rows // 2)), patience)
        self._save()

    def confirm(self, bucket: int, rows: int) -> None:
        """Count a call that fits, and raise the limit to it."""
        limit = self.rows.get(bucket)
        if limit is None or rows < limit.rows:
            return
        limit.calm += 1
        if rows > limit.rows:
            self.rows[bucket] = BatchLimit(rows, limit.patience)
            self._save()

    def halve_chunks(self, bucket: int, chunks: Mapping[str, int]) -> dict[str, int]:
        """Return chunks of half the size, after those of a single row did not fit.

        The limit of the batch is dropped: the chunks were too large, not the batch.
        """
        self.rows.pop(bucket, None)
        self.chunks = {kind: max(1, size // 2) for kind, size in chunks.items()}
        self._save()
        return dict(self.chunks)

    def _save(self) -> None:
        """Replace the file as a whole, since other processes use it; without write access nothing is kept."""
        if self.path is None:
            return
        rows = self.rows.copy()  # another packet's thread may add to them
        stored: dict[str, object] = {"rows": {bucket: asdict(limit) for bucket, limit in rows.items()}}
        stored |= {"chunks": self.chunks, "runs": self.runs}
        with suppress(OSError):
            self.path.parent.mkdir(parents=True, exist_ok=True)
            partial = self.path.with_name(f"{self.path.name}.{os.getpid()}-{uuid.uuid4().hex[:8]}")
            partial.write_text(json.dumps(stored), encoding="utf-8")
            partial.replace(self.path)


def limits_folder() -> Path:
    """Return the folder of limits on this machine, e.g. ~/.cache/framekiln/ceilings; it need not exist."""
    return cache_root() / "ceilings"


def bucket_of(pixels: int) -> int:
    """Return the bucket of an image size: sizes in one bucket differ by less than a factor of two."""
    return pixels.bit_length()
