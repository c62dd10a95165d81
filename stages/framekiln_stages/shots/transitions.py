"""Cuts and fades of a video, from a few numbers of each frame, and where shots begin.

A cut is where flow finds no motion that explains the next frame. Every frame of a fade lies on the line from an image
that stands still, or nearly, to one colour.

Shapes: n frames in order. cut float n, the score that frame i + 1 begins a new shot (NaN: unknown); grid float32 n g,
the image at a few pixels, RGB codes 0 to 255. A transition's `first` is the last frame wholly of the old image, `last`
the first one wholly of the new. A cut has last = first + 1.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Values = NDArray[np.float64]  # n
Grid = NDArray[np.float32]  # n g

BLACK, WHITE = 32.0, 223.0  # mean codes: half way from the end of the scale to what is certainly dark or light grey
# Score from which a cut is one, whatever lies around it. In 12 pans of 15 to 80 px of 398 a frame, and at the edges of
# 16 wipes, scores are 0.99 at most; in 6 cuts between such pans 0.98 and more, two of them below 0.993.
SURE_CUT = 0.993
# Least ratio of a cut's residual to the mean of those of two frames on each side, PySceneDetect's AdaptiveDetector's.
TIMES, BESIDE = 3.0, 2
STEADY = 2.0  # codes by which light that decays may rise: noise of a codec
SHORT = 3  # frames: a quicker change is a cut


@dataclass(frozen=True, order=True)
class Transition:
    """A change from one image to another; frames are positions in the file's rows."""

    first: int
    last: int
    kind: str  # cut, fade_out, fade_in or dissolve
    colour: str = ""  # of a fade: black or white

    @property
    def middle(self) -> int:
        """Return the first frame of the new shot."""
        return (self.first + self.last + 1) // 2


def cuts(cut: Values, grid: Grid, threshold: float, shortest: int, flash: float) -> list[Transition]:
    """Return cuts where scores exceed the threshold; of several within `shortest` frames (0: none), the highest.

    A flash is no cut: at most `shortest` frames that differ from those on both sides, while these are the same image
    (within `flash` codes, root mean square). Motion that flow cannot follow is none either; see `_stands_out`.
    """
    above = np.flatnonzero(cut[:-1] > threshold)
    runs = [run.tolist() for run in np.split(above, np.flatnonzero(np.diff(above) > shortest) + 1) if len(run)]
    best = [max(run, key=lambda i: (cut[i], -i)) for run in runs if not _is_flash(grid, run, shortest, flash)]
    return [Transition(i, i + 1, "cut") for i in best if _stands_out(cut, i)]


def _stands_out(cut: Values, at: int) -> bool:
    # Whether the residual is high in itself, or against those beside it. Scores are a function of the residual; only
    # ratios of residuals are needed.
    if cut[at] >= SURE_CUT:
        return True
    score = np.clip(np.nan_to_num(cut[max(0, at - BESIDE) : at + BESIDE + 1]), 0, 1 - 1e-9)
    residual = (score / (1 - score)) ** 0.25
    here = residual[min(at, BESIDE)]
    return bool(here * (len(residual) - 1) >= TIMES * (residual.sum() - here))


def _is_flash(grid: Grid, run: Sequence[int], shortest: int, flash: float) -> bool:
    for a in range(max(0, run[0] - shortest), run[0] + 1):
        for b in range(run[-1] + 1, min(len(grid), a + shortest + 2)):
            # The two frames of a single cut are no evidence: two takes on one set may be similar.
            differs = len(run) > 1 or any(apart(grid[a], grid[m]) > 2 * flash for m in range(a + 1, b))
            if differs and apart(grid[a], grid[b]) < flash:
                return True
    return False


def apart(a: Grid, b: Grid) -> float:
    """Return the root mean square difference of two images, in codes."""
    return float(np.sqrt(((a - b) ** 2).mean()))


