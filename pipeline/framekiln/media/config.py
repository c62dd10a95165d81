"""Settings of decoding, without imports of decoders, so that planning can read them."""

from dataclasses import dataclass

DECODE_VERSION = 11
"""Increase it when a file gives other rows or pixels than before: all outputs are then computed again."""

MAX_SEGMENTS = 256
"""Most segments of one video. Each is opened separately, so longer videos have longer segments."""

MAX_TASKS = 1024
"""Tasks for one file, planned before it is opened: a sparse file may state any size."""


@dataclass(frozen=True, kw_only=True)
class DecodeConfig:
    """The rules that turn files into frames, clips and packets."""

    every_nth: int = 1  # keep every n-th frame of a video
    max_frames: int | None = None  # most frames of one video
    max_length: int = 2_500_000  # frames of one file, kept or not: more than a day at 25 fps
    fast_mode: bool = False  # first reduce every frame to a short side of at least 360 px
    max_pixels: int = 100_000_000  # height * width in the header: 300 MB decoded
    clip_frames: int = 64  # 2.5 s at 25 fps: long enough for motion, 177 MB at 1280x720
    packet_bytes: int = 128 << 20  # bytes of requested pixels: a few packets in flight for each process fit a laptop
    segment_frames: int = 128  # the least of a segment, 5 s at 25 fps; shorter videos than two are whole
    segment_pixels: int = 50_000_000  # least frames * height * width: ten times the cost of opening a video
    task_bytes: int = 256_000  # least bytes of a video for each task: 5 s at 0.4 Mbit/s
    most_task_bytes: int = 64_000_000  # most bytes for each task: 20 s of a core for 1080p at 6 Mbit/s
    packet_rows: int = 512  # small photos: seconds of work, so that moving a packet costs little

    def frames_of_segment(self, frames: int, pixels: int) -> int:
        """Return the least number of frames of a segment, for a video with this many frames and pixels."""
        return max(self.segment_frames, self.segment_pixels // max(1, pixels), -(-frames // MAX_SEGMENTS))
