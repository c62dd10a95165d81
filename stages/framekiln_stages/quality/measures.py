"""Formulas for the technical quality of one image: sharpness, noise, blocks of a codec, bars, black and even frames.

None of them knows what the picture shows. docs/measuring/accuracy.md lists the artificial pictures that each puts in
order.

Shapes: luma uint8 h w (BT.601, codes 0 to 255).
"""

import math
from collections.abc import Iterator

import cv2
import numpy as np
from numpy.typing import NDArray

Luma = NDArray[np.uint8]

STEP = 7  # px: window for an edge's contrast; it holds a whole step with a deviation of 1.1 px
WHOLE = 1.3  # px
EDGE_CONTRAST = 24  # codes: smaller steps are texture and the ringing of codecs
OVER_BLOCKS = 5.0  # codes for each unit of blockiness: borders of blocks are steps too
OVER_NOISE = 12.0  # deviations: at 6, noise on a picture blurred by 3 px reads as 1 px; at 24, sharp noisy ones as soft
# A border, a frame, a seam or a thin letter is a line: of 3 x 3 squares of 8 px it crosses at most six, detail all.
SQUARE, CROSSED = 8, 6  # px; squares
SHARPEST = 0.1  # share of places with detail: a portrait before a blurred background is sharp, a sticker is not
FEWEST_PLACES = 6  # a quantile of fewer places is chance
OWN_BLUR = (
    0.8  # px of the measurement itself: a slope is taken over two pixels, and the worst of several squares counts
)
SHARP = 0.4  # px: deviation of an edge in a sharp picture: half a pixel of light and half of an optical filter
MIDDLE = 1024  # px of either side in which blocks are searched: 1.5 ms
BAND = 32  # px of height
MOST_PIXELS = 1_000_000  # a larger image is measured in evenly spaced bands: 10 ms
CELL = 16  # px: side of the squares for measuring noise
QUIETEST = 0.1  # share of squares: those without texture
QUIETER = 0.9  # their share of even noise, since chance makes some squares quieter
SECOND_DIFFERENCE = np.array([[1, -2, 1], [-2, 4, -2], [1, -2, 1]], np.float32)  # Immerkaer 1996
BLOCK = 8  # px: side of the blocks of JPEG, MPEG-2, MPEG-4 and VP8
BLACK_CODE, BLACK_SHARE = 32, 0.98  # ffmpeg's blackdetect: 0.1 of the way from black to white
EVEN = 3.0  # codes, deviation of the whole: a plain wall or sky has more


def edge_blur(luma: Luma, noise: float, blocks: float = 0.0) -> float | None:
    """Return the deviation in px of the Gaussian blur of the sharpest places with detail; None without detail.

    A step of contrast c, blurred by a deviation s, has the slope c / (s sqrt(2 pi)) in its middle.
    `noise`: deviation in codes; `blocks`: blockiness. Steps that these alone explain do not count.
    """
    scale, least = 1.0, max(OVER_NOISE * noise, OVER_BLOCKS * blocks)
    while min(luma.shape) >= 4 * STEP:
        blurs = np.concatenate([_measure_places(band, max(EDGE_CONTRAST, least)) for band in _cut_bands(luma)])
        # A wider step exceeds its window, and seems narrower. A smaller picture shows it whole.
        if blurs.size >= FEWEST_PLACES and (found := float(np.quantile(blurs, SHARPEST))) <= WHOLE:
            return scale * math.sqrt(max(0.0, found**2 - OWN_BLUR**2))
        luma = cv2.resize(luma, None, fx=0.5, fy=0.5, interpolation=cv2.INTER_AREA)
        scale, least = scale * 2, least / 2
    return None


def _cut_bands(luma: Luma) -> Iterator[Luma]:
    """Yield the image, or evenly spaced bands of it with `MOST_PIXELS` in all."""
    every = math.ceil(luma.size / MOST_PIXELS)
    height = BAND if every > 1 else luma.shape[0]
    for top in range(0, luma.shape[0], BAND * every if every > 1 else height):
        yield luma[top : top + height]


