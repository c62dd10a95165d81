"""Tiny collections whose truth is known: every frame of every file has its own colour."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
from PIL import Image

from framekiln.media.config import DecodeConfig
from framekiln.planning.plan import Plan

SIDE = 8


def frame(seed: int, index: int) -> np.ndarray:
    """A frame's pixels (SIDE SIDE 3): reproducible, and different for each file and frame."""
    rng = np.random.default_rng([seed, index])
    return rng.integers(0, 256, (SIDE, SIDE, 3), dtype=np.uint8)


def photo(path: Path, seed: int) -> None:
    """A PNG of one frame."""
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.fromarray(frame(seed, 0)).save(path)


def clip(path: Path, seed: int, frames: int) -> None:
    """An animated PNG: lossless, so its pixels are known."""
    path.parent.mkdir(parents=True, exist_ok=True)
    first, *rest = [Image.fromarray(frame(seed, i)) for i in range(frames)]
    first.save(path, save_all=True, append_images=rest, duration=40, default_image=False)


def collection(folder: Path, photos: int, frames: int, name: str = "clip.png") -> Path:
    """A folder with some photos, `photo0.png` and so on, and one clip."""
    for i in range(photos):
        photo(folder / f"photo{i}.png", i)
    clip(folder / name, 100, frames)
    return folder


def recut(plan: Plan, config: DecodeConfig) -> Plan:
    """A plan whose decoding goes by another rule."""
    waves = tuple(replace(wave, decode=replace(wave.decode, config=config)) for wave in plan.waves)
    return replace(plan, decode=replace(plan.decode, config=config), waves=waves)
