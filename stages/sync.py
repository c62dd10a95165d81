"""Is the sound of a talking clip in step with the lips, and if not, by how much?

Lips and loudness do not move alike, but they change together: as the mouth opens, the sound between 500 and 4,000 Hz
grows, and as it closes the sound dies away. So the speed of the opening is held against the rate of change of the
level, at every lag within half a second. Lips are read within a shot and never across a cut, while the sound runs on
over it: late sound of a shot lies behind its cut.

Shapes: n frames; g points of a grid of 100 a second, on which both signals lie.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

import numpy as np
import pyarrow as pa

from pipeline.columns import MEDIA_ID, field
from pipeline.stage import Drawing, Placement, Scope, Stage, Table
from stages.nets.lags import correlation, highest
from stages.nets.spans import spans
from stages.nets.speech import GRID_HZ, Signal, changes, mouth_on_grid, sound_on_grid, voiced, windows_of
from stages.nets.talkers import opening_of_largest

OFFSET = [
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
    field("face_seconds", pa.float32(), "for how long the steady face was seen whose lips were read", "s"),
    field("first_frame", pa.int32(), "frame_index of the first frame whose lips were read"),
    field("last_frame", pa.int32(), "frame_index of the last one"),
]
SYNC = pa.schema(
    [
        MEDIA_ID,
        *OFFSET,
        field("shots", pa.list_(pa.int32()), "shots whose lips were read", nullable=False),
        field("voiced_share", pa.float32(), "share of the sound's time that is voiced, 0 to 1; null without sound"),
        field("reason", pa.string(), "why there is no offset; null where there is one"),
    ]
)
SHOTS = pa.schema([MEDIA_ID, field("shot", pa.int32(), "the shot", nullable=False), *OFFSET])

Row = dict[str, Any]

# All shots together are believed against the longest only if surer by so much. Of 90 joins of two clips with offsets of
# their own 0 gives one of the two in 80, .5 in 87, 1 and 1.5 in all; of 90 in which the longest shot shows a listener 0
# and .5 give the speakers' offset in all, 1 in 89, 1.5 in 84.
SURER = 1.0
SAME_FRAMES = 2.0  # offsets that are one: what a single clip's may be off


class Sync(Stage):
    """The offset between sound and lips of each video: above zero where the sound is late.

    The face is the largest steady one of a shot; where people take turns and the larger face listens, the confidence
    falls. One offset is sought for the whole file, from the lips of all its shots; where the longest of them has
    another and all together are not clearly surer, that shot's. `sync_shots` has each shot by itself.
    """

    version = 2
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
    def reads(self) -> tuple[str, ...]:
        """Where shots begin."""
        return ("shots",)

    @property
    def tables(self) -> dict[str, Table]:
        """One row a video or animation, none for a photo; and one for each of its shots with a talking face."""
        return {
            "sync": Table(schema=SYNC, keys=("media_id",), description="how late a file's sound is"),
            "sync_shots": Table(schema=SHOTS, keys=("media_id", "shot"), description="the same of each shot by itself"),
        }

    def __call__(self, batch: pa.Table, tables: Mapping[str, pa.Table] = MappingProxyType({})) -> dict[str, pa.Table]:
        """All frames of one file, in any order, and its shots.

        Raises:
            ValueError: there are frames, but no shots.
        """
        rows = batch.sort_by("frame_index")
        rows = rows.filter(rows["time_s"].is_valid())
        if not len(rows):
            return {"sync": SYNC.empty_table(), "sync_shots": SHOTS.empty_table()}
        whole, parts = self._judge(rows, spans(rows, tables["shots"]))
        name = {"media_id": rows["media_id"][0].as_py()}
        return {
            "sync": pa.Table.from_pylist([name | whole], schema=SYNC),
            "sync_shots": pa.Table.from_pylist([name | part for part in parts], schema=SHOTS),
        }

    def preview(self, row: Mapping[str, Any]) -> Drawing | None:
        """How late the sound of the file is, in words, or why nobody can say."""
        for one in row["sync"]:
            if one["offset_ms"] is None:
                return Drawing(caption=one["reason"] or "")
            late = f"{abs(one['offset_ms']):.0f} ms {'late' if one['offset_ms'] > 0 else 'early'}"
            return Drawing(caption=f"sound {late}, confidence {one['confidence']:.1f}")
        return None

    def _judge(self, rows: pa.Table, shots: Sequence[tuple[int, int, int]]) -> tuple[Row, list[Row]]:
        """The file's row and those of its shots, without their names."""
        times = rows["time_s"].to_numpy()
        interval = float(np.median(np.diff(times))) if len(times) > 1 else math.inf
        heard, levels = windows_of(times, rows["voice"])
        if not len(heard):
            return {"shots": [], "reason": "no sound"}, []
        speech = voiced(levels)
        known: Row = {"voiced_share": float(speech.mean()), "face_seconds": 0.0, "shots": []}
        if interval > 1 / self.config.min_frames_per_s:
            return known | {"reason": f"fewer than {self.config.min_frames_per_s:g} frames a second"}, []
        grid = np.arange(times[0] - self.config.search_s, times[-1] + self.config.search_s + interval, 1 / GRID_HZ)
        looks = [look for shot in shots if (look := self._look(grid, rows, times, shot)) is not None]
        if not looks:
            return known | {"reason": "no face"}, []
        if speech.sum() / GRID_HZ < self.config.min_voiced_s:
            return known | Look.joined(looks, len(grid)).about() | {"reason": "too little speech"}, []
        sounds = [changes(band, self._band) for band in sound_on_grid(grid, heard, levels)]
        alone = [self._offset(look, sounds, interval) for look in looks]
        longest = max(range(len(looks)), key=lambda i: (looks[i].seconds, -i))
        together = self._offset(Look.joined(looks, len(grid)), sounds, interval)
        best = known | chosen(together, alone[longest])
        parts = [{key: row[key] for key in row if key in SHOTS.names} for row in alone]
        return best, [{"shot": look.shots[0]} | row for look, row in zip(looks, parts, strict=True)]

    def _look(self, grid: Signal, rows: pa.Table, times: Signal, shot: tuple[int, int, int]) -> Look | None:
        """The lips of a shot; None where no steady face is seen."""
        number, start, stop = shot
        inside = slice(start, stop)
        mouths = rows["mouths"].slice(start, stop - start)
        seen = opening_of_largest(times[inside], mouths, self.config.min_face_s)
        # The shot's own points and as many as the search reaches: a film has a thousand shots.
        begin, end = np.searchsorted(grid, [times[start], times[stop - 1]]).tolist()
        at = max(begin - self._most, 0)
        grid = grid[at : end + self._most + 1]
        lips = changes(mouth_on_grid(grid, seen, self.config.min_face_s), self._band)
        read = grid[~np.isnan(lips)]
        if not len(read):
            return None
        step = 1 / GRID_HZ
        own = np.flatnonzero((times[inside] > read[0] - step) & (times[inside] < read[-1] + step)) + start
        index = rows["frame_index"]
        return Look((number,), lips, at, index[int(own[0])].as_py(), index[int(own[-1])].as_py())

    @property
    def _band(self) -> tuple[float, float]:
        return (self.config.low_hz, self.config.high_hz)

    @property
    def _most(self) -> int:
        """Points of the search to either side."""
        return round(self.config.search_s * GRID_HZ)

    def _offset(self, look: Look, sounds: Sequence[Signal], interval: float) -> Row:
        most, near = self._most, slice(look.at, look.at + len(look.lips))
        curve = np.mean([correlation(look.lips, sound[near], most) for sound in sounds], axis=0)
        known = look.about() | {"correlation_at_zero": float(curve[most])}
        best = highest(curve)
        if best is None:
            return known | {"reason": "no lag stands out"}
        lag, peak = best
        chance = 1 / math.sqrt(max(2 * (self.config.high_hz - self.config.low_hz) * look.seconds, 1))
        late_s = (lag - most) / GRID_HZ
        return known | {
            "offset_ms": 1000 * late_s,
            "offset_frames": late_s / interval,
            "confidence": (peak - float(np.median(curve))) / chance,
            "correlation": peak,
        }


