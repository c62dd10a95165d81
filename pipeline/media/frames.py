"""What every decoder hands on, so that cutting clips and filling packets need not know photos from videos."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from pipeline.columns import Image
from pipeline.errors import MediaError
from pipeline.media.segments import Segment

Sound = NDArray[np.int16]  # samples, mono, columns.SOUND_RATE


@dataclass(frozen=True, kw_only=True)
class Frame:
    """One decoded frame, upright."""

    index: int  # in its file, in display order
    height: int  # of `frame`, whether or not it was asked for
    width: int
    images: Mapping[str, Image]  # by pixel column
    unmade: int = 0  # bytes of pixels that were asked for and are not made, since nobody reads them
    time_s: float | None = None  # from the first frame; None for a photo
    sound: Sound | None = (
        None  # from this frame to the next that is kept; None where the file has none, or it was not asked for
    )
    opens: bool = False  # a good place to begin a clip: a key frame
    breaks: bool = False  # frames before it were lost, so no clip may run across

    @property
    def nbytes(self) -> int:
        """Bytes of the pixels that were asked for."""
        return self.unmade + sum(image.nbytes for image in self.images.values())


@dataclass(frozen=True, kw_only=True)
class Lost:
    """A stretch of a file that could not be decoded although decoding went on."""

    index: int  # of the first frame that is missing
    error: MediaError


@dataclass(frozen=True, kw_only=True)
class Opened:
    """A file that could be opened; decoding happens while `frames` is read, and may raise `MediaError` at any frame."""

    media_type: str  # photo, animation or video
    frames: Iterator[Frame | Lost]
    fps: float | None = None
    segment: Segment | None = None  # what its frames are of a film; None: all there are
