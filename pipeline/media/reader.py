"""A file's frames for the second pass: decoded again, one after the other, where a whole video is looked at.

The rule is that of the first pass, by the same code, so numbers of frames agree with its rows. What the first pass
wrote down as lost is missing here too, and is not told again.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from pipeline.columns import Image
from pipeline.media.config import DecodeConfig
from pipeline.media.decode import frames_of
from pipeline.media.store import Media


@dataclass(frozen=True, kw_only=True)
class Reader:
    """See `pipeline.stage.Media`."""

    media: Media
    config: DecodeConfig

    def frames(self, pixels: str) -> Iterator[tuple[int, Image]]:
        """Number and picture of each frame; memory does not grow with their number."""
        for frame in frames_of(self.media, (pixels,), self.config):
            yield frame.index, frame.images[pixels]
