"""Whose lips to read: the largest face that stays.

Shapes: n frames, m mouths in all of them together; boxes are m 4, x0 y0 x1 y1 in shares of width and height.
"""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

Values = NDArray[np.float64]

SAME_FACE = 0.3  # overlap (IoU) of a face's boxes: a face turns and nods within far less from one frame to the next
LOST_S = 0.5  # a face that was away for longer may be another's


def opening_of_largest(times: Values, mouths: pa.ChunkedArray, least_s: float) -> tuple[Values, Values, Values]:
    """Time, opening and track number of the largest steady face of each frame that has one.

    Faces are one track as long as their boxes overlap from frame to frame; a track shorter than `least_s` seconds does
    not count, and the largest is the one whose median area is.

    Args:
        times: n, in s, rising.
        mouths: n lists of structs with `box` and `opening`.
        least_s: of a track, from its first frame to its last.
    """
    frames, boxes, openings = _flat(mouths)
    tracks = _tracks(times[frames], frames, boxes)
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


def _flat(mouths: pa.ChunkedArray) -> tuple[NDArray[np.int64], Values, Values]:
    """Frame number (m), box (m 4) and opening (m) of all mouths."""
    whole = mouths.combine_chunks()
    structs: Any = whole.flatten()
    counts = whole.value_lengths().fill_null(0).to_numpy(zero_copy_only=False)
    box = structs.field("box")
    sides = [box.field(name).to_numpy(zero_copy_only=False) for name in ("x0", "y0", "x1", "y1")]
    opening = structs.field("opening").to_numpy(zero_copy_only=False)
    return np.repeat(np.arange(len(counts)), counts), np.stack(sides, axis=1).astype(float), opening.astype(float)


def _tracks(times: Values, frames: NDArray[np.int64], boxes: Values) -> NDArray[np.int64]:
    """The number of each mouth's track (m): pairs of boxes are joined, the best overlap first."""
    numbers = np.full(len(frames), -1)
    last: dict[int, int] = {}  # latest mouth by track
    for first, stop in _runs(frames):
        live = {track: at for track, at in last.items() if times[first] - times[at] <= LOST_S}
        pairs = [(overlap(boxes[at], boxes[i]), -track, -i) for track, at in live.items() for i in range(first, stop)]
        for share, track, i in sorted(pairs, reverse=True):
            if share < SAME_FACE:
                break
            if numbers[-i] < 0 and -track in live:
                numbers[-i] = -track
                del live[-track]
        for i in range(first, stop):
            if numbers[i] < 0:
                numbers[i] = numbers.max() + 1
        last = {t: at for t, at in last.items() if times[first] - times[at] <= LOST_S}
        last |= {int(numbers[i]): i for i in range(first, stop)}
    return numbers


def _runs(frames: NDArray[np.int64]) -> list[tuple[int, int]]:
    edges = np.flatnonzero(np.diff(frames)) + 1
    ends = [0, *edges.tolist(), len(frames)]
    return [(a, b) for a, b in itertools.pairwise(ends) if b > a]


def overlap(one: Values, other: Values) -> float:
    """Intersection over union of two boxes (4)."""
    inner = (np.minimum(one[2:], other[2:]) - np.maximum(one[:2], other[:2])).clip(0).prod()
    union = (one[2:] - one[:2]).prod() + (other[2:] - other[:2]).prod() - inner
    return float(inner / union) if union > 0 else 0.0
