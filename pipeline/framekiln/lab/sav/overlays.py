"""Pictures of tracked masks beside the truth, for a look at what a score means."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import cv2
import numpy as np

from framekiln.contract.columns import Image
from framekiln.lab.output.results import writing
from framekiln.lab.sav.scores import Mask, outline

_FILL, _LINE = (40, 200, 90), (255, 40, 40)  # RGB of the mask, and of the true outline
_SHARE = 0.5  # of the fill; the image stays visible below
_QUALITY = 80  # of a preview: 15 to 30 kB at 420 px, and outlines stay sharp
_LONGEST = 1280  # px: larger frames are reduced, since outlines and errors are seen at this size


@dataclass(frozen=True, kw_only=True)
class Overlays:
    """A folder with a JPEG for each scored frame of an object."""

    folder: Path

    def __call__(self, stem: str, image: Image, mask: Mask, truth: Mask) -> None:
        """Write the picture of a frame: the mask filled, the true outline as a line.

        Raises:
            OutputError: the file cannot be written.
        """
        picture = draw(image, mask, truth)
        longest = max(picture.shape[:2])
        if longest > _LONGEST:
            size = tuple(round(side * _LONGEST / longest) for side in picture.shape[1::-1])
            picture = cv2.resize(picture, size, interpolation=cv2.INTER_AREA)
        with writing(self.folder / f"{stem}.jpg") as path:
            path.write_bytes(cv2.imencode(".jpg", picture[:, :, ::-1])[1].tobytes())


def preview(path: Path, width: int) -> bytes:
    """Return a picture as a JPEG of at most this width in px; empty where it cannot be read."""
    data = np.frombuffer(path.read_bytes(), np.uint8)
    picture = cv2.imdecode(data, cv2.IMREAD_COLOR) if len(data) else None
    if picture is None:
        return b""
    if picture.shape[1] > width:
        size = (width, max(1, round(picture.shape[0] * width / picture.shape[1])))
        picture = cv2.resize(picture, size, interpolation=cv2.INTER_AREA)
    return cv2.imencode(".jpg", picture, [cv2.IMWRITE_JPEG_QUALITY, _QUALITY])[1].tobytes()


def draw(image: Image, mask: Mask, truth: Mask) -> Image:
    """Return a copy of an image (h w 3) with a mask filled and the outline of the true one, both h w."""
    picture = image.copy()
    picture[mask] = (_SHARE * image[mask] + (1 - _SHARE) * np.array(_FILL)).astype(np.uint8)
    line = cv2.dilate(outline(truth).astype(np.uint8), np.ones((2, 2), np.uint8)).astype(bool)
    picture[line] = _LINE
    return picture
