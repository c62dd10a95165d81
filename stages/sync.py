"""Is the sound of a talking clip in step with the lips, and if not, by how much?

Lips and loudness do not move alike, but they change together: as the mouth opens, the sound between 500 and 4,000 Hz
grows, and as it closes the sound dies away. So the speed of the opening is held against the rate of change of the
level, at every lag within half a second.

Shapes: n frames; g points of a grid of 100 a second, on which both signals lie.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from pipeline.columns import MEDIA_ID, field
from pipeline.stage import Placement, Scope, Stage, Table
from stages.nets.speech import GRID_HZ, Signal, changes, mouth_on_grid, sound_on_grid, voiced, windows_of
from stages.nets.talkers import opening_of_largest

SYNC = pa.schema(
    [
        MEDIA_ID,
        field("offset_ms", pa.float32(), "how late the sound is against the lips; negative: early", "ms"),
        field("offset_frames", pa.float32(), "the same in frames, the median interval of those looked at", "frame"),
        field(
            "confidence",
            pa.float32(),
            "correlation at the offset less the median over all lags, in standard deviations of what unrelated signals "
            "of this length and band give; clips of 3 s had 3.2 to 4.9 with their own sound, 1.1 to 3.4 with another",
        ),
        field("correlation", pa.float32(), "of lips and sound at the offset, -1 to 1"),
        field("correlation_at_zero", pa.float32(), "of lips and sound as they lie in the file, -1 to 1"),
        field("voiced_share", pa.float32(), "share of the sound's time that is voiced, 0 to 1; null without sound"),
        field("face_seconds", pa.float32(), "for how long a steady face was seen", "s"),
        field("reason", pa.string(), "why there is no offset; null where there is one"),
    ]
)


class Sync(Stage):
    """The offset between sound and lips of each video: above zero where the sound is late.

    The face is the largest steady one; where people take turns and the larger face listens, the confidence falls.
    One offset is sought for the whole file.
    """

    scope = Scope.MEDIA
    placement = Placement(cpus=1.0)

    @dataclass(frozen=True, kw_only=True)
    class Config(Stage.Config):
        """How far to search, in which band, and how much speech it takes.

        Raises:
            ValueError: a duration that is not positive, or a band that is empty or beyond what frames can show.
        """

        # Nearly three times what ITU-R BT.1359 accepts at most: 90 ms early, 185 ms late. A wider search finds more
        # peaks by chance.
        search_s: float = 0.5
        # Slower changes are those of the whole sentence, which another's sound shares: from .5 Hz the AUC of own
        # against another's sound in GRID is .991, from 1 Hz .996.
        low_hz: float = 1.0
        high_hz: float = 8.0  # up to the rate of fast syllables; with 6 Hz that AUC is .994
        min_face_s: float = 1.0  # a shorter look at a face holds too few syllables to tell one lag from another
        min_voiced_s: float = 0.5  # some three syllables; GRID's sentences of six words in 3 s hold 1.1 to 2.5
        # Of GRID, every second frame (12.5/s) gives offsets within 53 ms, every third (8.3/s) within 39 ms, but a
        # confidence lower by up to a third; fewer were not tried.
        min_frames_per_s: float = 8.0

        def __post_init__(self) -> None:
            for name in ("search_s", "min_face_s", "min_voiced_s", "min_frames_per_s"):
                if not getattr(self, name) > 0:
                    raise ValueError(f"{name} must be above 0, not {getattr(self, name)}")
            if not 0 < self.low_hz < self.high_hz < GRID_HZ / 2:
                raise ValueError(f"low_hz must be above 0, and high_hz between it and {GRID_HZ / 2:g}")

    @property
    def inputs(self) -> tuple[str, ...]:
        """Mouths and voice of all frames of a file."""
        return ("media_id", "frame_index", "time_s", "mouths", "voice")

    @property
    def tables(self) -> dict[str, Table]:
        """One row a video or animation, none for a photo."""
        return {"sync": Table(schema=SYNC, keys=("media_id",), description="how late a file's sound is")}

    def __call__(self, batch: pa.Table) -> dict[str, pa.Table]:
        """All frames of one file, in any order."""
        rows = batch.sort_by("frame_index")
        rows = rows.filter(rows["time_s"].is_valid())
        files = [{"media_id": rows["media_id"][0].as_py()} | self._judge(rows)] if len(rows) else []
        return {"sync": pa.Table.from_pylist(files, schema=SYNC)}

    def _judge(self, rows: pa.Table) -> dict[str, Any]:
        times = rows["time_s"].to_numpy()
        interval = float(np.median(np.diff(times))) if len(times) > 1 else math.inf
        heard, levels = windows_of(times, rows["voice"])
        if not len(heard):
            return {"face_seconds": None, "reason": "no sound"}
        speech = voiced(levels)
        known: dict[str, Any] = {"voiced_share": float(speech.mean()), "face_seconds": 0.0}
        if interval > 1 / self.config.min_frames_per_s:
            return known | {"reason": f"fewer than {self.config.min_frames_per_s:g} frames a second"}
        seen = opening_of_largest(times, rows["mouths"], self.config.min_face_s)
        grid = np.arange(times[0] - self.config.search_s, times[-1] + self.config.search_s + interval, 1 / GRID_HZ)
        lips = changes(mouth_on_grid(grid, seen, self.config.min_face_s), self._band)
        seconds = float((~np.isnan(lips)).sum()) / GRID_HZ
        known["face_seconds"] = seconds
        if not seconds:
            return known | {"reason": "no face"}
        if speech.sum() / GRID_HZ < self.config.min_voiced_s:
            return known | {"reason": "too little speech"}
        sounds = [changes(band, self._band) for band in sound_on_grid(grid, heard, levels)]
        return known | self._offset(lips, sounds, seconds, interval)

    @property
    def _band(self) -> tuple[float, float]:
        return (self.config.low_hz, self.config.high_hz)

    def _offset(self, lips: Signal, sounds: list[Signal], seconds: float, interval: float) -> dict[str, Any]:
        most = round(self.config.search_s * GRID_HZ)
        curve = np.mean([correlation(lips, sound, most) for sound in sounds], axis=0)
        known = {"correlation_at_zero": float(curve[most])}
        best = highest(curve)
        if best is None:
            return known | {"reason": "no lag stands out"}
        lag, peak = best
        chance = 1 / math.sqrt(max(2 * (self.config.high_hz - self.config.low_hz) * seconds, 1))
        late_s = (lag - most) / GRID_HZ
        return known | {
            "offset_ms": 1000 * late_s,
            "offset_frames": late_s / interval,
            "confidence": (peak - float(np.median(curve))) / chance,
            "correlation": peak,
        }


def correlation(lips: Signal, sound: Signal, most: int) -> Signal:
    """Correlation of lips (g) with sound (g) that is late by -most to most points: 2 most + 1 values.

    NaN counts as no change. All lags are divided by the same: the root of both energies while the lips are seen; a lag
    that has less to compare is thus less likely to win by chance.
    """
    from scipy.signal import correlate

    seen = ~np.isnan(lips)
    one, other = (np.nan_to_num(values) for values in (lips, sound))
    size = math.sqrt(float((one**2).sum() * (other[seen] ** 2).sum()))
    curve: Signal = correlate(np.pad(other, most), one, mode="valid", method="fft") / max(size, 1e-12)
    return curve


def highest(curve: Signal) -> tuple[float, float] | None:
    """Place and height of the highest local maximum above zero, between points by a parabola; None without one."""
    inner = curve[1:-1]
    tops = np.flatnonzero((inner > 0) & (inner >= curve[:-2]) & (inner > curve[2:])) + 1
    if not tops.size:
        return None
    at = int(tops[curve[tops].argmax()])
    before, here, after = curve[at - 1 : at + 2]
    bend = before - 2 * here + after
    shift = 0.5 * (before - after) / bend
    return at + float(shift), float(here - 0.25 * (before - after) * shift)
