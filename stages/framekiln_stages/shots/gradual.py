"""Dissolves and wipes: one image becomes another in all tiles at once, or in one tile after the other.

Every frame lies between two images that nearly stand still. In a dissolve all tiles progress equally, and contrast
sinks while two unrelated images are mixed, even if they move (Alattar 1993). In a wipe an edge crosses the image at a
steady speed, and each tile changes while the edge crosses it. A pan or a passer-by does neither.

Shapes: n frames in order; grid float32 n g, the image at 4 by 4 pixels (row, column, RGB), codes 0 to 255; times n, s.
"""

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from framekiln_stages.shots.transitions import BETWEEN, FEW, INNER, PHASES, ROUNDING_S, Grid, Transition, Values, apart

FittedSpan = tuple[float, int, int, str]  # an error, first and last frame, and the shape
Shape = Callable[[Grid], Grid]
"""Maps shares of the time (t, 0 to 1) to each tile's share of its change (t g)."""

# Largest error of a dissolve, as in `_Frames.error`. Chosen on 8 dissolves between moving clips, two cameras and six
# pans, with at most 0.19; elsewhere in those clips, in fast pans and at pop-ups it is at least 0.28.
DISSOLVE_OFF = 0.24
# Largest error of a wipe. On 8 wipes between the same clips: 0.05 to 0.16, one 0.20; elsewhere 0.18 and more.
WIPE_OFF = 0.17
LEAST_S = 0.16  # s of the shortest dissolve: four frames at 25 a second
WIPE_S = 0.24  # s of a wipe: a quicker edge looks like a pop-up
LOST = 0.3  # weight of contrast that a dissolve should lose but keeps
STRAY = 0.4  # share of the distance, for frames at quarters of the way in a first search; chosen on those clips too
# Correlation of two images' tiles above which they are one image, under other light or partly faded. Of 453 pairs of
# different photos far enough apart, none is above 0.80. Of 324 photos paired with darker, brighter or partly faded
# versions, none is below 0.95.
SAME_IMAGE = 0.9
OTHER_LIGHT = 3.0  # least ratio of contrasts, two stops; below it `changes.is_lit` recognises one image in other light
EVIDENCE_S = 0.16  # s on each side that must nearly stand still; at least a frame
# Degrees by which two neighbours in a dissolve may differ, both together. A mixture's correlations with its images are
# the cosines of angles that add up to 90 degrees. In 73 dissolves of 0.5 to 2 s at 1, 2 and 5 frames a second they had
# 93 at most, around 5 shots of one frame 108 and more.
MOST_TURN = 100.0
LENGTHS = 12  # lengths tried in a first search
SIDE = 4  # tiles in a row


def _make_wipe(order: NDArray[np.int64]) -> Shape:
    """Return the shape of a wipe that reaches tiles (16) in the order of these numbers (0 to 3)."""
    start = np.repeat(order, 3).astype(np.float32)
    return lambda share: np.clip(SIDE * share[:, None] - start, 0, 1).astype(np.float32)


_ROWS, _COLUMNS = (np.asarray(axis.ravel(), np.int64) for axis in np.indices((SIDE, SIDE)))
DISSOLVE = "dissolve"
SHAPES: Mapping[str, Shape] = {
    DISSOLVE: lambda share: np.repeat(share[:, None], SIDE * SIDE * 3, axis=1),
    "right": _make_wipe(_COLUMNS),
    "left": _make_wipe(SIDE - 1 - _COLUMNS),
    "down": _make_wipe(_ROWS),
    "up": _make_wipe(SIDE - 1 - _ROWS),
}
"""A dissolve, and wipes by the direction in which the edge moves."""


