"""How much of a step fits into memory at once: learned when memory runs out, and remembered for the next run.

What fits depends on the model, the card and the size of the pictures, so each of these has a ceiling of its own. A
ceiling is not for ever: something else may have filled the card when it was found, so a larger call is tried now and
then, ever more rarely while that fails.
"""

from __future__ import annotations

import json
import os
import uuid
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path

from platformdirs import user_cache_path

from pipeline.device import device_name
from pipeline.step import Step, fingerprint

_PATIENCE = 64  # calls before a larger one is tried: one that fails costs about two calls, so some 3 % of the time
_RUNS = 8  # of these one asks for whole chunks again


@dataclass
class Ceiling:
    """What fits, for pictures of about one size."""

    rows: int  # the largest call that may be made; grown when one that is larger has worked
    patience: int = _PATIENCE  # calls at the ceiling before a larger one is tried
    calm: int = 0  # calls at the ceiling since one failed or was tried


@dataclass
class Ceilings:
    """A step's ceilings, by size of pictures, and the sizes of its chunks that fit."""

    path: Path | None = None  # None: forgotten with the process
    rows: dict[int, Ceiling] = field(default_factory=dict)  # by bucket
    chunks: dict[str, int] = field(default_factory=dict)
    runs: int = 0  # processes that began with what is written down

    @classmethod
    def of(cls, step: Step, folder: Path | None) -> Ceilings:
        """Those that an earlier run wrote down for this step on this device; none where it wrote down nothing."""
        if folder is None:
            return cls()
        place = step.placement
        facts = {"use": step.use, "weights": sorted(step.weights), "settings": step.stage.config, "gb": place.vram_gb}
        how = {"device": device_name(place.device), "precision": place.precision, "compile": place.compile}
        path = folder / f"{step.name}-{fingerprint(facts | how)}.json"
        try:
            found = json.loads(path.read_text(encoding="utf-8"))
            rows = {int(bucket): Ceiling(**known) for bucket, known in found["rows"].items()}
            chunks = {str(kind): int(size) for kind, size in found["chunks"].items()}
            known = cls(path, rows, chunks, int(found["runs"]) + 1)
        except (OSError, ValueError, TypeError, KeyError, AttributeError):  # absent, or written by nobody we know
            return cls(path)
        if known.runs % _RUNS == 0:
            known.chunks = {}
        known._save()
        return known

    def allowed(self, bucket: int, wanted: int) -> int:
        """Rows of the next call, of which a profile wants so many."""
        known = self.rows.get(bucket)
        if known is None:
            return wanted
        more = 2 if known.calm >= known.patience else 1
        return max(1, min(wanted, more * known.rows))

    def failed(self, bucket: int, rows: int) -> None:
        """A call of so many rows did not fit; the next one has half as many, at most."""
        known = self.rows.get(bucket)
        tried = known is not None and rows > known.rows  # that a larger one might fit by now
        patience = 2 * known.patience if known is not None and tried else _PATIENCE
        most = known.rows if known is not None else rows
        self.rows[bucket] = Ceiling(min(most, max(1, rows // 2)), patience)
        self._save()

    def worked(self, bucket: int, rows: int) -> None:
        """A call of so many rows did."""
        known = self.rows.get(bucket)
        if known is None or rows < known.rows:
            return
        known.calm += 1
        if rows > known.rows:
            self.rows[bucket] = Ceiling(rows, known.patience)
            self._save()

    def halve(self, bucket: int, chunks: Mapping[str, int]) -> dict[str, int]:
        """Chunks of half the size, after those of a single row did not fit.

        It was they, then, that were too large, and not the calls of several rows before.
        """
        self.rows.pop(bucket, None)
        self.chunks = {kind: max(1, size // 2) for kind, size in chunks.items()}
        self._save()
        return dict(self.chunks)

    def _save(self) -> None:
        """Whole, since others read and write it too; who cannot write it goes without."""
        if self.path is None:
            return
        told: dict[str, object] = {"rows": {bucket: asdict(known) for bucket, known in self.rows.items()}}
        told |= {"chunks": self.chunks, "runs": self.runs}
        with suppress(OSError):
            self.path.parent.mkdir(parents=True, exist_ok=True)
            half = self.path.with_name(f"{self.path.name}.{os.getpid()}-{uuid.uuid4().hex[:8]}")
            half.write_text(json.dumps(told), encoding="utf-8")
            half.replace(self.path)


def ceilings_folder() -> Path:
    """Where ceilings are kept on this machine, e.g. ~/.cache/framemill/ceilings; it need not exist."""
    return user_cache_path("framemill") / "ceilings"


def bucket_of(pixels: int) -> int:
    """Pictures of one bucket differ in their number of pixels by less than a factor of two."""
    return pixels.bit_length()
