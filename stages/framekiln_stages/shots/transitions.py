"""Cuts and fades of a video, from a few numbers of each frame, and where shots begin.

A cut is a place where flow finds no motion that explains the next frame. Every frame of a fade lies on the line from an
image that nearly stands still to one colour.

Shapes: n frames in order. cut float n, the score that frame i + 1 begins a new shot (NaN: unknown); grid float32 n g,
the image at a few pixels, RGB codes 0 to 255; times n, s. A transition's `first` is the last frame wholly of the old
image, `last` the first one wholly of the new. A cut has last = first + 1. Limits are in seconds, so that they hold at
any frame rate.
"""

import itertools
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Values = NDArray[np.float64]  # n
Grid = NDArray[np.float32]  # n g

BLACK, WHITE = 32.0, 223.0  # mean codes: half way from the end of the scale to what is certainly dark or light grey
# Score that is a cut in any surroundings. In 12 pans of 15 to 80 px of 398 a frame, and at the edges of 16 wipes,
# scores are at most 0.92; in 6 cuts between takes and 6 between such pans at least 0.993.
SURE_CUT = 0.986
# Least ratio of a cut's residual to the mean on the busier side, as in PySceneDetect's AdaptiveDetector. Over both
# sides together, it is no higher at the end of a fast pan. A side is two frames at 25 a second, and at least one.
TIMES, BESIDE_S = 3.0, 0.08
SEEN = 0.25  # share of an image's contrast from which it is recognised under a flash
STEADY = 2.0  # codes by which decaying light may rise: noise of a codec
SHORT_S = 0.12  # a quicker change is a cut
PLATEAU_S = 0.4  # least time beside a fade in which the image must stay nearly as light
INNER = 1  # least frames inside a gradual transition: without one it cannot be told from a cut
# With few frames, a transition's start is hardly seen: it lasts up to two intervals less than from still to still
# frame. These shares of an interval are tried for a later begin and an earlier end, if it has up to `FEW` of them.
PHASES, FEW = tuple(itertools.product((0.0, 0.25, 0.5, 0.75), (0.0, 0.25, 0.5, 0.75))), 8
BETWEEN = 0.12  # least share of the way from either image of a frame inside; otherwise the change is a cut
ROUNDING_S = 0.002  # times in files are multiples of 1 ms or finer


@dataclass(frozen=True, order=True)
class Transition:
    """A change from one image to another; frames are positions in the file's rows."""

    first: int
    last: int
    kind: str  # cut, fade_out, fade_in or dissolve
    colour: str = ""  # colour of a fade: black or white

    @property
    def middle(self) -> int:
        """Return the first frame of the new shot."""
        return (self.first + self.last + 1) // 2


def cuts(cut: Values, grid: Grid, times: Values, threshold: float, shortest: float, flash: float) -> list[Transition]:
    """Return cuts with scores above the threshold; of several within `shortest` seconds (0: none), the highest.

    A flash is no cut: its frames last at most `shortest` and differ from both sides, which show the same image (within
    `flash` codes, root mean square). A single frame may last twice as long, since its content may cover only a part of
    that. Motion that flow cannot follow is no cut either; see `_stands_out`.
    """
    above = np.flatnonzero(cut[:-1] > threshold)
    lasting = np.where(np.diff(above) == 1, 2 * shortest, shortest) + ROUNDING_S
    runs = [run.tolist() for run in np.split(above, np.flatnonzero(np.diff(times[above]) > lasting) + 1) if len(run)]
    best = [max(run, key=lambda i: (cut[i], -i)) for run in runs if not _is_flash(grid, times, run, shortest, flash)]
    residual = residuals(cut)
    return [Transition(i, i + 1, "cut") for i in best if cut[i] >= SURE_CUT or _stands_out(residual, times, i)]


def residuals(cut: Values) -> Values:
    """Return residuals (n) from scores, relative to the residual that scores 0.5; 0 for unknown ones."""
    score = np.clip(np.nan_to_num(cut), 0, 1 - 1e-9)
    return np.asarray((score / (1 - score)) ** 0.25)


def _stands_out(residual: Values, times: Values, at: int) -> bool:
    first, last = np.searchsorted(times, times[at] + np.array([-1, 1]) * (BESIDE_S + ROUNDING_S)).tolist()
    sides = residual[min(first, max(at - 1, 0)) : at], residual[at + 1 : max(last, at + 2)]
    return bool(residual[at] >= TIMES * max(float(side.mean()) for side in sides if side.size))


def _is_flash(grid: Grid, times: Values, run: Sequence[int], shortest: float, flash: float) -> bool:
    for a in range(int(np.searchsorted(times, times[run[0]] - shortest - ROUNDING_S)), run[0] + 1):
        for b in range(max(run[-1] + 1, a + 1), len(grid)):
            if times[b] - times[a + 1] > (2 if b == a + 2 else 1) * shortest + ROUNDING_S:
                break
            # The two frames of a single cut are no evidence: two takes on one set may be similar.
            differs = len(run) > 1 or any(apart(grid[a], grid[m]) > 2 * flash for m in range(a + 1, b))
            if differs and apart(grid[a], grid[b]) < flash:
                return True
    return False


def apart(a: Grid, b: Grid) -> float:
    """Return the root mean square difference of two images, in codes."""
    return float(np.sqrt(((a - b) ** 2).mean()))


