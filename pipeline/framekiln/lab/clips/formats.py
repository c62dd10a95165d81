"""Clips of several formats, and the scenarios in which their frames arrive.

Scenarios are those of MLPerf Inference: single stream, multiple streams, server and offline. A server's requests arrive
at random times with a known mean rate. They wait until a batch is full, or until the oldest has waited long enough.
"""

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from framekiln.contract.columns import Image
from framekiln.contract.errors import InputError, MediaError, Reason
from framekiln.lab.output.film_rows import Scenario
from framekiln.media.config import DecodeConfig
from framekiln.media.files import MediaFile
from framekiln.media.packets.decode import decode_frames
from framekiln.media.video.encoder import VideoEncoder

Handle = Callable[[int], None]
"""Processes a number of frames from decoding to encoding, and returns when all are done."""
MADE_FRAMES = 48  # frames of a generated clip, which is repeated as often as needed


@dataclass(frozen=True, kw_only=True)
class Served:
    """One batch."""

    arrivals: tuple[float, ...]  # arrival of each frame, s
    start: float
    end: float

    @property
    def latencies(self) -> list[float]:
        """Seconds from each frame's arrival to the end of its batch."""
        return [self.end - arrival for arrival in self.arrivals]


@dataclass(frozen=True, kw_only=True)
class Load:
    """The frames of a measurement, and how they arrive."""

    scenario: Scenario = "single"
    frames: int = 120  # more than the hundred for a p95
    batch: int = 1  # most frames of a batch; for several streams, their number
    rate: float = 30.0  # requests a second of a server, as one common camera sends
    linger_s: float = 0.0
    clock: Callable[[], float] = field(default=time.perf_counter)
    sleep: Callable[[float], None] = field(default=time.sleep)

    def serve(self, handle: Handle) -> list[Served]:
        """Process all frames, and return the batches in order."""
        if self.scenario == "server":
            return self.serve_arrivals(handle, arrivals(self.frames, self.rate, self.clock()))
        size = 1 if self.scenario == "single" else self.batch
        began, done = self.clock(), list[Served]()
        for first in range(0, self.frames, size):
            start, number = self.clock(), min(size, self.frames - first)
            handle(number)
            arrived = began if self.scenario == "offline" else start
            done.append(Served(arrivals=(arrived,) * number, start=start, end=self.clock()))
        return done

    def serve_arrivals(self, handle: Handle, times: Sequence[float]) -> list[Served]:
        """Process requests with known arrival times, in ascending order, in dynamic batches."""
        done: list[Served] = []
        first = 0
        while first < len(times):
            full = times[first + self.batch - 1] if first + self.batch <= len(times) else float("inf")
            while (left := max(times[first], min(times[first] + self.linger_s, full)) - self.clock()) > 0:
                self.sleep(left)
            start = self.clock()
            waiting = [arrival for arrival in times[first : first + self.batch] if arrival <= start]
            handle(len(waiting))
            done.append(Served(arrivals=tuple(waiting), start=start, end=self.clock()))
            first += len(waiting)
        return done


def arrivals(frames: int, rate: float, start: float) -> list[float]:
    """Return seeded random times in s, with independent pauses of 1/rate on average: a Poisson process."""
    pauses = np.random.default_rng(0).exponential(1 / rate, frames)
    return [float(moment) for moment in start + np.cumsum(pauses)]


@dataclass(frozen=True, kw_only=True)
class ClipFormat:
    """The size of a clip's frames, and the number of views side by side."""

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
class BenchClip:
    """A file with frames of one format."""

    path: Path
    format: ClipFormat

    def images(self) -> Iterator[Image]:
        """Yield frames (h w 3) without end: after the last one, from the file's start.

        Raises MediaError: the file cannot be decoded, or has no frame.
        """
        media = _make_media(self.path)
        while True:
            frames = 0
            for frame in decode_frames(media, ("frame",), DecodeConfig()):
                frames += 1
                yield frame.images["frame"]
            if not frames:
                raise MediaError(Reason.EMPTY, f"{self.path.name} has no frame")


def made_clip(item: ClipFormat, folder: Path, frames: int = MADE_FRAMES) -> BenchClip:
    """Write a clip of a format: a texture that moves by 4 px a frame, so that its encoder has work as in a film."""
    rng = np.random.default_rng(0)
    coarse = rng.integers(0, 256, (item.height // 8 + 1, item.width // 8 + 1, 3), dtype=np.uint8)
    ground = coarse.repeat(8, axis=0).repeat(8, axis=1)[: item.height, : item.width]
    path = folder / f"{item.name}.mp4"
    with VideoEncoder(path, (item.height, item.width), item.fps) as file:
        for number in range(frames):
            file.add(np.roll(ground, 4 * number, axis=1))
    return BenchClip(path=path, format=item)


def clip_of_file(path: Path, eyes: int) -> BenchClip:
    """Return the clip of a user's file, with the size of its first frame.

    Raises InputError: the file does not exist or cannot be decoded.
    """
    try:
        frame = next(iter(decode_frames(_make_media(path), ("frame",), DecodeConfig())))
    except (OSError, MediaError, StopIteration) as error:
        reason = str(error) or "it has no frame"
        raise InputError(
            f"--clip {str(path)!r} cannot be decoded ({reason}); give {', '.join(FORMATS)} or a video.",
            code="FK-BENCH-CLIP",
        ) from error
    size = ClipFormat(name=path.name, height=frame.height, width=frame.width, fps=30, eyes=eyes)
    return BenchClip(path=path, format=size)


def _make_media(path: Path) -> MediaFile:
    return MediaFile(media_id=path.name, path=str(path.absolute()), size=path.stat().st_size, mtime_ns=0)
