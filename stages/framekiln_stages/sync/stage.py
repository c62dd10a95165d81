"""Offset between the sound of a video and the lips of its speakers.

When the mouth opens, the sound between 500 and 4,000 Hz becomes louder; when it closes, the sound fades. The speed of
the opening is correlated with the rate of change of the level, at each lag within two seconds. Lips are read within
a shot. Sound is read across cuts, since late sound of a shot lies behind its cut.

Shapes: n frames; g points of a grid of 100 a second, on which both signals lie.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, ClassVar

import numpy as np
import pyarrow as pa

from framekiln.contract import MEDIA_ID, Drawing, Scope, Stage, Table, field
from framekiln.contract.limits import Positive, Proportion
from framekiln_stages.shared.tables import spans
from framekiln_stages.sync import signals
from framekiln_stages.sync.cross_correlation import SEEN_S, active_seconds, confidence, correlation, highest
from framekiln_stages.sync.signals import GRID_HZ, Lips, Signal

OFFSET = [
    field("offset_ms", pa.float32(), "delay of the sound against the lips; negative: early", "ms"),
    field("offset_frames", pa.float32(), "the same in frames, by the median interval of the computed ones", "frame"),
    field(
        "confidence",
        pa.float32(),
        "probability that the best offset is within 80 ms of the true one, 0 to 1, where half of all files have "
        "another's sound; below `min_confidence`, 0.8, the offset is null",
    ),
    field("correlation", pa.float32(), "of lips and sound at the best offset, -1 to 1"),
    field("correlation_at_zero", pa.float32(), "of lips and sound as they lie in the file, -1 to 1"),
    field("face_seconds", pa.float32(), "time in which the steady face with the read lips was visible", "s"),
    field("first_frame", pa.int32(), "frame_index of the first frame whose lips were read"),
    field("last_frame", pa.int32(), "frame_index of the last one"),
    field("reason", pa.string(), "why there is no offset; null if there is one"),
]
SYNC = pa.schema(
    [
        MEDIA_ID,
        *OFFSET,
        field("shots", pa.list_(pa.int32()), "shots with read lips", nullable=False),
        field("voiced_share", pa.float32(), "share of the sound's time that is voiced, 0 to 1; null without sound"),
    ]
)
SHOTS = pa.schema([MEDIA_ID, field("shot", pa.int32(), "the shot", nullable=False), *OFFSET])

Row = dict[str, Any]

# Least difference in log-odds by which all shots together win over the longest. 60 joins of two clips with different
# offsets, 90 with a cutaway, 90 with a listener in the longest shot, 90 with one offset: 1 to 4 give the same, 326
# right, 3 null and 1 wrong. 0 gives another shot's offset in 2, and the longest shot alone is wrong in 4 more.
SURER = 2.0
# Multiple of the search range in which a higher peak shows that the offset lies outside the range. Chosen on joins of
# two to four GRID clips, with moves of 2.5 to 6 s: of 264 offsets 2 gives 30 wrong ones and 4 gives 8; no right one is
# lost.
BEYOND = 4
SAME_MS = 80.0  # largest difference of equal offsets: the error of a single clip, two frames at 25 a second


class Sync(Stage):
    """The offset between sound and lips of each video: above zero if the sound is late.

    The face is the largest steady one of a shot. If people take turns and the larger face listens, the confidence
    falls. The file's offset comes from the lips of all shots. If the longest shot has another offset, and all together
    have no clearly higher confidence, its offset is taken. `sync_shots` has the offset of each shot.
    """

    version = 7  # 7: an offset needs a confidence of 0.8, which counts the height
    scope = Scope.MEDIA
    inputs = ("media_id", "frame_index", "time_s", "mouths", "voice")
    input_tables = ("shots",)
    tables: ClassVar[dict[str, Table]] = {  # no row for a photo, nor for a shot without a talking face
        "sync": Table(schema=SYNC, keys=("media_id",), description="how late a file's sound is"),
        "sync_shots": Table(schema=SHOTS, keys=("media_id", "shot"), description="the same of each shot by itself"),
    }

    @dataclass(frozen=True, kw_only=True)
    class Config(Stage.Config):
        """Search range, frequency band, and the least confidence, face and speech durations.

        Raises ValueError: the band is empty or above half the grid's rate.
        """

        # Largest offset in seconds. Of GRID's six clips of 3 s, moved by up to 0.96 s, 58 of 66 offsets are right, 8
        # null and none wrong. With 0.5 s all beyond it were wrong; with 1 s 3 of 24 beyond it are, at the same least
        # confidence. Moves of up to 0.4 s are found as often with 2 s. Accepted are at most 90 ms early and 185 ms late
        # (ITU-R BT.1359).
        search_s: Positive = 2.0
        # Least probability of a reported offset. Of 90 pairs of GRID's lips and another's sound none has 0.77; of 30
        # clips moved by up to 0.32 s none has less than 0.82. Of 319 made curves without the true lag, in noise, cut
        # short or with pauses, 0.027 have 0.8; of 187 with it 0.63 have it, and all of 6 s.
        min_confidence: Proportion = 0.8
        # Band of compared changes. Slower ones belong to the whole sentence, as in another's sound: from 0.5 Hz the AUC
        # of own against another's sound in GRID is 0.991, from 1 Hz 0.996.
        low_hz: float = 1.0
        high_hz: float = 8.0  # up to the rate of fast syllables; with 6 Hz that AUC is 0.994
        min_face_s: Positive = 1.0  # least time of a face; less has too few syllables to distinguish lags
        # Least time of voice, some three syllables; GRID's sentences of six words in 3 s have 1.1 to 2.5.
        min_voiced_s: Positive = 0.5
        # Least frame rate. In GRID, every second frame (12.5/s) gives offsets within 53 ms, every third (8.3/s) within
        # 39 ms, but a confidence lower by up to a third; lower rates were not tried.
        min_frames_per_s: Positive = 8.0

        def __post_init__(self) -> None:
            if not 0 < self.low_hz < self.high_hz < GRID_HZ / 2:
                raise ValueError(f"low_hz must be above 0, and high_hz between it and {GRID_HZ / 2:g}")

    def __call__(self, batch: pa.Table, tables: Mapping[str, pa.Table] = MappingProxyType({})) -> dict[str, pa.Table]:
        """Compute the offset of one file and of its shots. Raises ValueError: the file has frames, but no shots."""
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

    def draw(self, row: Mapping[str, Any]) -> Drawing | None:
        """Return a caption with the file's offset, or the reason why there is none."""
        if not row["sync"]:
            return None
        sync = row["sync"][0]
        if sync["offset_ms"] is None:
            return Drawing(caption=sync["reason"] or "")
        late = f"{abs(sync['offset_ms']):.0f} ms {'late' if sync['offset_ms'] > 0 else 'early'}"
        return Drawing(caption=f"sound {late}, confidence {sync['confidence']:.2f}")

    def _judge(self, rows: pa.Table, shots: Sequence[tuple[int, int, int]]) -> tuple[Row, list[Row]]:
        """Return the file's row and its shots' rows, without `media_id`."""
        times = rows["time_s"].to_numpy()
        interval = float(np.median(np.diff(times))) if len(times) > 1 else math.inf
        sound_times, levels = signals.windows_of(times, rows["voice"])
        if not len(sound_times):
            return {"shots": [], "reason": "no sound"}, []
        if levels[:, 0].max() <= signals.SILENT_DB:
            return {"shots": [], "reason": "silence"}, []
        speech = signals.voiced(levels)
        known: Row = {"voiced_share": float(speech.mean()), "face_seconds": 0.0, "shots": []}
        if interval > 1 / self.config.min_frames_per_s:
            return known | {"reason": f"fewer than {self.config.min_frames_per_s:g} frames a second"}, []
        reach = BEYOND * self.config.search_s
        grid = np.arange(times[0] - reach, times[-1] + reach + interval, 1 / GRID_HZ)
        parts = [part for shot in shots if (part := self._read_lips(grid, rows, times, shot)) is not None]
        if not parts:
            return known | {"reason": "no face"}, []
        if speech.sum() / GRID_HZ < self.config.min_voiced_s:
            return known | Lips.joined(parts, len(grid)).columns() | {"reason": "too little speech"}, []
        sounds = [signals.changes(band, self._band) for band in signals.sound_on_grid(grid, sound_times, levels)]
        alone = [self._find_offset(part, sounds, interval) for part in parts]
        longest = max(range(len(parts)), key=lambda i: (parts[i].seconds, -i))
        together = self._find_offset(Lips.joined(parts, len(grid)), sounds, interval)
        best = known | choose_offset(together, alone[longest])
        return best, [{"shot": part.shots[0]} | row for part, row in zip(parts, alone, strict=True)]

    def _read_lips(self, grid: Signal, rows: pa.Table, times: Signal, shot: tuple[int, int, int]) -> Lips | None:
        """Return the lips of a shot; None without a steady face."""
        number, start, stop = shot
        inside = slice(start, stop)
        mouths = rows["mouths"].slice(start, stop - start)
        openings = signals.opening_of_largest(times[inside], mouths, self.config.min_face_s)
        # Only the shot's points and the search range beside them: a video may have a thousand shots.
        begin, end = np.searchsorted(grid, [times[start], times[stop - 1]]).tolist()
        at = max(begin - BEYOND * self._most, 0)
        grid = grid[at : end + BEYOND * self._most + 1]
        lips = signals.changes(signals.mouth_on_grid(grid, openings, self.config.min_face_s), self._band)
        read = grid[~np.isnan(lips)]
        if not len(read):
            return None
        step = 1 / GRID_HZ
        own = np.flatnonzero((times[inside] > read[0] - step) & (times[inside] < read[-1] + step)) + start
        index = rows["frame_index"]
        return Lips((number,), lips, at, index[int(own[0])].as_py(), index[int(own[-1])].as_py())

    @property
    def _band(self) -> tuple[float, float]:
        return (self.config.low_hz, self.config.high_hz)

    @property
    def _most(self) -> int:
        """Return the points of the search range to either side."""
        return round(self.config.search_s * GRID_HZ)

    def _find_offset(self, part: Lips, sounds: Sequence[Signal], interval: float) -> Row:
        most, near = self._most, slice(part.at, part.at + len(part.lips))
        far = np.mean([correlation(part.lips, sound[near], BEYOND * most) for sound in sounds], axis=0)
        outside = (BEYOND - 1) * most
        curve = far[outside : len(far) - outside]
        known = part.columns() | {"correlation_at_zero": float(curve[most])}
        best = highest(curve)
        if best is None:
            return known | {"reason": "no lag stands out"}
        if not best.inside or far.max() > curve.max():
            return known | {"reason": f"the best offset is beyond {self.config.search_s:g} s"}
        seconds = SEEN_S * active_seconds(part.lips, [sound[near] for sound in sounds], round(best.at) - most)
        chance = 1 / math.sqrt(max(2 * (self.config.high_hz - self.config.low_hz) * seconds, 1))
        known |= {"confidence": confidence(best, chance), "correlation": best.height}
        if known["confidence"] < self.config.min_confidence:
            return known | {"reason": "no offset is clearly better than others"}
        late_s = (best.at - most) / GRID_HZ
        return known | {"offset_ms": 1000 * late_s, "offset_frames": late_s / interval}


def choose_offset(together: Row, longest: Row) -> Row:
    """Return the row of all shots together or of the longest one; see `SURER`."""
    if "offset_frames" not in longest:
        return together
    if "offset_frames" not in together:
        return longest
    same = abs(together["offset_ms"] - longest["offset_ms"]) <= SAME_MS
    return together if same or _compute_odds(together) >= _compute_odds(longest) + SURER else longest


def _compute_odds(row: Row) -> float:
    """Return the logarithm of a confidence's odds."""
    share = min(row["confidence"], 1 - 1e-12)
    return math.log(share / (1 - share))
