"""The score of a cut before the next frame: how little motion and light explain that frame.

Most neighbours are alike after a rough flow in few pixels. The others are examined more closely: by a finer flow,
without stripes of light, and at last for a change of light alone.

Shapes: h, w of the computed size; a flow field is float32 h w 2, the displacement (x right, y down) in px from one
frame to the next.
"""

import itertools
import math
from collections.abc import Callable, Iterator, Sequence

import cv2
import numpy as np
from numpy.typing import NDArray

from framekiln_stages.shared.grey_images import Gray, even, reduced, without_stripes

Field = NDArray[np.float32]
Flows = Callable[[Gray, Gray], Field]

# Short side in px. At 224 px the finer flow takes five times as long, and residuals of cuts and of motion lie no
# further apart on the material of `Features.Config.cut_residual`.
SIDE = 112
SMALLEST = 16  # px: DIS matches patches of 8 px on a pyramid
# Residual of the rough flow below which the finer one is not computed. It is under a third of `half`, so that a cut
# stands out (`transitions.TIMES`) whichever flow its neighbours used. Of 343 cuts none is below 0.18.
ALIKE = 0.06
# Least share of a frame's variance explained by a rising curve of tones, under other light. Chosen on ten photos and
# four videos at -4 to +4 stops, with a camera that moves by up to 20 px of 398: 0.75 to 0.99 unless most is clipped. Of
# 302 cuts it is at most 0.73, between two speakers before one wall; between different photos 0.46. Of as many held-out
# cuts none passes for light. Of 210 changes of light there nine in ten do, and six score as a cut, four of them at a
# tenth of the codes.
LIT = 0.75
BRIGHTER = 1.25  # least ratio of mean codes under other light, two thirds of a stop: less keeps the residual low
# Codes of deviation below which a frame has too little detail to compare. With 2, a nearly white flash began no decay
# that `transitions.flashes` follows, and became a fade.
PLAIN = 4.0
# Share of the height without which the rest of the frame shows that only a caption or banner came or went. Of 194 cuts
# and jumps in eleven real videos none has a residual of the rest below 0.15; all 57 captions mistaken for cuts do.
BAND = 0.38
DETAILED = 0.5  # least detail of the rest relative to the frame: an empty sky is alike in any two shots
# Angles of a lamp's bands on a rolling shutter, with the camera upright or on its side; `without_stripes` finds none as
# wide as a sixth of the frame. The residual without the means of rows or columns is below this limit in 51 of 55 pairs
# of 16 photos that would be cuts, and in 41 of 42 of 16 others. Of 500 cuts none is below 0.19.
SHUTTERS, BANDED = (math.pi / 2, 0.0), 0.1
TONES, THUMBNAIL, BAR = 24, (32, 18), 24  # most code of a bar: black of TV range is 16


def cut_scores(images: Sequence[Gray], half: float) -> Iterator[float | None]:
    """Yield the score of a cut between neighbours, 0 to 1; None if their sizes differ or are below 16 px.

    Args:
        images: frames in order, h w each.
        half: residual that scores 0.5.
    """
    presets = (cv2.DISOPTICAL_FLOW_PRESET_FAST, cv2.DISOPTICAL_FLOW_PRESET_MEDIUM)
    rough, fine = (_make_flows(preset) for preset in presets)
    for now, then in itertools.pairwise(reduced(image, SIDE) for image in images):
        if now.shape != then.shape or min(now.shape) < SMALLEST:
            yield None
            continue
        left = residual(now, then, rough(now, then))
        if left >= ALIKE:
            left = residual(now, then, fine(now, then))
        if left >= half and (plain := without_stripes(now, then)) is not None:
            left = min(left, residual(*plain, fine(*plain)))
        is_none = left >= half and (
            is_lit(now, then, rough) or is_captioned(now, then, fine) or is_banded(now, then, fine)
        )
        yield 0.0 if is_none else score(left, half)


def _make_flows(preset: int) -> Flows:
    dis = cv2.DISOpticalFlow.create(preset)
    return lambda now, then: np.asarray(dis.calc(now, then, None), np.float32)