def gradual(
    grid: Grid, contrast: Values, times: Values, least: float, longest: float, busy: NDArray[np.bool_]
) -> list[Transition]:
    """Return dissolves and wipes of up to `longest` seconds between images at least `least` codes (RMS) apart.

    A brightening or partly faded image is on a straight line too, but between two states of itself.

    Args:
        grid: n g.
        contrast: n, standard deviation of luma.
        least: codes.
        times: n.
        longest: s; the shortest dissolve has `LEAST_S`, the shortest wipe `WIPE_S`.
        busy: n, true for frames of other transitions, which none may include. The straightest of overlapping
            transitions remains.
    """
    frames = _Frames(grid, contrast, times)
    rough = _select_apart(
        [
            (frames.error(first, last, shape), first, last, shape)
            for length in np.geomspace(LEAST_S, longest, LENGTHS)
            for shape in SHAPES
            for first, last in frames.find_straight(length, least, shape)
        ],
        busy,
    )
    refined = [frames.refined(span, longest) for span in rough]
    kept = _select_apart([span for span in refined if frames.is_transition(span, least)], busy)
    return [Transition(first, last, shape if shape == DISSOLVE else "wipe") for _, first, last, shape in kept]


def same_image(a: Grid, b: Grid) -> bool:
    """Return whether two images (g) differ only by brightness and contrast; see `SAME_IMAGE`."""
    one, other = a - a.mean(), b - b.mean()
    size = float(np.sqrt((one**2).sum() * (other**2).sum()))
    return float((one * other).sum()) > SAME_IMAGE * max(size, 1e-6)


def is_other_light(grid: Grid, contrast: Values, first: int) -> bool:
    """Return whether a frame and the next are one image in very different light, as between a strobe's flashes."""
    low, high = sorted(contrast[first : first + 2].tolist())
    return high >= OTHER_LIGHT * low and same_image(grid[first], grid[first + 1])


def is_mixture(residuals: Values) -> bool:
    """Return whether residuals between a dissolve's frames are those of a mixture, and not of a shot's two cuts."""
    turns = np.degrees(np.arccos(np.clip(1 - residuals, -1, 1)))
    return bool(np.sort(turns)[-2:].sum() <= MOST_TURN)


def _select_apart(found: list[FittedSpan], busy: NDArray[np.bool_]) -> list[FittedSpan]:
    """Keep the straightest of overlapping transitions, and none that includes a busy frame."""
    taken, kept = busy.copy(), []
    for span in sorted(found):
        _, first, last, _ = span
        if not taken[first : last + 1].any():
            taken[first : last + 1] = True
            kept.append(span)
    return kept