@dataclass(frozen=True)
class Look:
    """Lips of one shot, or of several, on a part of the grid."""

    shots: tuple[int, ...]
    lips: Signal  # speed of the opening; NaN where not read
    at: int  # the grid's point of the first of them
    first: int  # frame_index
    last: int

    @property
    def seconds(self) -> float:
        """For how long lips were read."""
        return float((~np.isnan(self.lips)).sum()) / GRID_HZ

    @staticmethod
    def joined(looks: Sequence[Look], points: int) -> Look:
        """Looks of one file as one on the whole grid, in their order; lips of shots do not overlap."""
        lips = np.full(points, np.nan)
        for look in looks:
            known = np.flatnonzero(~np.isnan(look.lips))
            lips[look.at + known] = look.lips[known]
        return Look(tuple(shot for look in looks for shot in look.shots), lips, 0, looks[0].first, looks[-1].last)

    def about(self) -> Row:
        """What was read, as values of `SYNC`."""
        return {
            "shots": list(self.shots),
            "face_seconds": self.seconds,
            "first_frame": self.first,
            "last_frame": self.last,
        }


def chosen(together: Row, longest: Row) -> Row:
    """The row of all shots together or of the longest one: see `SURER`."""
    if "offset_frames" not in longest:
        return together
    if "offset_frames" not in together:
        return longest
    same = abs(together["offset_frames"] - longest["offset_frames"]) <= SAME_FRAMES
    return together if same or together["confidence"] >= longest["confidence"] + SURER else longest
