"""Matching of people between frames, and smoothing of their landmarks.

Shapes: p people of a frame, t paths, m frames of a path. A `Body` is float64 p 33 5: x, y, z in px of the frame,
visibility, presence. Times are in seconds.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from framekiln_stages.shared.masks import box_iou
from framekiln_stages.shared.skeleton import COCO_17

Body = NDArray[np.float64]  # p 33 5
Values = NDArray[np.float64]

# Standard deviations of annotated keypoints over the root of a person's area, in the order of COCO_17: cocoeval.py of
# pycocotools. Similarity takes twice that as the unit of distance.
SIGMAS = np.array([26, 25, 25, 35, 35, 79, 79, 72, 72, 62, 62, 107, 107, 87, 87, 89, 89]) / 1000

SPEED_CUTOFF = 1.0  # Hz, of the speed in the one-euro filter: the paper's constant
# Farthest move to the next frame of somebody whom no likeness finds, in box diagonals, and in diagonals a second: a
# walk is 0.6 to 0.8 a second. At 25 frames a second this is 0.04, which likeness covers anyway.
FARTHEST, FASTEST = 1.0, 1.0
SAME_SIZE = 1.5  # ratio of the boxes' diagonals up to which it may be the same person a moment later
BESIDE = 0.1  # IoU of boxes: two standing people, 0.3 of their height apart; chosen on artificial people only


class TrackLimits(NamedTuple):
    """The limits of a match and of a gap in `follow`."""

    least: float  # likeness of a match
    bridge: float  # s, the longest gap of a path
    hidden: float  # s, the longest gap of a path that ended beside somebody still visible


@dataclass
class Path:
    """One person through frames of one shot."""

    frames: list[int]  # positions among the frames of the shot
    poses: list[int]  # index of the person in these frames
    body: Body  # 33 5, in the last of these
    speed: Values = field(default_factory=lambda: np.zeros(2))  # px a second
    behind: "Path | None" = None  # the person whose box this one's overlapped when it was missed
    offset: Values = field(default_factory=lambda: np.zeros(2))  # px from the other's middle, at that time

    def append(self, frame: int, pose: int, body: Body, elapsed: float) -> None:
        """Add a match; `elapsed` is the time in s since the path's last one."""
        speed = np.median(body[:, :2] - self.body[:, :2], axis=0) / elapsed
        # Half of the last speed: a single difference carries the noise of both frames.
        self.speed = speed if len(self.frames) == 1 else (self.speed + speed) / 2
        self.frames.append(frame)
        self.poses.append(pose)
        self.body = body
        self.behind = None

    def predict(self, elapsed: float, bridge: float) -> Body:
        """Return the person's landmarks after this time in s (33 5).

        The speed is constant. After `bridge` seconds beside somebody, the person keeps its place beside them.
        """
        body = self.body.copy()
        if self.behind is not None and elapsed > bridge:
            middle = np.median(self.behind.body[:, :2], axis=0) + self.offset
            body[:, :2] += middle - np.median(body[:, :2], axis=0)
            return body
        body[:, :2] += self.speed * elapsed
        return body


def follow(bodies: Sequence[Body], times: Values, limits: TrackLimits) -> list[Path]:
    """Return paths through the frames of one shot, in the order of their first frames.

    People are assigned to paths with the largest sum of likenesses (Kuhn 1955); likenesses below `least` do not count.
    A path ends `bridge` seconds after its person was last seen, at the earliest after the next frame. If the person was
    missed beside somebody still visible, it ends after `hidden` seconds. The order of people in a frame changes
    nothing.
    """
    from scipy.optimize import linear_sum_assignment

    paths: list[Path] = []
    live: list[Path] = []
    for frame, body in enumerate(bodies):
        elapsed = {id(path): float(times[frame] - times[path.frames[-1]]) for path in live}
        live = [path for path in live if _is_awaited(path, elapsed[id(path)], frame, limits)]
        order = np.lexsort(body[:, ::-1, :2].reshape(len(body), -1).T).tolist() if len(body) else []
        predicted = np.array([path.predict(elapsed[id(path)], limits.bridge) for path in live]).reshape(-1, 33, 5)
        values = likeness(predicted, body[order])
        values[values < limits.least] = 0.0
        near = nearness(predicted, body[order], [elapsed[id(path)] * (path.frames[-1] == frame - 1) for path in live])
        # likeness decides; nearness counts only for the remaining people
        values = np.where(values > 0, values, near * limits.least / (1 + values.size))
        pairs = zip(*linear_sum_assignment(values, maximize=True), strict=True)
        matches = {column: live[row] for row, column in pairs if values[row, column] > 0}
        for column, pose in enumerate(order):
            if path := matches.get(column):
                path.append(frame, pose, body[pose], max(elapsed[id(path)], 1e-3))
            else:
                live.append(Path([frame], [pose], body[pose]))
                paths.append(live[-1])
        _hide_missed(live, frame)
    return paths


def _is_awaited(path: Path, elapsed: float, frame: int, limits: TrackLimits) -> bool:
    longest = limits.bridge if path.behind is None else max(limits.bridge, limits.hidden)
    return elapsed <= longest or path.frames[-1] == frame - 1