def _measure_places(luma: Luma, least: float) -> NDArray[np.float32]:
    """Return the blur in px of each 3 x 3 squares, if their edges of at least `least` codes are no line."""
    rows, columns = (side // SQUARE for side in luma.shape)
    if min(rows, columns) < 3:
        return np.empty(0, np.float32)
    window = np.ones((STEP, STEP), np.uint8)
    contrast = cv2.subtract(cv2.dilate(luma, window), cv2.erode(luma, window))
    across, down = (cv2.Sobel(luma, cv2.CV_32F, *order, ksize=1, scale=0.5) for order in ((1, 0), (0, 1)))
    slope = np.sqrt(np.square(across) + np.square(down))  # cv2.magnitude's last bits depend on the array's address
    steep = np.divide(slope, contrast, out=np.zeros_like(slope), where=contrast >= least)
    lines = steep[: rows * SQUARE, : columns * SQUARE].reshape(rows, SQUARE, -1).max(axis=1)
    squares = np.maximum.reduceat(lines, np.arange(0, columns * SQUARE, SQUARE), axis=1)
    places = np.lib.stride_tricks.sliding_window_view(squares, (3, 3)).reshape(-1, 9)
    steepest = np.partition(places, 8 - CROSSED)[:, 8 - CROSSED]
    return np.asarray(1 / (math.sqrt(2 * math.pi) * steepest[steepest > 0]), np.float32)


def noise(luma: Luma) -> float | None:
    """Return the deviation of the noise in codes, in the quietest tenth of the picture; None if all is clipped.

    Texture does not count if a tenth of the picture has none. Squares at black or white have no noise left.
    """
    squares = [_measure_squares(band) for band in _cut_bands(luma) if min(band.shape) >= CELL]
    inside = np.concatenate(squares) if squares else np.empty(0)
    return math.sqrt(math.pi / 2) / 6 / QUIETER * float(np.quantile(inside, QUIETEST)) if inside.size else None


def _measure_squares(luma: Luma) -> NDArray[np.float32]:
    """Return the mean second difference of each unclipped square."""
    bends = cv2.convertScaleAbs(cv2.filter2D(luma, cv2.CV_16S, SECOND_DIFFERENCE, borderType=cv2.BORDER_REFLECT_101))
    power, level = (_average_squares(values) for values in (bends, luma))
    return power[(level > 8) & (level < 247)]


def _average_squares(values: Luma) -> NDArray[np.float32]:
    """Return the means of squares, without those cut by the lower and right edge."""
    rows, columns = (side // CELL for side in values.shape)
    lines = values[: rows * CELL, : columns * CELL].reshape(rows, CELL, -1).sum(axis=1, dtype=np.uint16)
    sums = np.add.reduceat(lines, np.arange(0, columns * CELL, CELL), axis=1)  # at most 65,280
    return sums.astype(np.float32) / np.float32(CELL**2)


def blockiness(luma: Luma) -> float | None:
    """Return the excess of steps at borders of 8 x 8 blocks over those between; 0 without blocks.

    It is the larger of both axes. The grid may begin anywhere, so that cropped pictures show it too. None: too small,
    or without any step.
    """
    if min(luma.shape) < 4 * BLOCK:
        return None
    top, left = (max(0, side - MIDDLE) // 2 for side in luma.shape)
    middle = np.ascontiguousarray(luma[top : top + MIDDLE, left : left + MIDDLE])
    return max(_measure_grid(middle), _measure_grid(cv2.transpose(middle)))


def _measure_grid(luma: Luma) -> float:
    # A border of blocks is a step between two even sides; near a step of the picture, the sides bend too.
    steps = cv2.absdiff(luma[:, 1:], luma[:, :-1])
    beside = cv2.addWeighted(steps[:, 2:], 0.5, steps[:, :-2], 0.5, 0)
    excess = cv2.reduce(cv2.subtract(steps[:, 1:-1], beside), 0, cv2.REDUCE_AVG, dtype=cv2.CV_32F)[0]
    phases = excess[: len(excess) // BLOCK * BLOCK].reshape(-1, BLOCK).mean(axis=0)
    top = int(phases.argmax())
    rest = float(np.delete(phases, top).mean())
    return float(phases[top] - rest) / (rest + 0.25)


def is_black(luma: Luma) -> bool:
    """Return whether nearly all of the picture is nearly black."""
    return int(np.count_nonzero(luma > BLACK_CODE)) <= (1 - BLACK_SHARE) * luma.size


def is_uniform(luma: Luma, noise: float) -> bool:
    """Return whether the picture has one even tone, except for noise."""
    deviation = float(cv2.meanStdDev(luma)[1][0, 0])
    return deviation**2 - noise**2 < EVEN**2


def change(luma: Luma, following: Luma) -> float:
    """Return the mean difference to the next frame in codes, in the most changed square of 16 x 16 px."""
    off = cv2.absdiff(luma, following)
    return float(_average_squares(off).max()) if min(off.shape) >= CELL else float(off.mean())