def flashes(
    cut: Values, grid: Grid, times: Values, threshold: float, shortest: float, flash: float, longest: float
) -> list[range]:
    """Return flashes that fill the frame at once and decay, each from the last frame before to the first after.

    The first lit frame is no darker anywhere than the one before. Within `longest` seconds the light falls, and the
    earlier image appears again, under other light, before another cut. The light falls up to the end.
    """
    light, found = grid.mean(axis=1), []
    for a in np.flatnonzero(cut[:-1] > threshold).tolist():
        if light[a + 1] - light[a] <= 2 * flash or (grid[a + 1] - grid[a]).min() < -flash:
            continue
        end = a
        for b in range(a + 2, int(np.searchsorted(times, times[a + 1] + longest + ROUNDING_S))):
            # with few frames a second, a frame may be the only lit one
            is_cut = b > a + 2 and cut[b - 1] > threshold and times[b - 1] - times[a] > shortest + ROUNDING_S
            if is_cut or (end > a and light[b] > light[b - 1] + STEADY):
                break
            falls = light[b] < light[a + 1 : b].max() - flash
            if end > a or (falls and _is_lit(grid[a], grid[b], flash)):
                end = b
            if light[end] - light[a] < flash and end > a:
                break
        if end > a:
            found.append(range(a, end + 1))
    return found


def _is_lit(image: Grid, other: Grid, flash: float) -> bool:
    """Return whether another image is this one under other light: within `flash` codes, for each remaining code."""
    one, two = image - image.mean(), other - other.mean()
    gain = float((one @ two) / max(float(one @ one), 1e-6))
    return gain >= SEEN and apart(gain * one, two) < flash * min(gain, 1.0)


def fades(
    contrast: Values, grid: Grid, times: Values, plain: float, longest: float, bounds: Iterable[int]
) -> list[Transition]:
    """Return fades to and from black and white, around runs of frames with a luma deviation below `plain`.

    A frame's distance from the plain colour is one ramp between two plateaus, by least squares. `bounds`: first frames
    of shots after cuts, which no fade crosses. Cuts within `SHORT_S` of the plain frames do not count: the end of a
    quick fade looks like a cut.
    """
    found: list[Transition] = []
    edges = np.flatnonzero(np.diff(np.concatenate([[0], contrast < plain, [0]])))
    for start, stop in edges.reshape(-1, 2).tolist():
        mean = float(grid[start:stop].mean())
        if BLACK < mean < WHITE:
            continue
        away = np.sqrt(((grid - (0.0 if mean <= BLACK else 255.0)) ** 2).mean(axis=1)).astype(np.float64)
        colour = "black" if mean <= BLACK else "white"
        before = max([0, *(b for b in bounds if times[b] < times[start] - SHORT_S - ROUNDING_S)])
        after = min([len(grid), *(b for b in bounds if b > stop and times[b] > times[stop] + SHORT_S + ROUNDING_S)])
        back = slice(stop - 1, before - 1 if before else None, -1)
        if (ramp := _fit_ramp(away[back], -times[back], stop - start, longest)) is not None:
            found.append(Transition(stop - 1 - ramp[1], stop - 1 - ramp[0], "fade_out", colour))
        if (ramp := _fit_ramp(away[start:after], times[start:after], stop - start, longest)) is not None:
            found.append(Transition(start + ramp[0], start + ramp[1], "fade_in", colour))
    return found


def _fit_ramp(away: Values, times: Values, plain: int, longest: float) -> tuple[int, int] | None:
    """Return the last frame at the colour and the first at the plateau; None without a fade."""
    lowest = away[:plain].min()
    best, found = np.inf, None
    # A frame is plain a little before the colour is reached, so the ramp may begin some frames inside.
    early = int(np.searchsorted(times, times[plain - 1] - longest / 4 - ROUNDING_S))
    for start in range(early, min(plain + 1, len(away) - INNER)):
        since, above = times[start:] - times[start], away[start:] - lowest
        shortest, end = np.searchsorted(since, [SHORT_S - ROUNDING_S, longest + ROUNDING_S]).tolist()
        # to a frame that is not plain: among plain ones the smallest error means no fade at all
        for length in range(max(INNER + 1, shortest, plain - start), min(end, len(since))):
            beside = max(1.5 * since[length], PLATEAU_S)  # later it may be another image
            seen = int(np.searchsorted(since, since[length] + beside + ROUNDING_S))
            for late, soon in PHASES if length <= FEW else PHASES[:1]:
                begin, last = late * since[1], soon * (since[length] - since[length - 1])
                shape = np.clip((since[:seen] - begin) / (since[length] - last - begin), 0.0, 1.0)
                height = (shape @ above[:seen]) / (shape @ shape)
                off = ((above[:seen] - height * shape) ** 2).sum() + ((away[:start] - lowest) ** 2).sum()
                if (error := off / (seen + start)) < best:
                    best, found = error, (start, above[: length + 1] / max(height, 1e-6), shape[: length + 1])
    if found is None:
        return None
    start, ramp, line = found
    straight = np.abs(ramp - line).max() < 0.2 and (np.abs(ramp[1:-1] - 0.5) < 0.5 - BETWEEN).any()
    return (start, start + len(ramp) - 1) if straight else None


def boundaries(found: Sequence[Transition], plain: NDArray[np.bool_]) -> list[int]:
    """Return the first frames of all shots but the first, in order.

    A plain stretch between two images counts once, in its middle, if one of its fades was found. With few frames a
    second the other fade may be missed. `plain`: n, true for frames of one colour.
    """
    at = [item.middle for item in found if item.kind in ("cut", "dissolve", "wipe")]
    ends = [item.last if item.kind == "fade_out" else item.first for item in found if item.kind.startswith("fade")]
    for start, stop in np.flatnonzero(np.diff(np.concatenate([[0], plain, [0]]))).reshape(-1, 2).tolist():
        faded = any(start - 1 <= end <= stop for end in ends) and start > 0 and stop < len(plain)
        if faded and not any(start <= b <= stop for b in at):
            at.append((start + stop) // 2)
    return sorted({b for b in at if 0 < b < len(plain)})
