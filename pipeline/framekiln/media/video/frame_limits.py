"""Limits on the number of decoded frames: a file of one megabyte can contain a million frames of any size.

The cost of decoding grows with pixels, and the size of normal films does too. So each file may have a fixed number of
pixels, or a number for each of its bytes if that is more. Further frames are a line in the errors table.

    films         10^11 pixels (12,000 frames of 3840 x 2160: some minutes of decoding), or 300,000 a byte: four times
                  the rate of x264 for a still image of that size with a single key frame
    animations    5 x 10^9 pixels (5,000 frames of 1000 x 1000), or 2,000 a byte, as Pillow composes each frame anew at
                  a tenth of the speed
"""

from framekiln.contract.errors import MediaError, Reason

_PIXELS = {"video": (10**11, 300_000), "animation": (5 * 10**9, 2_000)}  # of any file; for each of its bytes


def max_frames(media_type: str, height: int, width: int, size: int, max_length: int) -> int:
    """Return how many frames of a video or an animation are decoded: sides in px, the file's size in bytes."""
    pixels, pixels_per_byte = _PIXELS[media_type]
    return min(max_length, max(1, max(pixels, pixels_per_byte * size) // (height * width)))


def too_many_frames(limit: int, max_length: int) -> MediaError:
    """Return the error for frames after the limit."""
    reason = "the limit of decode.max_length" if limit >= max_length else "the limit for a file of its size"
    return MediaError(Reason.TOO_LARGE, f"it continues after {limit:,} frames, {reason}")
