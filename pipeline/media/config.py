"""What of the media is looked at, and how it is cut: light enough to be read by the plan without loading a decoder."""

from __future__ import annotations

from dataclasses import dataclass

DECODE_VERSION = 3
"""Raise it when the same file gives other rows or pixels: everything is then computed again."""


@dataclass(frozen=True, kw_only=True)
class DecodeConfig:
    """How files become frames, clips and packets."""

    every_nth: int = 1  # keep frames of a video whose number is a multiple
    max_frames: int | None = None  # of one video
    max_length: int = 2_500_000  # frames of one file that are looked at, kept or not: a day at 25 fps, and some
    fast_mode: bool = False  # every frame is first reduced to a short side of at least 360 px
    max_pixels: int = 100_000_000  # h * w by the header: 300 MB decoded
    clip_frames: int = 64  # two seconds and a half at 25 fps: long enough for motion, 177 MB at 1280x720
    packet_bytes: int = 128 << 20  # asked pixels of one packet: a few packets in flight for each process fit a laptop
    # bytes of file; a film of twice as many or more is read in segments of so many to twice as many, so that several
    # tasks decode it at once: 20 s of a core for 1080p at 6 Mbit/s, a hundred times what finding its place costs
    segment_bytes: int = 64_000_000
    packet_rows: int = 512  # small photos: seconds of work, so that the cost of moving a packet does not show

    def shares(self, size: int) -> int:
        """Into how many shares a file of so many bytes is cut, where its format allows it."""
        return max(1, size // self.segment_bytes)
