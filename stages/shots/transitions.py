"""Transitions between the shots of a video: cuts, fades and dissolves, from a few numbers of each frame.

A cut is where flow finds no motion that explains the next frame. A gradual transition is a straight line between two
images that stand still, or nearly. Every frame of a dissolve lies on the line from one image to the other, and every
frame of a fade on the line to one colour. A pan or a passer-by follows a curve.

Shapes: n frames in order. cut float n, the score that frame i + 1 begins a new shot (NaN: unknown); grid float32 n g,
the image at a few pixels, RGB codes 0 to 255. A transition's `first` is the last frame wholly of the old image, `last`
the first one wholly of the new. A cut has last = first + 1.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Values = NDArray[np.float64]  # n
Grid = NDArray[np.float32]  # n g
Span = tuple[float, int, int]  # an error, first and last frame

BLACK, WHITE = 32.0, 223.0  # mean codes: half way from the end of the scale to what is certainly dark or light grey
SHORT = 3  # frames: a quicker change is a cut
# Root mean square distance from a straight dissolve, over that of its two images: 0.003 to 0.10 for dissolves of moving
# shots. Of 1,490 other frames, the smallest are 0.012, a real dissolve, and 0.124, a bird before a moving camera.
MOST_OFF = 0.11
# Correlation of two images' tiles above which they are one image, under other light or partly faded. Of 453 pairs of
# different photos that are apart enough, none is above 0.80; of 324 photos beside themselves darker, brighter or partly
# faded to black or white, none is below 0.95.
SAME_IMAGE = 0.9
EVIDENCE = 4  # frames on each side of a dissolve that must stand still, or nearly


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
    """Return cuts where scores exceed the threshold; of several within `shortest` frames, the highest.

    A flash is no cut: at most `shortest` frames that differ from those on both sides, while these are the same image
    (within `flash` codes, root mean square).
    """
    above = np.flatnonzero(cut[:-1] > threshold)
    runs = [run.tolist() for run in np.split(above, np.flatnonzero(np.diff(above) > shortest) + 1) if len(run)]
    best = [max(run, key=lambda i: (cut[i], -i)) for run in runs if not _is_flash(grid, run, shortest, flash)]
    return [Transition(i, i + 1, "cut") for i in best]


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


def same_image(a: Grid, b: Grid) -> bool:
    """Tell whether two images (g) differ by brightness and contrast alone; see `SAME_IMAGE`."""
    one, other = a - a.mean(), b - b.mean()
    size = float(np.sqrt((one**2).sum() * (other**2).sum()))
    return float((one * other).sum()) > SAME_IMAGE * max(size, 1e-6)


def fades(contrast: Values, grid: Grid, plain: float, longest: int, bounds: Iterable[int]) -> list[Transition]:
    """Return fades to and from black and white, around runs of frames with a luma deviation below `plain`.

    The distance of a frame from the plain colour is one ramp between two plateaus, by least squares. `bounds` are the
    first frames of shots after cuts, which no fade crosses. Cuts within `SHORT` frames of the plain ones do not count,
    since the end of a quick fade looks like a cut.
    """
    found: list[Transition] = []
    for start, stop in _stretches(contrast < plain):
        mean = float(grid[start:stop].mean())
        if BLACK < mean < WHITE:
            continue
        away = np.sqrt(((grid - (0.0 if mean <= BLACK else 255.0)) ** 2).mean(axis=1)).astype(np.float64)
        colour = "black" if mean <= BLACK else "white"
        before = max([0, *(b for b in bounds if b < start - SHORT)])
        after = min([len(grid), *(b for b in bounds if b > stop + SHORT)])
        if (ramp := _ramp(away[before:stop][::-1], stop - start, longest)) is not None:
            found.append(Transition(stop - 1 - ramp[1], stop - 1 - ramp[0], "fade_out", colour))
        if (ramp := _ramp(away[start:after], stop - start, longest)) is not None:
            found.append(Transition(start + ramp[0], start + ramp[1], "fade_in", colour))
    return found


def _ramp(away: Values, plain: int, longest: int) -> tuple[int, int] | None:
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


def dissolves(grid: Grid, least: float, longest: int, busy: NDArray[np.bool_]) -> list[Transition]:
    """Return dissolves of 4 to `longest` frames between images at least `least` codes (root mean square) apart.

    An image that gets brighter, or is partly faded, is on a straight line too, but between two states of itself.
    `busy` marks frames of other transitions, over which none reaches. Of overlapping ones the straightest remains.
    """
    lengths = np.unique(np.rint(np.geomspace(4, longest, 12)).astype(int))
    spans = [(at, at + k) for k in lengths[lengths < len(grid)].tolist() for at in _straight(grid, k, least)]
    spans = [span for span in spans if not same_image(*(grid[frame] for frame in span))]
    rough = _apart_in_time([(_error(grid, *span), *span) for span in spans], busy)
    refined = [_refined(grid, first, last, longest) for _, first, last in rough]
    good = [item for item in refined if item[0] < MOST_OFF and apart(grid[item[1]], grid[item[2]]) >= least]
    good = [item for item in good if not same_image(grid[item[1]], grid[item[2]])]
    return [Transition(first, last, "dissolve") for _, first, last in _apart_in_time(good, busy)]


def _apart_in_time(found: list[Span], busy: NDArray[np.bool_]) -> list[Span]:
    """Return the straightest of overlapping dissolves, without those that include a busy frame."""
    taken, kept = busy.copy(), []
    for error, first, last in sorted(found):
        if not taken[first : last + 1].any():
            taken[first : last + 1] = True
            kept.append((error, first, last))
    return kept


def _straight(grid: Grid, length: int, least: float) -> list[int]:
    """Return a mask of frames i that differ from i + length, with evenly spaced quarters on the line between."""
    start = grid[:-length]
    step = grid[length:] - start
    reach = np.sqrt((step**2).mean(axis=1))
    good = reach >= least
    for share in (0.25, 0.5, 0.75):
        at = round(share * length)
        off = grid[at : at + len(start)] - start - (at / length) * step
        good &= np.sqrt((off**2).mean(axis=1)) < 0.25 * reach
    return [int(i) for i in np.flatnonzero(good)]


def _refined(grid: Grid, first: int, last: int, longest: int) -> Span:
    """Return the best fit near a dissolve: its error relative to the distance, first and last frame."""
    best = (_error(grid, first, last), first, last)
    spread = max(1, (last - first) // 2)
    for _ in range(3):
        _, first, last = best
        tried = [(start, last) for start in range(max(0, first - spread), first + spread + 1)]
        tried += [(first, stop) for stop in range(last - spread, min(last + spread, len(grid) - 1) + 1)]
        best = min([best, *((_error(grid, a, b), a, b) for a, b in tried if SHORT <= b - a <= longest)])
    return best


def _error(grid: Grid, first: int, last: int) -> float:
    """Return the error of a dissolve between still frames, relative to its distance."""
    low, high = max(0, first - EVIDENCE), min(len(grid) - 1, last + EVIDENCE)
    share = np.clip((np.arange(low, high + 1) - first) / (last - first), 0, 1).astype(np.float32)[:, None]
    one, other = grid[low : first + 1].mean(axis=0), grid[last : high + 1].mean(axis=0)
    off = grid[low : high + 1] - one - share * (other - one)
    return float(np.sqrt((off**2).mean()) / max(1e-6, apart(one, other)))


def boundaries(found: Sequence[Transition], frames: int) -> list[int]:
    """Return the first frames of all shots but the first, in order.

    A fade alone is no boundary; two on one plain stretch meet in the stretch's middle.
    """
    at = [item.middle for item in found if item.kind in ("cut", "dissolve")]
    outs, ins = ([item for item in found if item.kind == kind] for kind in ("fade_out", "fade_in"))
    for out in outs:
        after = min((item for item in ins if item.first >= out.last - 1), default=None)
        if after is not None and not any(out.last <= b <= after.first for b in at):
            at.append((out.last + after.first + 1) // 2)
    return sorted({b for b in at if 0 < b < frames})


def _stretches(mask: NDArray[np.bool_]) -> list[tuple[int, int]]:
    """Return start and end (exclusive) of each run of true values."""
    edges = np.flatnonzero(np.diff(np.concatenate([[0], mask.astype(np.int8), [0]])))
    return [(int(a), int(b)) for a, b in edges.reshape(-1, 2)]
