"""Animated GIF, WebP, PNG and AVIF, read as short films: their frames have numbers and times like those of a video.

Pillow composes the frames as a viewer shows them, one after the other, so that memory does not grow with their number.
"""

from collections.abc import Iterator
from functools import partial
from itertools import accumulate

from PIL import ImageFile

from framekiln.contract.errors import MediaError, Reason
from framekiln.media.file_types import Kind
from framekiln.media.frames import Frame, FrameSource, FrameSpec, max_frames, reduce_by, too_many_frames
from framekiln.media.images import pillow

_CANVAS_DIVISOR = 4  # Pillow holds several copies of a canvas: 25 to 35 bytes a pixel, of a photo 6 to 20
_DEFAULT_MS = 100.0  # for a duration of 0, "as fast as possible": browsers show such frames for 0.1 s


def open_animation(data: bytes, kind: Kind, spec: FrameSpec) -> FrameSource:
    """Open an animation for decoding on demand, after one pass over the file for its durations."""
    durations = list(_read_durations(data, kind, spec))
    fps = 1000.0 * len(durations) / sum(durations) if durations else None
    return FrameSource(media_type="animation", frames=_read_frames(data, kind, spec, durations), fps=fps)


def _read_durations(data: bytes, kind: Kind, spec: FrameSpec) -> Iterator[float]:
    """Yield the milliseconds of each frame, up to the first that cannot be decoded."""
    try:
        for image in _read_pages(data, kind, spec):
            yield float(image.info.get("duration", 0)) or _DEFAULT_MS
    except MediaError:
        return


def _read_frames(data: bytes, kind: Kind, spec: FrameSpec, durations: list[float]) -> Iterator[Frame]:
    starts = list(accumulate(durations, initial=0.0))
    orientation = 1
    for index, image in enumerate(_read_pages(data, kind, spec)):
        if not spec.keeps(index):
            continue
        with pillow.decode_errors(data, kind, spec.config.max_pixels):
            orientation = pillow.orientation(image) if index == 0 else orientation
            full = pillow.to_rgb(image)
        time_s = starts[index] / 1000.0
        size, is_key = full.shape[:2], index == 0
        yield spec.frame(index, size, orientation, partial(reduce_by, full), time_s=time_s, is_key=is_key)


def _read_pages(data: bytes, kind: Kind, spec: FrameSpec) -> Iterator[ImageFile.ImageFile]:
    """Yield the file at each of its frames; the still image of an APNG for old viewers is skipped."""
    with pillow.decode_errors(data, kind, spec.config.max_pixels):
        image = pillow.open_image(data, kind)
        first = 1 if image.info.get("default_image") else 0
        count = int(getattr(image, "n_frames", 1))
        most = spec.config.max_pixels // _CANVAS_DIVISOR
        if image.height * image.width > most:
            stated = f"the header states {image.width} x {image.height} pixels"
            message = f"{stated}, the limit is {most:,} for an animation, 1/{_CANVAS_DIVISOR} of that for a photo"
            raise MediaError(Reason.TOO_LARGE, message)
        limit = max_frames("animation", image.height, image.width, len(data), spec.config.max_length)
    for number in range(first, count):
        if number - first >= limit:
            raise too_many_frames(limit, spec.config.max_length)
        with pillow.decode_errors(data, kind, spec.config.max_pixels):
            image.seek(number)
            spec.check_size(image.height, image.width)
            image.load()
        yield image
    if count <= first:
        raise MediaError(Reason.EMPTY, "the animation has no frame")
