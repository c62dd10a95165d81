"""Lips of shots on a part of a file's time grid, read from the largest steady face.

Shapes: g points of the file's grid of `GRID_HZ` a second; n frames, m mouths in all of them together; boxes are m 4,
x0 y0 x1 y1 in shares of width and height.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from framekiln_stages.shared.masks import box_iou
from framekiln_stages.shared.result_agreement import Detections
from framekiln_stages.sync.speech import GRID_HZ, Signal

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
