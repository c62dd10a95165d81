"""Coverings of faces: sunglasses and masks remove the contrast of eyes and mouth, or have a pattern of their own.

Shapes: n faces; an aligned face is uint8 112 112 3.
"""

from __future__ import annotations

from typing import Any

import cv2
import numpy as np

from framekiln.contract import Image
from framekiln.device import torch

# x, y, half the width and half the height in px of the aligned face, at the places of `TEMPLATE`.
EYES_AND_MOUTH = ((38, 52, 11, 6), (73, 52, 11, 6), (56, 92, 18, 8))
INSIDE = (56, 68, 36, 38)  # the face without hair and background
EYES = ((38, 52, 10, 10), (73, 52, 10, 10))  # with brows above, and with cheeks in the lower third
JAW = ((33, 84, 10, 10), (79, 84, 10, 10), (56, 104, 16, 7))  # skin beside and below the mouth
NOISE = 4.0  # levels, added to the contrast of the face
LIMIT = 0.3  # contrast of a covered face
# Least change of luma a px in the smoothest part of the jaw, as a share of the face's contrast, of a pattern. Least
# lightness of the cheeks over the eyes, as a share of their contrast: mirrors show a light sky over a dark ground.
# Chosen on 300 people of Labeled Faces in the Wild with drawn coverings, tried on 150 others (accuracy.md).
PATTERNED, MIRRORED = 0.25, -0.7


def contrast(face: Image) -> float:
    """Return the least contrast of eyes and mouth as a share of the face's (deviations of luma); 0: covered.

    A pattern on the jaw, or eyes that are lighter than the cheeks, lower it. By eyes and mouth 4 % of 1,282 photos of
    Labeled Faces in the Wild had less than 0.3. With drawn masks 99 % had, with drawn sunglasses 86 %, with hats to the
    brows 4 %.
    """
    return float(_measure(cv2.cvtColor(face, cv2.COLOR_RGB2GRAY)[None].astype(np.float64), np)[0])


def contrast_on_device(luma: torch.Tensor) -> torch.Tensor:
    """Return `contrast` of faces from their luma on a device (n 112 112), n float64."""
    measured: torch.Tensor = _measure(luma.double(), torch)
    return measured


def _measure(luma: Any, library: Any) -> Any:
    """Return `contrast` (n) from luma (n 112 112, float64) by a library, which is NumPy or torch.

    Maps of the whole face come first, since a GPU waits for launches, not for pixels.
    """
    squares = luma * luma
    rows = luma[:, :-2] + luma[:, 1:-1] + luma[:, 2:]
    soft = (rows[:, :, :-2] + rows[:, :, 1:-1] + rows[:, :, 2:]) / 9  # means of 3 by 3 px, which hide noise
    right, down = abs(soft[:, :, 2:] - soft[:, :, :-2]), abs(soft[:, 2:] - soft[:, :-2])
    spots = (*EYES_AND_MOUTH, INSIDE, *EYES)
    means, powers = (library.stack([_cut(part, spot).mean((1, 2)) for spot in spots]) for part in (luma, squares))
    deviations = abs(powers - means**2) ** 0.5
    face, eyes = deviations[3] + NOISE, deviations[4:] + NOISE
    cheeks = library.stack([_cut(luma, eye)[:, 14:].mean((1, 2)) for eye in EYES])  # the lower 6 of 20 lines
    lighter = (cheeks - means[4:]) * (20 / 14) / eyes  # than the upper 14
    changes = library.stack(
        [right[:, y - h : y + h - 2, x - w : x + w - 4].mean((1, 2)) for x, y, w, h in JAW]
        + [down[:, y - h : y + h - 4, x - w : x + w - 2].mean((1, 2)) for x, y, w, h in JAW]
    )
    jaw = library.amin((changes[:3] + changes[3:]) / 2, 0) / face
    others = [LIMIT * PATTERNED / (jaw + 1e-9), LIMIT + (lighter.mean(0) - MIRRORED) / 2]
    return library.amin(library.stack([library.amin(deviations[:3], 0) / face, *others]), 0).clip(min=0)


def _cut(luma: Any, spot: tuple[int, int, int, int]) -> Any:
    x, y, wide, high = spot
    return luma[:, y - high : y + high, x - wide : x + wide]
