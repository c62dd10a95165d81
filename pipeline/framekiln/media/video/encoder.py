"""Videos written from RGB frames: H.264 in MP4, for measurements and generated media."""

from fractions import Fraction
from pathlib import Path
from typing import Self

import av
import numpy as np

from framekiln.contract.columns import Image

_OPTIONS = {"preset": "veryfast", "tune": "zerolatency"}  # without B-frames: a frame leaves as soon as it arrives


class VideoEncoder:
    """A file that takes one frame after another, from the start of a block to its end."""

    def __init__(self, path: Path, size: tuple[int, int], fps: int) -> None:
        """Open a file.

        Args:
            path: of the file; its ending names the container.
            size: height and width in px, both even.
            fps: frames a second.

        Raises:
            OSError: the file cannot be written.
        """
        self._container = av.open(str(path), "w")
        self._track = self._container.add_stream("libx264", rate=fps, options=dict(_OPTIONS))
        self._track.height, self._track.width = size
        self._track.pix_fmt = "yuv420p"
        self._count, self._step = 0, Fraction(1, fps)

    def __enter__(self) -> Self:
        return self

    def add(self, image: Image) -> None:
        """Encode the next frame, h w 3."""
        frame = av.VideoFrame.from_ndarray(np.ascontiguousarray(image), format="rgb24")
        frame.pts, frame.time_base = self._count, self._step
        self._count += 1
        self._container.mux(self._track.encode(frame))

    def __exit__(self, *_: object) -> None:
        """Write all frames still held by the encoder, and close the file."""
        if self._count:
            self._container.mux(self._track.encode(None))
        self._container.close()