def flashes(cut: Values, grid: Grid, threshold: float, shortest: int, flash: float, longest: int) -> list[range]:
    """Return flashes that fill the frame at once and decay, each from the last frame before to the first one after.

    The light falls until the image is the one before (within `flash` codes), in at most `longest` frames and without
    a cut after the first `shortest` ones.
    """
    light, found = grid.mean(axis=1), []
    for a in np.flatnonzero(cut[:-1] > threshold).tolist():
        if light[a + 1] - light[a] <= 2 * flash:
            continue
        for b in range(a + 2, min(a + 1 + longest, len(grid) - 1) + 1):
            if light[b] > light[b - 1] + STEADY or (cut[b - 1] > threshold and b - 1 - a > shortest):
                break
            if apart(grid[a], grid[b]) < flash:
                found.append(range(a, b + 1))
                break
    return found


def fades(contrast: Values, grid: Grid, plain: float, longest: int, bounds: Iterable[int]) -> list[Transition]:
    """Return fades to and from black and white, around runs of frames with a luma deviation below `plain`.

    The distance of a frame from the plain colour is one ramp between two plateaus, by least squares. `bounds` are the
    first frames of shots after cuts, which no fade crosses. Cuts within `SHORT` frames of the plain ones do not count,
    since the end of a quick fade looks like a cut.
    """
    found: list[Transition] = []
    edges = np.flatnonzero(np.diff(np.concatenate([[0], contrast < plain, [0]])))
    for start, stop in edges.reshape(-1, 2).tolist():
        mean = float(grid[start:stop].mean())
        if BLACK < mean < WHITE:
            continue
        away = np.sqrt(((grid - (0.0 if mean <= BLACK else 255.0)) ** 2).mean(axis=1)).astype(np.float64)
        colour = "black" if mean <= BLACK else "white"
        before = max([0, *(b for b in bounds if b < start - SHORT)])
        after = min([len(grid), *(b for b in bounds if b > stop + SHORT)])
        if (ramp := _fit_ramp(away[before:stop][::-1], stop - start, longest)) is not None:
            found.append(Transition(stop - 1 - ramp[1], stop - 1 - ramp[0], "fade_out", colour))
        if (ramp := _fit_ramp(away[start:after], stop - start, longest)) is not None:
            found.append(Transition(start + ramp[0], start + ramp[1], "fade_in", colour))
    return found


def _fit_ramp(away: Values, plain: int, longest: int) -> tuple[int, int] | None:
    """Return the last frame at the colour and the first at the plateau; None without a fade."""
    lowest = away[:plain].min()
    best, found = np.inf, None
    # A frame is plain a little before the colour is reached, so the ramp may begin some frames inside.
    for start in range(max(0, plain - 1 - longest // 4), min(plain + 1, len(away) - SHORT)):
        window = away[start : start + 2 * longest] - lowest
        for length in range(SHORT, min(longest, len(window) - 1) + 1):
            shape = np.minimum(np.arange(len(window)) / length, 1.0)
            height = (shape @ window) / (shape @ shape)
            # over the same frames for all candidates, so that their errors can be compared
            error = ((window - height * shape) ** 2).sum() + ((away[:start] - lowest) ** 2).sum()
            if error < best:
                best, found = error, (start, start + length, height)
    if found is None:
        return None
    start, stop, height = found
    inside = away[start : stop + 1] - lowest
    line = height * np.arange(len(inside)) / (len(inside) - 1)
    straight = np.abs(inside - line).max() < 0.2 * height
    return (start, stop) if height > 0 and straight else None


def boundaries(found: Sequence[Transition], frames: int) -> list[int]:
    """Return the first frames of all shots but the first, in order.

    A fade alone is no boundary; two on one plain stretch meet in the stretch's middle.
    """
    at = [item.middle for item in found if item.kind in ("cut", "dissolve", "wipe")]
    outs, ins = ([item for item in found if item.kind == kind] for kind in ("fade_out", "fade_in"))
    for out in outs:
        after = min((item for item in ins if item.first >= out.last - 1), default=None)
        if after is not None and not any(out.last <= b <= after.first for b in at):
            at.append((out.last + after.first + 1) // 2)
    return sorted({b for b in at if 0 < b < frames})
