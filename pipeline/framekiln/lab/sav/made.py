"""A made video in SA-V's layout, with masks that are known: discs that move over a textured ground.

Object 000 is there from the first frame, and the PNG of one annotated frame is missing. Object 001 appears late.
"""

from __future__ import annotations

from pathlib import Path

import cv2
import numpy as np

from framekiln.lab.sav.scores import Mask

NAME = "sav_made"
EVERY = 4  # frames from an annotated one to the next: 24 and 6 a second
FRAMES = 17  # annotated at 0, 4, ..., 16; the least in which object 001 is scored and SAM's 16 pointers are all used
MISSING = 2 * EVERY  # frame without a PNG of object 000
COLORS = ((220, 60, 40), (40, 90, 230))
RADIUS = 0.12  # of the height


def made_disc(number: int, frame: int, size: tuple[int, int]) -> Mask:
    """Return the true mask of an object in a frame: a disc that moves by 0.4 % of the width a frame, and turns back."""
    height, width = size
    travelled = abs((0.2 + 0.5 * number + 0.004 * frame) % 1.2 - 0.6) + 0.2
    rows, columns = np.mgrid[:height, :width]
    x, y = travelled * width, (0.3 + 0.4 * number) * height
    return (rows - y) ** 2 + (columns - x) ** 2 <= (RADIUS * height) ** 2


def appears(number: int, frames: int) -> int:
    """Return the first frame of an object: 0, or for object 001 the annotated frame after a third of the video."""
    return number * -(-frames // (3 * EVERY)) * EVERY


def write_made_video(root: Path, *, frames: int = FRAMES, size: tuple[int, int] = (180, 320)) -> Path:
    """Write the video and its masks, and return `root`.

    Args:
        root: folder of the layout.
        frames: number of frames, at least 13.
        size: height and width in px.
    """
    images, notes = root / "JPEGImages_24fps" / NAME, root / "Annotations_6fps" / NAME
    images.mkdir(parents=True, exist_ok=True)
    rng = np.random.default_rng(0)
    ground = cv2.resize(rng.integers(60, 200, (12, 20, 3), dtype=np.uint8), size[::-1], interpolation=cv2.INTER_CUBIC)
    for frame in range(frames):
        picture = ground.copy()
        for number, color in enumerate(COLORS):
            if frame < appears(number, frames):
                continue
            mask = made_disc(number, frame, size)
            picture[mask] = color
            if frame % EVERY == 0 and (number, frame) != (0, MISSING):
                _write(notes / f"{number:03}" / f"{frame:05}.png", mask.astype(np.uint8) * 255)
        _write(images / f"{frame:05}.jpg", picture[:, :, ::-1])
    return root


def _write(path: Path, image: np.ndarray) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    cv2.imwrite(str(path), image)
