"""Settings of decoding, free of decoder imports so that planning can read them."""

from __future__ import annotations

from dataclasses import dataclass

DECODE_VERSION = 3
"""To be raised when the same file gives other rows or pixels: all outputs are then computed again."""

PHOTO_RULES = 1
"""Version of what is read of photos that were errors before; stored with each unit, so that units of earlier outputs
keep their rows. 0: as before; 1: HEIC, JPEG 2000, Targa, PNM, all bit fields of BMP, and parts of truncated photos."""

MAX_SHARES = 1024
"""Tasks for one file, planned before it is opened: a sparse file may state any size. Films above 65 GB get longer
segments."""


@dataclass(frozen=True, kw_only=True)
class DecodeConfig:
    """The rules by which files become frames, clips and packets."""

    every_nth: int = 1  # keep frames of a video with a number that is a multiple
    max_frames: int | None = None  # of one video
    max_length: int = 2_500_000  # frames of one file, kept or not: more than a day at 25 fps
    fast_mode: bool = False  # first reduce every frame to a short side of at least 360 px
    max_pixels: int = 100_000_000  # height * width in the header: 300 MB decoded
    clip_frames: int = 64  # 2.5 s at 25 fps: long enough for motion, 177 MB at 1280x720
    packet_bytes: int = 128 << 20  # of requested pixels: a few packets in flight for each process fit a laptop
    # file bytes; a film of at least twice as many is read in segments of this to twice this size, so that several tasks
    # decode it at once: 20 s of a core for 1080p at 6 Mbit/s, a hundred times the cost of finding the segment
    segment_bytes: int = 64_000_000
    packet_rows: int = 512  # small photos: seconds of work, so that the cost of moving a packet is negligible

    def share_count(self, size: int) -> int:
        """Return the number of shares that a file of `size` bytes is cut into, if its format allows it."""
        return max(1, min(size // self.segment_bytes, MAX_SHARES))