def residual(now: Gray, then: Gray, flow: Field) -> float:
    """Return the part of a frame that the next one, warped back, lacks: 0 equal, 1 unrelated, 2 negative.

    It is 1 minus the local correlation of the two (windows of 1/18 of the short side), weighted by local contrast. A
    change of exposure does not change the correlation. A distance of colour histograms was tried and left out. Two
    stops more light raise it to 0.87. It is 0.13 at a real cut between two dark faces, but 0.38 inside a fade.
    """
    window = (max(7, min(now.shape) // 18 | 1),) * 2
    a, b = now.astype(np.float32), warped(then, flow).astype(np.float32)
    mean_a, mean_b = cv2.blur(a, window), cv2.blur(b, window)
    var_a = np.maximum(cv2.blur(a * a, window) - mean_a * mean_a, 0)
    var_b = np.maximum(cv2.blur(b * b, window) - mean_b * mean_b, 0)
    floor = 30.0  # a deviation of 5.5 codes: parts with little but compression noise count as equal
    correlation = (cv2.blur(a * b, window) - mean_a * mean_b + floor) / np.sqrt((var_a + floor) * (var_b + floor))
    weight = np.sqrt(var_a) + np.sqrt(var_b) + 1.0
    return 1.0 - float(np.average(correlation, weights=weight))


def score(value: float, half: float) -> float:
    """Return a residual as a score from 0 to 1, 0.5 at `half`, by the Hill curve r^4 / (r^4 + half^4)."""
    power = max(0.0, value) ** 4
    return power / (power + half**4)


def is_lit(now: Gray, then: Gray, flows: Flows) -> bool:
    """Return whether the next frame is this one under other light: its tones are a rising function of this one's.

    Clipped light is such a function too, unlike in the correlation. Flow between the frames without their light removes
    motion.
    """
    shown = (now, warped(then, flows(even(now), even(then))))
    small = [cv2.resize(image, THUMBNAIL, interpolation=cv2.INTER_AREA) for image in shown]
    bright = np.maximum(*small) > BAR  # black bars are the same function of anything
    if not bright.any():
        return False
    one, other = (image[bright.any(axis=1)][:, bright.any(axis=0)].ravel() for image in small)
    low, high = sorted((float(one.mean()), float(other.mean())))
    if high < BRIGHTER * low or min(one.std(), other.std()) < PLAIN:
        return False
    return max(_explain(one, other), _explain(other, one)) >= LIT


def is_captioned(now: Gray, then: Gray, flows: Flows) -> bool:
    """Return whether all of the next frame, except a band at the bottom or the top, is this one, moved."""
    rows, least = round(len(now) * (1 - BAND)), DETAILED * min(_measure_detail(now), _measure_detail(then))
    for rest in (slice(rows), slice(-rows, None)):
        if (
            _measure_detail(now[rest]) >= least
            and residual(now[rest], then[rest], flows(now[rest], then[rest])) < ALIKE
        ):
            return True
    return False


def is_banded(now: Gray, then: Gray, flows: Flows) -> bool:
    """Return whether the next frame is this one, moved, under other bands of light along its rows or columns."""
    plains = (without_stripes(now, then, angle) for angle in SHUTTERS)
    return any(plain is not None and residual(*plain, flows(*plain)) < BANDED for plain in plains)


def _measure_detail(image: Gray) -> float:
    return float(cv2.absdiff(image, cv2.blur(image, (7, 7))).mean())


def _explain(one: Gray, other: Gray) -> float:
    """Return the share of the variance explained by a rising curve of tones."""
    tones = np.array_split(other[np.argsort(one, kind="stable")].astype(np.float32), TONES)
    means = np.array([part.mean() for part in tones])
    curve = (np.maximum.accumulate(means) + np.minimum.accumulate(means[::-1])[::-1]) / 2
    off = sum(float(((part - level) ** 2).sum()) for part, level in zip(tones, curve, strict=True))
    return 1.0 - off / (other.size * float(other.var()))


def warped(then: Gray, flow: Field) -> Gray:
    """Return the next frame warped back by the flow to it."""
    height, width = then.shape
    to_x = flow[..., 0] + np.arange(width, dtype=np.float32)
    to_y = flow[..., 1] + np.arange(height, dtype=np.float32)[:, None]
    moved = cv2.remap(then, to_x, to_y, cv2.INTER_LINEAR, borderMode=cv2.BORDER_REPLICATE)
    return np.asarray(moved, np.uint8)
