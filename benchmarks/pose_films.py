"""Poses of films: people followed between looks everywhere, beside looks everywhere at each frame.

    python -m benchmarks.pose_films [FILM ...] [--frames 75] [--look-s 0.5]

Without films it makes two: a camera that moves over a portrait, and two people who walk through each other's places.
It prints processor time and calls of the network a frame for both ways in one process, and how many people of the
second way the first one finds (within a tenth of the box's diagonal), and how many it finds besides.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import av
import cv2
import numpy as np
import pyarrow as pa

from framekiln.contract.columns import Image, pack
from framekiln.contract.placement import Placement
from framekiln.media.config import DecodeConfig
from framekiln.media.samples import pan, photos
from framekiln.weights.resolver import resolve
from framekiln_stages.nets.mediapipe_tasks import Body
from framekiln_stages.pose.looks import SAME_BODY, distances
from framekiln_stages.pose.stage import Pose
from tests.support.media.material import picture

SHORT, FPS = 512, 25
Film = tuple[list[Image], list[float]]


def portrait(frames: int) -> list[Image]:
    """Return a camera's way over a portrait: one person."""
    return pan(cv2.cvtColor(cv2.imread(str(photos()["grace_hopper.jpg"])), cv2.COLOR_BGR2RGB), frames)


def crossing(frames: int) -> list[Image]:
    """Return two people on one grey wall, who walk through each other's places."""
    image = cv2.resize(picture("pose/squat.bmp"), None, fx=0.6, fy=0.6, interpolation=cv2.INTER_AREA)
    height, width = image.shape[:2]
    result = []
    for number in range(frames):
        wall, way = np.full((height, 3 * width, 3), 128, np.uint8), 2 * width * number // (frames - 1)
        wall[:, 2 * width - way : 3 * width - way], wall[:, way : way + width] = image[:, ::-1], image
        result.append(wall)
    return result


def read(path: Path, most: int) -> Film:
    """Return the first frames of a film, reduced as the stage reads them, and their times."""
    images, times = list[Image](), list[float]()
    with av.open(str(path)) as file:
        for frame in file.decode(video=0):
            if len(images) == most:
                break
            image = frame.to_ndarray(format="rgb24").astype(np.uint8, copy=False)
            scale = SHORT / min(image.shape[:2])
            if scale < 1:
                image = cv2.resize(image, None, fx=scale, fy=scale, interpolation=cv2.INTER_AREA)
            images.append(image)
            times.append(float(frame.time or 0.0))
    return images, times


def run(film: Film, look_s: float) -> tuple[list[dict[str, Any]], float, float]:
    """Return the rows of a film, and the milliseconds of a core and the network's calls for each frame."""
    stage, calls = Pose(Pose.Config(look_s=look_s)), 0
    stage.setup(resolve(stage.weights, weights_dir=None), Placement())
    net = stage._net

    def counting(image: Image) -> Any:
        nonlocal calls
        calls += 1
        return net(image)

    stage._net = counting
    begin, rows = time.process_time(), list[dict[str, Any]]()
    for images, times in _clips(film):
        clip = pa.table({stage.pixels: pack(images), "time_s": pa.array(times, pa.float64())})
        rows += stage(clip).to_pylist()
    return rows, 1000 * (time.process_time() - begin) / len(rows), calls / len(rows)


def _clips(film: Film) -> Iterator[Film]:
    length = DecodeConfig().clip_frames
    for start in range(0, len(film[0]), length):
        yield film[0][start : start + length], film[1][start : start + length]


def count_missing(rows: Sequence[dict[str, Any]], others: Sequence[dict[str, Any]], shape: tuple[int, ...]) -> int:
    """Return how many people of `others` are not in the same row of `rows`."""
    missing = 0
    for row, other in zip(rows, others, strict=True):
        here = np.array([_body(person) for person in row["poses"]], np.float32).reshape(-1, 33, 5)
        missing += sum(not (distances(_body(one), here, *shape[:2]) < SAME_BODY).any() for one in other["poses"])
    return missing


def _body(person: dict[str, Any]) -> Body:
    return np.array([list(mark.values()) for mark in person["landmarks"]], np.float32)


def main() -> None:
    """Print a line for each film."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", maxsplit=1)[0])
    parser.add_argument("films", nargs="*", type=Path)
    parser.add_argument("--frames", type=int, default=75)
    parser.add_argument("--look-s", type=float, default=0.5)
    options = parser.parse_args()
    times = [i / FPS for i in range(options.frames)]
    made = {"portrait": (portrait(options.frames), times), "crossing": (crossing(options.frames), times)}
    films = {path.name: read(path, options.frames) for path in options.films} or made
    for name, film in films.items():
        (slow, slow_ms, slow_calls), (fast, ms, calls) = run(film, 0.0), run(film, options.look_s)
        shape, people = film[0][0].shape, sum(row["people"] for row in slow)
        missing, more = count_missing(fast, slow, shape), count_missing(slow, fast, shape)
        cost = f"{slow_ms:.0f} ms and {slow_calls:.1f} calls a frame everywhere, {ms:.0f} and {calls:.1f} followed"
        found = f"{people - missing} of {people} people, {more} more"
        print(f"{name:<20} {len(slow)} frames: {cost}: {slow_ms / ms:.1f} times as fast; {found}", flush=True)


if __name__ == "__main__":
    main()
