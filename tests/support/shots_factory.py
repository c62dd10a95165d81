"""What tests of shots share: takes of photos, transitions made between them, and what Shots reads of frames."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache

import numpy as np
import pyarrow as pa

from pipeline.contract.placement import Placement
from stages.flow.stage import Flow
from stages.shots.stage import Features, Shots
from tests.support.flow_factory import table
from tests.support.photos import take


@cache
def clip(name: str, start: int, count: int) -> list[np.ndarray]:
    """Consecutive frames of one take."""
    return list(take(name, start + count, 224, 398)[start:])


def described(frames: Sequence[np.ndarray]) -> pa.Table:
    """What Shots reads, by the real Flow and Features."""
    pixels = table(frames)
    columns = {}
    for stage in (Flow(), Features()):
        stage.setup({}, Placement())
        made = stage(pixels)
        columns |= {name: made[name] for name in made.column_names}
    count = len(frames)
    keys = {"media_id": ["a.mp4"] * count, "frame_index": pa.array(range(count), pa.int32())}
    return pa.table(keys | {"time_s": np.arange(count) / 25.0} | columns).select(Shots().inputs)


def mixed(one: np.ndarray, other: np.ndarray | float, share: float) -> np.ndarray:
    return np.rint((1 - share) * one.astype(np.float64) + share * np.asarray(other, np.float64)).astype(np.uint8)


def dissolve(first: tuple[str, int], second: tuple[str, int], length: int) -> list[np.ndarray]:
    """Twenty frames of one clip, a linear dissolve, and twenty of another."""
    a, b = clip(*first, 20 + length), clip(*second, 20 + length)
    return a[:20] + [mixed(a[19 + i], b[i - 1], i / length) for i in range(1, length)] + b[length - 1 :]


def through(first: tuple[str, int], second: tuple[str, int], length: int, colour: int) -> list[np.ndarray]:
    """Twenty frames of one clip, a fade, four frames of a colour, a fade, and twenty frames of another."""
    a, b = clip(*first, 20 + length), clip(*second, 20 + length)
    out = [mixed(a[19 + i], colour, i / length) for i in range(1, length)]
    back = [mixed(np.full_like(b[0], colour), b[i - 1], i / length) for i in range(1, length)]
    return a[:20] + out + [np.full_like(a[0], colour)] * 4 + back + b[length - 1 :]
