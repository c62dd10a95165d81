"""How much of libav's rate decoding films of 1920x1080 keeps on one core.

    python -m benchmarks.decoding [--frames 100] [--rates 1,4,8,16] [FILM ...]

Rates are in Mbit/s, of H.264 and of H.265, with grain and texture that moves against the pan from 4 on. *RGB* is
libav's decoder and its conversion, one frame after the other, which no column of pixels can do without. Frames are
divided by processor seconds: medians of turns in a fresh process that keeps freed memory.
"""

from __future__ import annotations

import argparse
import multiprocessing
import statistics
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

import av
import cv2
import numpy as np
from av.video.reformatter import VideoReformatter

from framekiln.contract.packet import Packet
from framekiln.media.config import DecodeConfig
from framekiln.media.discovery.listing import list_media
from framekiln.media.packets.decode import decode, keep_freed_memory, use_one_thread
from framekiln.media.samples import photos
from framekiln.media.units import Unit

WIDTH, HEIGHT, RATE, TURNS, DETAILED = 1920, 1080, 25, 4, 4  # Mbit/s from which there is grain
CODECS = {
    "libx264": {"preset": "veryfast", "g": "50"},
    "libx265": {"preset": "ultrafast", "g": "50", "x265-params": "log-level=error"},
}


def make_film(path: Path, codec: str, rate: int, frames: int) -> None:
    """Write a film of `rate` Mbit/s: a pan over a sample photo; from `DETAILED` on with grain and a moving texture."""
    scene = cv2.cvtColor(cv2.imread(str(photos()["china.jpg"])), cv2.COLOR_BGR2RGB)
    scene = cv2.resize(scene, (WIDTH + 1000, HEIGHT + 500), interpolation=cv2.INTER_CUBIC)
    random = np.random.default_rng(0)
    texture = cv2.GaussianBlur(random.normal(0, 60, (HEIGHT // 2, WIDTH)), (0, 0), 1.5)[..., None].astype(np.int16) * 3
    with av.open(str(path), "w") as out:
        track = out.add_stream(codec, rate=RATE, options=CODECS[codec])
        assert isinstance(track, av.VideoStream)
        track.width, track.height, track.pix_fmt, track.bit_rate = WIDTH, HEIGHT, "yuv420p", rate * 1_000_000
        for number in range(frames):
            top, left = 3 * number % 500, 6 * number % 1000
            image = scene[top : top + HEIGHT, left : left + WIDTH].astype(np.int16)
            if rate >= DETAILED:
                image[HEIGHT // 2 :] += np.roll(texture, -9 * number, axis=1)
                image += random.integers(-10, 11, (HEIGHT, WIDTH, 1), np.int16)
            out.mux(track.encode(av.VideoFrame.from_ndarray(np.clip(image, 0, 255).astype(np.uint8), format="rgb24")))
        out.mux(track.encode(None))


def decode_alone(path: Path, *, rgb: bool) -> int:
    """Return the frames that libav decodes, and with `rgb` converts."""
    reformatter, frames = VideoReformatter(), 0
    with av.open(str(path)) as container:
        container.streams.video[0].codec_context.thread_count = 1
        for frame in container.decode(video=0):
            if rgb:
                reformatter.reformat(frame, format="rgb24", threads=1).to_ndarray()
            frames += 1
    return frames


def _rows(path: Path, *columns: str) -> int:
    unit = Unit(name="film", media=tuple(list_media(str(path))))
    return sum(map(_count, decode(unit, columns, 0, DecodeConfig())))  # holds no packet, as a worker


def _count(packet: Packet) -> int:
    return packet.rows.num_rows


def measure(path: Path) -> dict[str, float]:
    """Return frames a processor second by way, all in turns; the first turn is left out."""
    use_one_thread()
    keep_freed_memory()
    ways: dict[str, Callable[[Path], int]] = {
        "libav": partial(decode_alone, rgb=False),
        "RGB": partial(decode_alone, rgb=True),
        "no pixels": _rows,
        "frame_224": lambda path: _rows(path, "frame_224"),
        "frame": lambda path: _rows(path, "frame"),
    }
    rates: dict[str, list[float]] = {name: [] for name in ways}
    for _ in range(TURNS):
        for name, way in ways.items():
            begin = time.process_time()
            frames = way(path)
            rates[name].append(frames / (time.process_time() - begin))
    return {name: statistics.median(each[1:]) for name, each in rates.items()}


def main() -> None:
    """Make the films, and print a line of each."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", maxsplit=1)[0])
    parser.add_argument("--frames", type=int, default=100)
    parser.add_argument("--rates", default="1,4,8,16")
    parser.add_argument("film", type=Path, nargs="*")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        films: list[Path] = options.film
        for codec in () if films else CODECS:
            for rate in map(int, options.rates.split(",")):
                films = [*films, Path(folder) / f"{codec} {rate} Mbit.mp4"]
                make_film(films[-1], codec, rate, options.frames)
        for film in films:
            with multiprocessing.get_context("spawn").Pool(1) as fresh:
                rates = fresh.apply(measure, (film,))
            shares = ", ".join(f"{name} {rate / rates['libav']:.2f}" for name, rate in rates.items() if name != "libav")
            of_rgb = f"frame {rates['frame'] / rates['RGB']:.2f} of RGB"
            print(f"{film.stem}: libav {rates['libav']:.0f} frames/s; of it {shares}; {of_rgb}", flush=True)


if __name__ == "__main__":
    main()
