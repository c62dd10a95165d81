"""Speed of lips and of loudness on a common time grid, at any frame rate and with gaps.

Lips are read from the largest steady face of each shot.

Shapes: n frames, m mouths in all of them together, w windows of sound, g points of the file's grid of `GRID_HZ`; boxes
are m 4, x0 y0 x1 y1 in shares of width and height. A `Signal` is float64 g, NaN where unknown.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from framekiln.contract import SOUND_RATE
from framekiln_stages.shared.masks import box_iou
from framekiln_stages.shared.result_agreement import Detections
from framekiln_stages.shared.tables import SOUND_WINDOW

Signal = NDArray[np.float64]

GRID_HZ = 100.0  # points at most a tenth of a frame apart; windows of sound are 10 ms apart too
MIDDLE_S = SOUND_WINDOW / 2 / SOUND_RATE  # from a window's start to its middle
MOUTH_GAP_S = 0.13  # longest gap without a face: two frames at 25/s, one interval at 8/s
SOUND_GAP_S = 0.05
SILENT_DB = -70.0  # and below: no voice; 16 bits end at -90
FLOOR_DB = 30.0  # dB below the loudest 5 %: quieter sound is the room's, not the voice's
VOICED = 0.5  # harmonicity; none of 5,000 windows of white noise exceeds 0.25
LEVELS = ("loudness", "middle", "high", "harmonicity")


def windows_of(times: Signal, voice: pa.ChunkedArray) -> tuple[Signal, Signal]:
    """Return the time in s (w) and the levels (w 4, in the order of `LEVELS`) of all windows of a file's sound.

    A slice starts at its frame's time. The first slice with samples ends at the next frame, since it also contains the
    sound before its frame.

    `times`: n, in s, increasing. `voice`: n structs with `samples` and lists `loudness`, `middle`, `high`,
    `harmonicity`.
    """
    whole = voice.combine_chunks()
    samples = whole.field("samples").fill_null(0).to_numpy(zero_copy_only=False)
    audible = np.flatnonzero((samples > 0) & whole.is_valid().to_numpy(zero_copy_only=False))
    starts = times.astype(float)
    if audible.size and audible[0] + 1 < len(times):
        first = audible[0]
        starts[first] = times[first + 1] - samples[first] / SOUND_RATE
    lists = [whole.field(name).filter(whole.is_valid()) for name in LEVELS]
    counts = np.zeros(len(times), int)
    counts[whole.is_valid().to_numpy(zero_copy_only=False)] = lists[0].value_lengths().to_numpy(zero_copy_only=False)
    own = np.repeat(np.arange(len(times)), counts)
    place = np.arange(len(own)) - np.repeat(np.cumsum(counts) - counts, counts)
    at = starts[own] + place * samples[own] / np.maximum(counts[own], 1) / SOUND_RATE + MIDDLE_S
    levels = np.stack([values.flatten().to_numpy(zero_copy_only=False).astype(float) for values in lists], axis=1)
    order = np.argsort(at, kind="stable")
    return at[order], levels[order]


def voiced(levels: Signal) -> NDArray[np.bool_]:
    """Return a mask of voiced windows (w): harmonic, and not far below the loudest."""
    loud, tone = levels[:, 0], levels[:, 3]
    return (tone >= VOICED) & (loud >= np.percentile(loud, 95) - FLOOR_DB) & (loud > SILENT_DB)


def sound_on_grid(grid: Signal, times: Signal, levels: Signal) -> list[Signal]:
    """Return the levels of the middle and of the high band in dB, each with a lower limit."""
    after = np.searchsorted(times, grid).clip(1, len(times) - 1) if len(times) > 1 else np.zeros(len(grid), int)
    near = np.minimum(np.abs(grid - times[after]), np.abs(grid - times[np.maximum(after - 1, 0)])) <= SOUND_GAP_S / 2
    bands = []
    for level in levels[:, 1:3].T:
        power = 10 ** (level / 10)
        floored = 10 * np.log10(power + 10 ** (-FLOOR_DB / 10) * np.percentile(power, 95) + 1e-10)
        bands.append(np.where(near, np.interp(grid, times, floored), np.nan))
    return bands


def mouth_on_grid(grid: Signal, seen: tuple[Signal, Signal, Signal], least_s: float) -> Signal:
    """Return the mouth's opening, by a cubic spline through each unbroken track of at least `least_s`.

    `grid`: g, in s. `seen`: time, opening and track of n frames. `least_s`: shorter tracks are left out, in s.
    """
    from scipy.interpolate import CubicSpline

    times, opening, track = seen
    signal = np.full(len(grid), np.nan)
    edges = np.flatnonzero((np.diff(times) > MOUTH_GAP_S) | (np.diff(track) != 0)) + 1
    for own in np.split(np.arange(len(times)), edges):
        if len(own) >= 4 and times[own[-1]] - times[own[0]] >= least_s:
            inside = np.flatnonzero((grid >= times[own[0]]) & (grid <= times[own[-1]]))
            if len(inside) > 1 and not np.isnan(signal[inside[0] - 1]):
                inside = inside[1:]  # a point without a value separates two faces' tracks
            signal[inside] = CubicSpline(times[own], opening[own])(grid[inside])
    return signal


def changes(signal: Signal, band: tuple[float, float]) -> Signal:
    """Return the rate of change of a signal within a band in Hz, for each unbroken run separately; NaN stays NaN."""
    from scipy.signal import butter, sosfiltfilt

    result = np.full(len(signal), np.nan)
    sections = butter(2, band, "bandpass", fs=GRID_HZ, output="sos")
    known = np.flatnonzero(~np.isnan(signal))
    for run in np.split(known, np.flatnonzero(np.diff(known) > 1) + 1):
        if len(run) > 1:
            speed = np.gradient(signal[run])
            result[run] = sosfiltfilt(sections, speed, padlen=min(len(run) - 1, round(GRID_HZ / 2)))
    return result


Values = NDArray[np.float64]

SAME_FACE = 0.3  # least IoU of a face's boxes in two frames: turning and nodding change them by far less
LOST_S = 0.5  # after a longer gap, it may be another face


def opening_of_largest(times: Values, mouths: pa.ChunkedArray, least_s: float) -> tuple[Values, Values, Values]:
    """Return time, opening and track number of the largest steady face in each frame with one.

    Faces form one track as long as their boxes overlap from frame to frame. A track shorter than `least_s` seconds does
    not count. The largest track has the largest median area.

    Args:
        times: n, in s, rising.
        mouths: n lists of structs with `box` and `opening`.
        least_s: shortest track, from its first frame to its last.
    """
    detections = Detections.from_column(mouths)
    boxes = detections.boxes
    openings = detections.values.field("opening").to_numpy(zero_copy_only=False).astype(float)
    frames = np.repeat(np.arange(len(times)), np.diff(detections.starts))
    tracks = _track_mouths(times[frames], frames, boxes)
    sides = (boxes[:, 2:] - boxes[:, :2]).prod(axis=1)
    chosen: dict[int, int] = {}  # mouth by frame
    ranked = []
    for track in range(int(tracks.max(initial=-1)) + 1):
        own = np.flatnonzero(tracks == track)
        if times[frames[own[-1]]] - times[frames[own[0]]] >= least_s:
            ranked.append((float(np.median(sides[own])), -track, own))
    for _, _, own in sorted(ranked, key=lambda item: item[:2]):
        chosen |= dict(zip(frames[own].tolist(), own.tolist(), strict=True))
    mine = np.array([chosen[frame] for frame in sorted(chosen)], int)
    return times[frames[mine]], openings[mine], tracks[mine].astype(float)


def _track_mouths(times: Values, frames: NDArray[np.int64], boxes: Values) -> NDArray[np.int64]:
    """Return each mouth's track number (m); pairs of boxes are matched by overlap, best first."""
    numbers = np.full(len(frames), -1)
    last: dict[int, int] = {}  # latest mouth by track
    for first, count in zip(*np.unique(frames, return_index=True, return_counts=True)[1:], strict=True):
        own = range(first, first + count)
        live = {track: at for track, at in last.items() if times[first] - times[at] <= LOST_S}
        shares = box_iou(boxes[list(live.values())], boxes[first : first + count])
        pairs = [(shares[row, i - first], -track, -i) for row, track in enumerate(live) for i in own]
        for share, track, i in sorted(pairs, reverse=True):
            if share < SAME_FACE:
                break
            if numbers[-i] < 0 and -track in live:
                numbers[-i] = -track
                del live[-track]
        for i in own:
            if numbers[i] < 0:
                numbers[i] = numbers.max() + 1
        last = {track: at for track, at in last.items() if times[first] - times[at] <= LOST_S}
        last |= {int(numbers[i]): i for i in own}
    return numbers


@dataclass(frozen=True)
class Lips:
    """Lips of one or several shots on a part of the grid."""

    shots: tuple[int, ...]
    lips: Signal  # speed of the opening; NaN where unknown
    at: int  # grid point of the first value
    first: int  # frame_index
    last: int

    @property
    def seconds(self) -> float:
        """Return the duration of known values."""
        return float((~np.isnan(self.lips)).sum()) / GRID_HZ

    @staticmethod
    def joined(parts: "Sequence[Lips]", points: int) -> "Lips":
        """Join the lips of shots of one file, in order, on the whole grid; shots do not overlap."""
        lips = np.full(points, np.nan)
        for part in parts:
            known = np.flatnonzero(~np.isnan(part.lips))
            lips[part.at + known] = part.lips[known]
        return Lips(tuple(shot for part in parts for shot in part.shots), lips, 0, parts[0].first, parts[-1].last)

    def columns(self) -> dict[str, Any]:
        """Return shots, duration and frames, as values of the table `sync`."""
        return {
            "shots": list(self.shots),
            "face_seconds": self.seconds,
            "first_frame": self.first,
            "last_frame": self.last,
        }
