"""The display matrix of a video (ISO/IEC 14496-12, 8.3.2) as an EXIF orientation."""

from typing import Any

import numpy as np

# x' = a x + c y, y' = b x + d y, with y downwards
_ORIENTATIONS = {
    (1, 0, 0, 1): 1,
    (-1, 0, 0, 1): 2,
    (-1, 0, 0, -1): 3,
    (1, 0, 0, -1): 4,
    (0, 1, 1, 0): 5,
    (0, 1, -1, 0): 6,
    (0, -1, -1, 0): 7,
    (0, -1, 1, 0): 8,
}


class DisplayMatrix:
    """The orientation of successive frames.

    The matrix is read only when its angle changes: libav's side data, once read, keeps a frame alive in a cycle.
    """

    def __init__(self) -> None:
        self._angle: int | None = None
        self._orientation = 1

    def orientation(self, av_frame: Any) -> int:
        """Return the EXIF orientation of a frame, 1 to 8; 1 for rotations that are no multiple of 90 degrees."""
        if av_frame.rotation != self._angle:
            self._angle = av_frame.rotation
            self._orientation = _from_matrix(av_frame.side_data.get("DISPLAYMATRIX"))
        return self._orientation


def _from_matrix(data: Any) -> int:
    if data is None:
        return 1
    a, b, _, c, d = np.sign(np.frombuffer(data, dtype=np.int32)[:5]).tolist()
    return _ORIENTATIONS.get((a, b, c, d), 1)