class _Frames:
    """The frames of a file, with errors of transitions between them."""

    def __init__(self, grid: Grid, contrast: Values, times: Values) -> None:
        self._grid, self._variance, self._times = grid, contrast**2, times

    def find_straight(self, length: float, least: float, shape: str) -> list[tuple[int, int]]:
        """Return frames `length` s apart with different images, and the shape at quarters of the way between them."""
        last = np.searchsorted(self._times, self._times + length - ROUNDING_S)
        first = np.flatnonzero((last < len(last)) & (last > np.arange(len(last)) + INNER))
        last, start = last[first], self._grid[first]
        step = self._grid[last] - start
        reach = np.sqrt((step**2).mean(axis=1))
        straight = np.zeros(len(first), np.bool_)
        for shifts in PHASES if (last - first <= FEW).any() else PHASES[:1]:
            late, lasting = self._measure(first, last, shifts)
            near = (reach >= least) & ((sum(shifts) == 0) | (last - first <= FEW))
            for quarter in (0.25, 0.5, 0.75):
                at = np.clip(np.searchsorted(self._times, late + quarter * lasting - ROUNDING_S), first + 1, last - 1)
                share = np.clip((self._times[at] - late) / lasting, 0, 1).astype(np.float32)
                off = self._grid[at] - start - SHAPES[shape](share) * step
                near &= np.sqrt((off**2).mean(axis=1)) < STRAY * reach
            straight |= near
        pairs = zip(first[straight].tolist(), last[straight].tolist(), strict=True)
        return [(a, b) for a, b in pairs if not same_image(self._grid[a], self._grid[b])]

    def _measure(self, first: Any, last: Any, shifts: tuple[float, float]) -> tuple[Any, Any]:
        """Return begin and length in s of transitions, with ends given as shares of an interval inside still frames."""
        times = self._times
        begin = times[first] + shifts[0] * (times[first + 1] - times[first])
        return begin, times[last] - shifts[1] * (times[last] - times[last - 1]) - begin

    def error(self, first: int, last: int, shape: str) -> float:
        """Return the smallest error of a transition between still frames, relative to its kind's largest error."""
        shifts = PHASES if last - first <= FEW else PHASES[:1]
        limit = DISSOLVE_OFF if shape == DISSOLVE else WIPE_OFF
        return min(self._measure_error(first, last, shape, by) for by in shifts) / limit

    def _measure_error(self, first: int, last: int, shape: str, shifts: tuple[float, float]) -> float:
        """Return the error of a transition between still frames: its distance from the shape, relative to the images'.

        A dissolve's error includes the difference of its contrast from that of two mixed images.
        """
        times, beside = self._times, EVIDENCE_S + ROUNDING_S
        low = max(0, min(int(np.searchsorted(times, times[first] - beside)), first - 1))
        high = min(len(times) - 1, max(int(np.searchsorted(times, times[last] + beside)) - 1, last + 1))
        begin, lasting = self._measure(first, last, shifts)
        share = np.clip((times[low : high + 1] - begin) / lasting, 0, 1).astype(np.float32)
        one, other = self._grid[low : first + 1].mean(axis=0), self._grid[last : high + 1].mean(axis=0)
        off = self._grid[low : high + 1] - one - SHAPES[shape](share) * (other - one)
        square, reach = (off**2).mean(axis=1), max(1e-6, apart(one, other))
        line = float(np.sqrt(square.mean())) / reach
        if shape != DISSOLVE:  # still frames beside it are no evidence that few frames inside show a wipe
            return max(line, float(np.sqrt(square[first - low + 1 : last - low].mean())) / reach)
        # A mixture of two unrelated images has the variance (1 - s)^2 a + s^2 b. The error is relative to the loss;
        # `lost` is the share of the expected loss that is found.
        a, b = self._variance[low : first + 1].mean(), self._variance[last : high + 1].mean()
        loss = share * (1 - share) * max(1e-6, a + b)
        found = (1 - share) * a + share * b - self._variance[low : high + 1]
        lost = float(found @ loss / (loss @ loss))
        stray = float(np.sqrt(((found - lost * loss) ** 2).sum() / (loss**2).sum()))
        return float(np.sqrt(line**2 + stray**2 + (LOST * max(0.0, 1 - lost)) ** 2))

    def refined(self, span: FittedSpan, longest: float) -> FittedSpan:
        """Return the best fit near a transition."""
        best, (_, _, _, shape) = span, span
        for _ in range(4):
            _, first, last, _ = best
            spread = max(2, last - first)
            tried = [(start, last) for start in range(max(0, first - spread), first + spread + 1)]
            tried += [(first, stop) for stop in range(last - spread, min(last + spread, len(self._grid) - 1) + 1)]
            tried += [(first - by, last + by) for by in range(1, min(spread, first, len(self._grid) - 1 - last) + 1)]
            for a, b in tried:
                lasting = float(self._times[b] - self._times[a])
                if b - a > INNER and LEAST_S - ROUNDING_S <= lasting <= longest + ROUNDING_S:
                    best = min(best, (self.error(a, b, shape), a, b, shape))
        return best

    def is_transition(self, span: FittedSpan, least: float) -> bool:
        """Return whether a fit is near enough to its shape, and between different images."""
        error, first, last, shape = span
        long = shape == DISSOLVE or self._times[last] - self._times[first] >= WIPE_S - ROUNDING_S
        one, other = self._grid[first], self._grid[last]
        way = (self._grid[first + 1 : last] - one) @ (other - one) / max(1e-6, float(((other - one) ** 2).sum()))
        inside = bool((np.abs(way - 0.5) < 0.5 - BETWEEN).any())
        return error < 1 and long and inside and apart(one, other) >= least and not same_image(one, other)
