"""What tests of shots share: takes of photos, transitions made between them, and what Shots reads of frames.

What it reads of real films lies in `films_for_shots.parquet`; tests/README.md says whose they are. Run as a program,
this module writes the file again from the test material.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from pathlib import Path

import cv2
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from framekiln.contract.placement import Placement
from framekiln_stages.shots.stage import Features, Shots
from tests.support.media.photos import take
from tests.support.stages.flow_factory import table, video

KEPT = Path(__file__).with_name("films_for_shots.parquet")
FILMS = (
    "av/nasa_13013.mp4",
    "video/test_clip_10s.mp4",
    "video/cockatoo.mp4",
    "vos/06_pingpong.mp4",
    "vos/bedroom.mp4",
)


@cache
def clip(name: str, start: int, count: int, step: float = 0.7) -> list[np.ndarray]:
    """Consecutive frames of one take, which drifts by `step` px a frame."""
    return list(take(name, start + count, 224, 398, step=step)[start:])


def described(frames: Sequence[np.ndarray]) -> pa.Table:
    """What Shots reads, by the real Features."""
    stage = Features()
    stage.setup({}, Placement())
    made = stage(table(frames))
    columns = {name: made[name] for name in made.column_names}
    count = len(frames)
    keys = {"media_id": ["a.mp4"] * count, "frame_index": pa.array(range(count), pa.int32())}
    return pa.table(keys | {"time_s": np.arange(count) / 25.0} | columns).select(Shots().inputs)


def described_films() -> pa.Table:
    """What the kept file has: the first 300 frames of each film, by its name."""
    parts = []
    for name in FILMS:
        rows = described([cv2.resize(f, (398, 224), interpolation=cv2.INTER_AREA) for f in video(name, 0, 300)])
        parts.append(rows.set_column(0, "media_id", pa.array([name] * len(rows))))
    return pa.concat_tables(parts)


@cache
def kept_films() -> pa.Table:
    return pq.read_table(KEPT)


def mixed(one: np.ndarray, other: np.ndarray | float, share: float) -> np.ndarray:
    return np.rint((1 - share) * one.astype(np.float64) + share * np.asarray(other, np.float64)).astype(np.uint8)


def dissolve(
    first: tuple[str, int], second: tuple[str, int], length: int, steps: tuple[float, float] = (0.7, 0.7)
) -> list[np.ndarray]:
    """Twenty frames of one clip, a linear dissolve, and twenty of another; they drift by `steps` px a frame."""
    a, b = (clip(*one, 20 + length, step) for one, step in zip((first, second), steps, strict=True))
    return a[:20] + [mixed(a[19 + i], b[i - 1], i / length) for i in range(1, length)] + b[length - 1 :]


def through(first: tuple[str, int], second: tuple[str, int], length: int, colour: int) -> list[np.ndarray]:
    """Twenty frames of one clip, a fade, four frames of a colour, a fade, and twenty frames of another."""
    a, b = clip(*first, 20 + length), clip(*second, 20 + length)
    out = [mixed(a[19 + i], colour, i / length) for i in range(1, length)]
    back = [mixed(np.full_like(b[0], colour), b[i - 1], i / length) for i in range(1, length)]
    return a[:20] + out + [np.full_like(a[0], colour)] * 4 + back + b[length - 1 :]


def wipe(first: tuple[str, int], second: tuple[str, int], length: int, direction: str) -> list[np.ndarray]:
    """Twelve frames of one clip, a wipe whose edge moves right, left, down or up, and twelve of another."""
    one, other = clip(*first, 23 + length), clip(*second, 23 + length)
    axis = 1 if direction in ("right", "left") else 0
    side = one[0].shape[axis]
    frames = []
    for number, (old, new) in enumerate(zip(one, other, strict=True)):
        seen = np.arange(side) < round(np.clip((number - 11) / length, 0, 1) * side)
        seen = seen if direction in ("right", "down") else seen[::-1]
        frames.append(np.where(seen[None, :, None] if axis else seen[:, None, None], new, old))
    return frames


def whip(name: str, step: int, count: int = 8) -> list[np.ndarray]:
    """Five still frames, a pan of `step` px of 398 a frame, and five still frames."""
    pan = clip(name, 0, count, float(step))
    return [*[pan[0]] * 5, *pan, *[pan[-1]] * 5]


if __name__ == "__main__":
    pq.write_table(described_films(), KEPT, compression="zstd", compression_level=19)
    print(f"{KEPT}: {KEPT.stat().st_size} bytes")