def _hide_missed(live: Sequence[Path], frame: int) -> None:
    # beside the person that they overlapped in the last frame
    seen = [path for path in live if path.frames[-1] == frame]
    for path in live:
        if seen and path.frames[-1] == frame - 1:
            overlap = box_iou(_find_boxes(path.body[None]), _find_boxes(np.array([other.body for other in seen])))[0]
            if overlap.max() >= BESIDE:
                path.behind = other = seen[int(overlap.argmax())]
                path.offset = np.median(path.body[:, :2], axis=0) - np.median(other.body[:, :2], axis=0)


def likeness(paths: Body, people: Body) -> Values:
    """Return similarities of paths and people, 0 to 1 (t p): means of keypoint similarity and box overlap.

    Similarity alone loses a runner: the keypoints move by a tenth of the body from frame to frame. Overlap alone
    confuses two people who embrace.
    """
    return (similarity(paths, people) + box_iou(_find_boxes(paths), _find_boxes(people))) / 2


def nearness(paths: Body, people: Body, elapsed: Sequence[float]) -> Values:
    """Return the nearness of people (p) to paths (t), 0 to 1 (t p): 0 if nobody gets there in the elapsed time (t, s).

    With few frames a second somebody moves more than likeness allows.
    """
    if not len(paths) or not len(people):
        return np.zeros((len(paths), len(people)))
    apart = np.median(paths[:, None, :, :2] - people[None, :, :, :2], axis=2)
    ratio = sizes(paths)[:, None] / np.maximum(sizes(people), 1e-9)
    reach = np.minimum(np.array(elapsed) * FASTEST, FARTHEST) * sizes(paths)
    near = 1 - np.hypot(*np.moveaxis(apart, -1, 0)) / np.maximum(reach, 1e-9)[:, None]
    return np.asarray(np.where((ratio < SAME_SIZE) & (ratio > 1 / SAME_SIZE), near.clip(0), 0.0))


def durations(times: Values) -> Values:
    """Return how long each frame of a shot lasts in s: until the next; the last one as long as the one before."""
    steps = np.diff(times)
    return np.append(steps, steps[-1:] if len(steps) else 0.0)


def similarity(paths: Body, people: Body) -> Values:
    """Return COCO's object keypoint similarities (t p), by boxes' areas, weighted by visibility."""
    points = list(COCO_17)
    a, b = paths[:, None, points], people[None, :, points]
    squared = ((a[..., :2] - b[..., :2]) ** 2).sum(-1)
    areas = [(boxes[:, 2:] - boxes[:, :2]).prod(-1) for boxes in (_find_boxes(paths), _find_boxes(people))]
    area = np.maximum(np.maximum.outer(*areas), 1.0)
    closeness = np.exp(-squared / (2 * area[..., None] * (2 * SIGMAS) ** 2))
    weight = a[..., 3] * b[..., 3] + 1e-6  # never 0 in all
    return np.asarray((closeness * weight).sum(-1) / weight.sum(-1))


def _find_boxes(body: Body) -> Values:
    points = body[..., :2]
    return np.concatenate([points.min(1), points.max(1)], -1) if len(body) else np.empty((0, 4))


def sizes(body: Body) -> Values:
    """Return the diagonal of each person's box (p), in px."""
    boxes = _find_boxes(body)
    return np.asarray(np.hypot(*(boxes[:, 2:] - boxes[:, :2]).T))


def filled(values: Values, seen: Sequence[int], times: Values) -> Values:
    """Return values (m ...): at the positions in `seen` (m' ...) the given ones, and others interpolated in time.

    `times` has all positions from the first to the last of `seen`.
    """
    known = times[np.array(seen) - seen[0]]
    flat = values.reshape(len(values), -1)
    columns = [np.interp(times, known, column) for column in flat.T]
    return np.stack(columns, axis=1).reshape(len(times), *values.shape[1:])


def one_euro(values: Values, times: Values, min_cutoff: float, beta: float) -> Values:
    """Apply the one-euro filter (Casiez, Roussel, Vogel 2012) along the first axis (m ...).

    A low-pass of first order whose cutoff grows with speed: min_cutoff + beta |speed| Hz, speed in units a second and
    itself filtered at `SPEED_CUTOFF`. Frames may be unevenly spaced.
    """
    result = values.copy()
    speed = np.zeros_like(values[0])
    for i in range(1, len(values)):
        step = max(float(times[i] - times[i - 1]), 1e-6)
        speed = speed + _compute_weight(np.float64(SPEED_CUTOFF), step) * ((values[i] - result[i - 1]) / step - speed)
        weight = _compute_weight(min_cutoff + beta * np.abs(speed), step)
        result[i] = result[i - 1] + weight * (values[i] - result[i - 1])
    return result


def _compute_weight(cutoff: Values | np.float64, step: float) -> Values:
    # `cutoff` in Hz, `step` in s
    return np.asarray(1.0 / (1.0 + 1.0 / (2 * math.pi * cutoff * step)))


def jitter(points: Values, seen: Sequence[int], times: Values) -> float | None:
    """Return the jitter of points (m k 2): the deviation of equivalent white noise, in their units.

    It is the root mean square distance of each point from the line in time between its neighbours, divided by the same
    for noise of 1. Steady motion has none. Only frames in `seen` with both neighbours count; None without any.
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
