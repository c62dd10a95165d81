"""Sharpness, noise and blockiness against flaws of a known size, made in photos and ranked over all photos together.

A ranking across photos is what a user's limit needs: a measure that rises with texture ranks by what photos show.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import cv2
import numpy as np
import pyarrow as pa
from scipy.stats import spearmanr

from benchmarks.accuracy import AccuracyFigure
from framekiln.contract.columns import pack
from framekiln_stages.quality import Quality
from framekiln_stages.quality.measures import SECOND_DIFFERENCE
from tests.support.media.material import picture
from tests.support.media.photos import PHOTOS, photo

PICTURES = ("chelsea.png", "coffee.png", "hot_dog.jpg", "parrot.jpg", "rocket.jpg", "retina.jpg")
SIDE = 400  # px: each photo is reduced to this short side first, so that all begin sharp
_figure = partial(AccuracyFigure, "quality", better="higher")
Flaw = Callable[[np.ndarray, float], np.ndarray]


def measure() -> list[AccuracyFigure]:
    """Return the figures of quality."""
    images = [_reduce(photo(name)) for name in PHOTOS] + [_reduce(picture(f"categories/{name}")) for name in PICTURES]
    data = f"{len(images)} photos"
    return [
        _figure(
            f"{data}, blurred by 0 to 6 px, in two sizes",
            "rank correlation of `sharpness`, library: variance of the Laplacian",
            *_rank_sharpness(images),
        ),
        _figure(
            f"{data} with noise of 0 to 20 codes",
            "rank correlation of `noise`, library: Immerkaer 1996",
            *_rank(images, "noise", (0, 2, 5, 10, 20), _add_noise, _immerkaer),
        ),
        _figure(
            f"{data} as JPEG of quality 95 to 5",
            "rank correlation of `blockiness`",
            *_rank(images, "blockiness", (95, 70, 50, 30, 15, 5), _compress, None),
        ),
    ]


def _reduce(image: np.ndarray) -> np.ndarray:
    scale = SIDE / min(image.shape[:2])
    return cv2.resize(image, None, fx=scale, fy=scale, interpolation=cv2.INTER_AREA)


def _describe(image: np.ndarray) -> dict[str, Any]:
    (row,) = Quality()(pa.table({"frame": pack([image]), "clip_index": pa.array([0], pa.int32())})).to_pylist()
    return row


def _rank_sharpness(images: Sequence[np.ndarray]) -> tuple[float, float]:
    detail, mine, theirs = [], [], []
    for image in images:
        for blur in (0.0, 1.0, 2.0, 3.0, 6.0):
            for size in (1.0, 2.0):
                soft = cv2.GaussianBlur(image, (0, 0), blur) if blur else image
                shown = cv2.resize(soft, None, fx=size, fy=size, interpolation=cv2.INTER_CUBIC)
                detail.append(SIDE / max(1.0, blur / 0.4))
                mine.append(_describe(shown)["sharpness"] or 0.0)
                theirs.append(cv2.Laplacian(cv2.cvtColor(shown, cv2.COLOR_RGB2GRAY), cv2.CV_64F).var())
    return float(spearmanr(detail, mine)[0]), float(spearmanr(detail, theirs)[0])


def _rank(
    images: Sequence[np.ndarray],
    column: str,
    sizes: Sequence[float],
    make: Flaw,
    library: Callable[[np.ndarray], float] | None,
) -> tuple[float, float | None]:
    made = [(size, make(image, size)) for image in images for size in sizes]
    truth = [-size if column == "blockiness" else size for size, _ in made]
    mine = spearmanr(truth, [_describe(image)[column] or 0.0 for _, image in made])[0]
    return float(mine), float(spearmanr(truth, [library(image) for _, image in made])[0]) if library else None


def _add_noise(image: np.ndarray, deviation: float) -> np.ndarray:
    noise = np.random.default_rng(0).normal(0, deviation, image.shape[:2])[..., None]
    return np.clip(np.rint(image + noise), 0, 255).astype(np.uint8)


def _compress(image: np.ndarray, quality: float) -> np.ndarray:
    encoded = cv2.imencode(".jpg", image, [cv2.IMWRITE_JPEG_QUALITY, int(quality)])[1]
    return np.asarray(cv2.imdecode(encoded, cv2.IMREAD_COLOR))


def _immerkaer(image: np.ndarray) -> float:
    luma = cv2.cvtColor(image, cv2.COLOR_RGB2GRAY)
    return float(np.sqrt(np.pi / 2) / 6 * np.abs(cv2.filter2D(luma, cv2.CV_32F, SECOND_DIFFERENCE)).mean())
