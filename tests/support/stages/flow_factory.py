"""What tests of motion share: real photos and films, windows that move over them, and a scene of known flow."""

from __future__ import annotations

import math
from functools import cache

import av
import cv2
import numpy as np
import pyarrow as pa
import pytest

from framekiln.contract.columns import pack, reduction
from framekiln.contract.placement import Placement
from framekiln_stages.flow.stage import Flow
from tests.support.media.material import media, picture


def ready(**config) -> Flow:
    stage = Flow(Flow.Config(**config))
    stage.setup({}, Placement())
    return stage


def table(frames, size: int = 224) -> pa.Table:
    height, width = frames[0].shape[:2]
    by = reduction(height, width, size or None)
    small = [cv2.resize(f, (-(-width // by), -(-height // by)), interpolation=cv2.INTER_AREA) for f in frames]
    sides = {
        "height": pa.array([height] * len(frames), pa.int32()),
        "width": pa.array([width] * len(frames), pa.int32()),
    }
    return pa.table({f"frame_{size}" if size else "frame": pack(small)} | sides)


@cache
def video(name: str, start: int, stop: int) -> list[np.ndarray]:
    """Frames of a film of the test material."""
    with av.open(str(media(name))) as container:
        frames = [
            frame.to_ndarray(format="rgb24") for _, frame in zip(range(stop), container.decode(video=0), strict=False)
        ]
    return frames[start:]


def window(image, x: int, y: int, height: int = 360, width: int = 540) -> np.ndarray:
    return np.ascontiguousarray(image[y : y + height, x : x + width])


def shifted(stage: Flow, image: np.ndarray, dx: int, dy: int) -> dict:
    """The row of a photo that moves by dx, dy."""
    height, width = image.shape[0] - 32, image.shape[1] - 32
    frames = [window(image, 16, 16, height, width), window(image, 16 - dx, 16 - dy, height, width)]
    return stage(table(frames, stage.config.size)).to_pylist()[0]


def assert_follows(row: dict, dx: int, dy: int) -> None:
    """Check that a row's motion has the length of a shift within 5 % and its direction within 2 degrees."""
    assert row["motion_mean"] == pytest.approx(math.hypot(dx, dy), rel=0.05)
    off = row["motion_direction"] - math.degrees(math.atan2(-dy, dx))
    assert abs((off + 180) % 360 - 180) < 2


def rubberwhale() -> tuple[list[np.ndarray], np.ndarray]:
    """Two RGB frames and the true flow, huge where it is not known."""
    frames = [picture(f"flow/rubberwhale/rubberwhale{i}.png") for i in (1, 2)]
    raw = media("flow/rubberwhale/flow10.flo").read_bytes()
    width, height = np.frombuffer(raw, np.int32, 2, offset=4)
    return frames, np.frombuffer(raw, np.float32, offset=12).reshape(height, width, 2)


def driven(image: np.ndarray, motion: float, angle: float = 0.0) -> tuple[list[np.ndarray], np.ndarray]:
    """Two RGB frames of 1242x375 as of a car's camera that nears a photo and turns, and the true flow in px."""
    height, width = 375, 1242
    scale = max((width + 500) / image.shape[1], (height + 200) / image.shape[0])
    way = cv2.INTER_AREA if scale < 1 else cv2.INTER_CUBIC
    large = cv2.resize(image, None, fx=scale, fy=scale, interpolation=way)
    top, left = (large.shape[0] - height) // 2, (large.shape[1] - width) // 2
    y, x = np.mgrid[0:height, 0:width].astype(np.float32)
    zoom, shift = 1 + motion / 600, motion * np.array([np.cos(angle), 0.3 * np.sin(angle)])
    centre = (width / 2, height * 0.45)
    flow = np.stack([(zoom - 1) * (at - c) + by for at, c, by in zip((x, y), centre, shift, strict=True)], -1)
    source = [
        ((at - c - by) / zoom + c + start).astype(np.float32)
        for at, c, by, start in zip((x, y), centre, shift, (left, top), strict=True)
    ]
    then = cv2.remap(large, *source, cv2.INTER_CUBIC, borderMode=cv2.BORDER_REFLECT)
    noisy = then + np.random.default_rng(0).normal(0, 2, then.shape)
    return [window(large, left, top, height, width), noisy.clip(0, 255).astype(np.uint8)], flow.astype(np.float32)


def off(flow: np.ndarray, truth: np.ndarray) -> float:
    """Mean end-point error in px where the truth is known."""
    known = (np.abs(truth) < 1e9).all(-1)
    return float(np.linalg.norm(flow - truth, axis=-1)[known].mean())


def lit(image, field, seed):
    """A photo under light that differs by place, with grain."""
    noise = np.random.default_rng(seed).normal(0, 2, image.shape)
    return np.clip(image * field[..., None] + noise, 0, 255).astype(np.uint8)


def striped(period, angle, phase, height=224, width=390):
    """Hard-edged stripes of light, such as sun through blinds makes."""
    y, x = np.mgrid[:height, :width]
    across = (x * np.sin(angle) + y * np.cos(angle) - phase) / period
    return cv2.GaussianBlur(np.where(across % 1 < 0.5, 1.4, 0.6), (0, 0), 1.0)
