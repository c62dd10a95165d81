"""How many frames of one file are decoded: a megabyte can say that it holds a million pictures of any size.

What a film costs grows with its pixels, and honest films have bytes for theirs. So a file may ask for so many pixels
at once, and for so many more for each of its bytes; what comes after is a line in the errors table.

    films         10^11 pixels (12,000 frames of 3840 x 2160: some minutes of decoding), or 300,000 a byte: four times
                  what x264 needs for a picture of that size which stands still, with one key frame in all
    animations    5 x 10^9 pixels (5,000 frames of 1000 x 1000), or 2,000 a byte, as Pillow composes each frame anew,
                  at a tenth of the pace
"""

from __future__ import annotations

from pipeline.errors import MediaError, Reason

_PIXELS = {"video": (10**11, 300_000), "animation": (5 * 10**9, 2_000)}  # of any file; for each of its bytes


def most_frames(media_type: str, height: int, width: int, size: int, max_length: int) -> int:
    """How many frames of a file are decoded.

    Args:
        media_type: "video" or "animation".
        height: of a frame, px.
        width: of a frame, px.
        size: of the file, bytes.
        max_length: the limit by number.
    """
    free, a_byte = _PIXELS[media_type]
    return min(max_length, max(1, max(free, a_byte * size) // (height * width)))


def beyond(most: int, max_length: int) -> MediaError:
    """What is said of the frames after `most`."""
    if most >= max_length:
        return MediaError(Reason.TOO_LARGE, f"it goes on after {most:,} frames, the limit of decode.max_length")
    return MediaError(
        Reason.TOO_LARGE, f"it goes on after {most:,} frames, more than a file of so few bytes may unpack to"
    )
