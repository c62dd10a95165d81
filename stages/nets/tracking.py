"""Who in one frame is who in the next, and landmarks that neither tremble nor lag.

Shapes: p people of a frame, t paths, m frames of a path. A `Body` is float64 p 33 5: x, y, z in px of the frame,
visibility, presence. Times are in seconds.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from stages.nets.skeleton import COCO_17

Body = NDArray[np.float64]  # p 33 5
Values = NDArray[np.float64]

# Standard deviations of annotated keypoints over the root of a person's area, in the order of COCO_17: cocoeval.py of
# pycocotools. Similarity takes twice that as the unit of distance.
SIGMAS = np.array([26, 25, 25, 35, 35, 79, 79, 72, 72, 62, 62, 107, 107, 87, 87, 89, 89]) / 1000


@dataclass
class Path:
    """One person through frames of one shot."""

    frames: list[int]  # where seen, as positions among the frames of the shot
    poses: list[int]  # which of the people there
    body: Body  # 33 5, as last seen
    speed: Values = field(default_factory=lambda: np.zeros(2))  # px a second

    def see(self, frame: int, pose: int, body: Body, since: float) -> None:
        """Go on with a person; `since` is the time since the path was last seen."""
        now = np.median(body[:, :2] - self.body[:, :2], axis=0) / since
        # Half of the last speed: a single difference carries the noise of both frames.
        self.speed = now if len(self.frames) == 1 else (self.speed + now) / 2
        self.frames.append(frame)
        self.poses.append(pose)
        self.body = body

    def ahead(self, time: float) -> Body:
        """Where the person would be by now at a steady speed (33 5)."""
        moved = self.body.copy()
        moved[:, :2] += self.speed * time
        return moved


def follow(bodies: Sequence[Body], times: Values, least: float, bridge: float) -> list[Path]:
    """Paths through the frames of one shot, in the order of their first frames.

    People are given to paths so that the sum of likenesses is greatest (Kuhn 1955); none below `least` counts. A path
    waits `bridge` seconds for its person, and always for the next frame. The order of people in a frame plays no part.
    """
    from scipy.optimize import linear_sum_assignment

    paths: list[Path] = []
    live: list[Path] = []
    for frame, body in enumerate(bodies):
        since = {id(p): float(times[frame] - times[p.frames[-1]]) for p in live}
        live = [p for p in live if since[id(p)] <= bridge or p.frames[-1] == frame - 1]
        order = np.lexsort(body[:, ::-1, :2].reshape(len(body), -1).T).tolist() if len(body) else []
        values = likeness(np.array([p.ahead(since[id(p)]) for p in live]).reshape(-1, 33, 5), body[order])
        values[values < least] = 0.0
        taken = {b: a for a, b in zip(*linear_sum_assignment(values, maximize=True), strict=True) if values[a, b] > 0}
        new: list[Path] = []
        for place, pose in enumerate(order):
            if place in taken:
                path = live[taken[place]]
                path.see(frame, pose, body[pose], max(since[id(path)], 1e-3))
            else:
                new.append(Path([frame], [pose], body[pose]))
        paths += new
        live += new
    return paths


def likeness(paths: Body, people: Body) -> Values:
    """How well each path fits each person, 0 to 1 (t p): the mean of keypoint similarity and overlap of boxes.

    Similarity alone loses a runner, whose keypoints are a body's tenth away in the next frame; overlap alone confuses
    two people who embrace.
    """
    return (similarity(paths, people) + overlap(paths, people)) / 2


def similarity(one: Body, other: Body) -> Values:
    """COCO's object keypoint similarity of everybody with everybody (t p), by boxes' areas, weighted by visibility."""
    points = list(COCO_17)
    a, b = one[:, None, points], other[None, :, points]
    squared = ((a[..., :2] - b[..., :2]) ** 2).sum(-1)
    area = np.maximum(np.maximum(_areas(one)[:, None], _areas(other)[None]), 1.0)
    alike = np.exp(-squared / (2 * area[..., None] * (2 * SIGMAS) ** 2))
    weight = a[..., 3] * b[..., 3] + 1e-6  # never nothing at all
    return np.asarray((alike * weight).sum(-1) / weight.sum(-1))


def overlap(one: Body, other: Body) -> Values:
    """Intersection over union of everybody's box with everybody's (t p)."""
    a, b = _boxes(one)[:, None], _boxes(other)[None]
    sides = np.minimum(a[..., 2:], b[..., 2:]) - np.maximum(a[..., :2], b[..., :2])
    common = sides.clip(0).prod(-1)
    return np.asarray(common / np.maximum(_areas(one)[:, None] + _areas(other)[None] - common, 1e-9))


def _boxes(body: Body) -> Values:
    points = body[..., :2]
    return np.concatenate([points.min(1), points.max(1)], -1) if len(body) else np.empty((0, 4))


def _areas(body: Body) -> Values:
    boxes = _boxes(body)
    return np.asarray((boxes[:, 2:] - boxes[:, :2]).prod(-1))


def sizes(body: Body) -> Values:
    """The diagonal of each person's box (p), px."""
    boxes = _boxes(body)
    return np.asarray(np.hypot(*(boxes[:, 2:] - boxes[:, :2]).T))


def filled(values: Values, seen: Sequence[int], times: Values) -> Values:
    """Values (m' ...) of the positions in `seen`, with what lies between interpolated in time (m ...).

    `times` has all positions from the first to the last of `seen`.
    """
    known = times[np.array(seen) - seen[0]]
    flat = values.reshape(len(values), -1)
    made = [np.interp(times, known, column) for column in flat.T]
    return np.stack(made, axis=1).reshape(len(times), *values.shape[1:])


def one_euro(values: Values, times: Values, min_cutoff: float, beta: float, speed_cutoff: float = 1.0) -> Values:
    """The one-euro filter (Casiez, Roussel, Vogel 2012) along the first axis (m ...).

    A low-pass of first order whose cutoff grows with speed: min_cutoff + beta |speed| Hz, speed in units a second and
    itself filtered at `speed_cutoff` Hz, the paper's constant. Frames may be unevenly spaced.
    """
    result = values.copy()
    speed = np.zeros_like(values[0])
    for i in range(1, len(values)):
        step = max(float(times[i] - times[i - 1]), 1e-6)
        speed = speed + _weight(np.float64(speed_cutoff), step) * ((values[i] - result[i - 1]) / step - speed)
        weight = _weight(min_cutoff + beta * np.abs(speed), step)
        result[i] = result[i - 1] + weight * (values[i] - result[i - 1])
    return result


def _weight(cutoff: Values | np.float64, step: float) -> Values:
    """Of the new value, in a low-pass with a cutoff in Hz and a step in seconds."""
    return np.asarray(1.0 / (1.0 + 1.0 / (2 * math.pi * cutoff * step)))


def jitter(points: Values, seen: Sequence[int], times: Values) -> float | None:
    """How much points (m k 2) tremble: the deviation of the white noise that would give the same, in their units.

    It is the root mean square distance of each from the line in time between its neighbours, divided by what unit noise
    gives there; steady motion has none. Over frames seen together with both neighbours; None where there is none.
    """
    known = set(seen)
    at = np.array([i - seen[0] for i in seen if {i - 1, i + 1} <= known], np.int64)
    if not at.size:
        return None
    before, after = times[at] - times[at - 1], times[at + 1] - times[at]
    share = (before / np.maximum(before + after, 1e-9))[:, None, None]
    off = points[at] - (1 - share) * points[at - 1] - share * points[at + 1]
    gain = 1 + (1 - share) ** 2 + share**2
    return float(np.sqrt((off**2 / gain).mean()))
