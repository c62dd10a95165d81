"""Animated GIF, WebP, PNG and AVIF are short films: their frames get numbers and times like those of a video.

Frames are composed by Pillow as a viewer shows them and decoded one after the other, so that memory does not grow with
their number.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from itertools import accumulate

from PIL import ImageFile

from pipeline.columns import Image
from pipeline.errors import MediaError, Reason
from pipeline.media import pillow
from pipeline.media.bounds import beyond, most_frames
from pipeline.media.frames import Frame, Opened
from pipeline.media.pixels import Wanted
from pipeline.media.sniff import Kind

_HELD = 4  # Pillow keeps an animation's canvas several times over: 25 to 35 bytes a pixel, a photo 6 to 20
_UNSAID_MS = 100.0  # a duration of 0 means "as fast as possible"; browsers show such frames for a tenth of a second


def play(data: bytes, kind: Kind, wanted: Wanted) -> Opened:
    """An animation whose frames are decoded as they are read. Goes through the file once for the durations."""
    durations = list(_durations(data, kind, wanted))
    fps = 1000.0 * len(durations) / sum(durations) if durations else None
    return Opened(media_type="animation", frames=_frames(data, kind, wanted, durations), fps=fps)


def _durations(data: bytes, kind: Kind, wanted: Wanted) -> Iterator[float]:
    """Milliseconds of each frame, up to the first that cannot be decoded."""
    try:
        for image in _pages(data, kind, wanted):
            yield float(image.info.get("duration", 0)) or _UNSAID_MS
    except MediaError:
        return


def _frames(data: bytes, kind: Kind, wanted: Wanted, durations: list[float]) -> Iterator[Frame]:
    starts = list(accumulate(durations, initial=0.0))
    turn = 1
    for index, image in enumerate(_pages(data, kind, wanted)):
        if not wanted.keeps(index):
            continue
        with pillow.guarded(data, kind, wanted.max_pixels):
            turn = pillow.orientation(image) if index == 0 else turn
            whole = pillow.to_rgb(image)
        time_s = starts[index] / 1000.0
        yield wanted.frame(index, whole.shape[:2], turn, partial(_itself, whole), time_s=time_s, opens=index == 0)


def _pages(data: bytes, kind: Kind, wanted: Wanted) -> Iterator[ImageFile.ImageFile]:
    """The file at each of its frames in turn; APNG's still picture for old viewers is left out."""
    with pillow.guarded(data, kind, wanted.max_pixels):
        image = pillow.open_image(data, kind)
        first = 1 if image.info.get("default_image") else 0
        count = int(getattr(image, "n_frames", 1))
        _check_canvas(image.height, image.width, wanted.max_pixels)
        most = most_frames("animation", image.height, image.width, len(data), wanted.max_length)
    for number in range(first, count):
        if number - first >= most:
            raise beyond(most, wanted.max_length)
        with pillow.guarded(data, kind, wanted.max_pixels):
            image.seek(number)
            wanted.check(image.height, image.width)
            image.load()
        yield image
    if count <= first:
        raise MediaError(Reason.EMPTY, "the animation has no frame")


def _check_canvas(height: int, width: int, max_pixels: int) -> None:
    if height * width > max_pixels // _HELD:
        raise MediaError(
            Reason.TOO_LARGE,
            f"its header says {width} x {height} pixels, more than the limit of {max_pixels // _HELD:,} for an "
            f"animation, a 1/{_HELD} of that for a photo",
        )


def _itself(image: Image) -> Image:
    return image
