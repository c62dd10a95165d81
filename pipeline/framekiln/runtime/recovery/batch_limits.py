"""Limits of a step's batch and chunks, learned when memory runs out and kept for later runs.

The limit depends on the model, the GPU and the image size, so each size of images has its own. A limit is not final:
another program may have filled the GPU then. So a larger batch is tried from time to time, more rarely after each
failure. Limits are stored with the device's calibration.
"""

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from framekiln.device import device_name
from framekiln.planning.gpu import calibration_file
from framekiln.planning.gpu.calibration_file import PATIENCE, BatchLimit, Calibration, Learned
from framekiln.planning.step import Step, fingerprint

_RUNS = 8  # every so many runs, whole chunks are tried again


@dataclass
class BatchLimits:
    """A step's limits by image size, and its chunk sizes that fit."""

    step: Step | None = None  # None: limits stay in this process
    path: Path = Path()  # path of the device's file
    rows: dict[int, BatchLimit] = field(default_factory=dict)  # by bucket; see `bucket_of`
    chunks: dict[str, int] = field(default_factory=dict)
    runs: int = 0  # processes that have read the file

    @classmethod
    def load(cls, step: Step, folder: Path | None) -> "BatchLimits":
        """Return the limits that earlier runs learned for this step on this device; empty if none did."""
        if folder is None:
            return cls()
        limits = cls(step, calibration_file.default_path(device_name(step.placement.device), folder))
        known = calibration_file.read_known(limits.path)
        if (learned := known.learned.get(limits._make_key(step)) if known else None) is not None:
            limits.rows, limits.runs = learned.rows, learned.runs + 1
            limits.chunks = learned.chunks if limits.runs % _RUNS else {}
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
        """Halve the limit after a call of this many rows did not fit."""
        limit = self.rows.get(bucket, BatchLimit(rows))
        was_trial = rows > limit.rows
        patience = 2 * limit.patience if was_trial else PATIENCE
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
        """Return half-size chunks, since a single row did not fit.

        The batch limit is dropped: the chunks were too large, not the batch.
        """
        self.rows.pop(bucket, None)
        self.chunks = {kind: max(1, size // 2) for kind, size in chunks.items()}
        self._save()
        return dict(self.chunks)

    def _save(self) -> None:
        """Update the file, which other processes use; without write access nothing is stored."""
        if (step := self.step) is None:
            return
        # another packet's thread may add to the rows
        learned = {self._make_key(step): Learned(rows=self.rows.copy(), chunks=self.chunks, runs=self.runs)}
        place = step.placement
        blank = Calibration(device=device_name(place.device), kind="cpu" if place.device == "cpu" else "cuda")

        def add(before: Calibration | None) -> Calibration:
            known = before or blank
            return known.model_copy(update={"learned": {**known.learned, **learned}})

        with suppress(OSError):
            calibration_file.update(self.path, add)

    @staticmethod
    def _make_key(step: Step) -> str:
        place = step.placement
        facts = {"use": step.use, "weights": sorted(step.weights), "settings": step.stage.config, "gb": place.vram_gb}
        return f"{step.name}-{fingerprint(facts | {'precision': place.precision, 'compile': place.compile})}"


def bucket_of(pixels: int) -> int:
    """Return the bucket of an image size: sizes in one bucket differ by less than a factor of two."""
    return pixels.bit_length()
