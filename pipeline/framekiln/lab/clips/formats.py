"""Formats of clips, made clips of them, and files of one's own."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from framekiln.contract.columns import Image
from framekiln.contract.errors import InputError, MediaError, Reason
from framekiln.media.config import DecodeConfig
from framekiln.media.files import MediaFile
from framekiln.media.packets.decode import decode_frames
from framekiln.media.video.encoder import VideoEncoder

MADE_FRAMES = 48  # of a made clip, which is read again from its start as often as needed


@dataclass(frozen=True, kw_only=True)
class ClipFormat:
    """The size of a clip's frames, and how many views each shows side by side."""

    name: str
    height: int  # px
    width: int
    fps: int
    eyes: int = 1


FORMATS = {
    item.name: item
    for item in (
        ClipFormat(name="1080p", height=1080, width=1920, fps=60),
        ClipFormat(name="4k", height=2160, width=3840, fps=30),
        ClipFormat(name="stereo", height=1080, width=3840, fps=60, eyes=2),  # 1080p for each eye
    )
}


@dataclass(frozen=True, kw_only=True)
class Clip:
    """A file with frames of one format."""

    path: Path
    format: ClipFormat

    def images(self) -> Iterator[Image]:
        """Yield frames (h w 3) without end, from the file's start again after its last one.

        Raises:
            MediaError: the file cannot be decoded, or has no frame.
        """
        media = _media(self.path)
        while True:
            frames = 0
            for frame in decode_frames(media, ("frame",), DecodeConfig()):
                frames += 1
                yield frame.images["frame"]
            if not frames:
                raise MediaError(Reason.EMPTY, f"{self.path.name} has no frame")


def made_clip(item: ClipFormat, folder: Path, frames: int = MADE_FRAMES) -> Clip:
    """Write a clip of a format: a texture that moves by 4 px a frame, so that its encoder has work as in a film."""
    rng = np.random.default_rng(0)
    coarse = rng.integers(0, 256, (item.height // 8 + 1, item.width // 8 + 1, 3), dtype=np.uint8)
    ground = coarse.repeat(8, axis=0).repeat(8, axis=1)[: item.height, : item.width]
    path = folder / f"{item.name}.mp4"
    with VideoEncoder(path, (item.height, item.width), item.fps) as file:
        for number in range(frames):
            file.add(np.roll(ground, 4 * number, axis=1))
    return Clip(path=path, format=item)


def clip_of_file(path: Path, eyes: int) -> Clip:
    """Return the clip of a user's file, with the size of its first frame.

    Raises:
        InputError: the file does not exist or cannot be decoded.
    """
    try:
        frame = next(iter(decode_frames(_media(path), ("frame",), DecodeConfig())))
    except (OSError, MediaError, StopIteration) as error:
        reason = str(error) or "it has no frame"
        raise InputError(
            f"--clip {str(path)!r} cannot be decoded ({reason}); give {', '.join(FORMATS)} or a video.",
            code="FK-BENCH-CLIP",
        ) from error
    size = ClipFormat(name=path.name, height=frame.height, width=frame.width, fps=30, eyes=eyes)
    return Clip(path=path, format=size)


def _media(path: Path) -> MediaFile:
    return MediaFile(media_id=path.name, path=str(path.absolute()), size=path.stat().st_size, mtime_ns=0)
