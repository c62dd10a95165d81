"""Flow against true motion: RubberWhale, and frames made as a car's camera would see a photo.

The least agreement was chosen on other photos and other motion than those here (`min_agreement` in the stage).
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

import cv2
import numpy as np

from benchmarks.accuracy import AccuracyFigure
from framekiln_stages.flow.flow_colors import decode
from tests.support.media.photos import PHOTOS, photo
from tests.support.stages.flow_factory import driven, off, ready, rubberwhale, table

MOTIONS = (5, 20, 45, 90, 150, 220)  # px of 1242
RIGHT = 0.3  # largest relative error of a mean length that counts as right
_figure = partial(AccuracyFigure, "flow", better="lower")


def measure() -> list[AccuracyFigure]:
    """Return the figures of flow."""
    frames, truth = rubberwhale()
    direct = _dis(frames)
    (row, _) = ready(cache=True)(table(frames)).to_pylist()
    field = decode(row["flow_field"])
    scale = np.array([truth.shape[1] / field.shape[1], truth.shape[0] / field.shape[0]], np.float32)
    whale = np.asarray(cv2.resize(field, (truth.shape[1], truth.shape[0])) * scale)
    exact = _figure("RubberWhale at 584x388", "end-point error, px", off(whale, truth), off(direct, truth))
    return [exact, *_large()]


def _large() -> list[AccuracyFigure]:
    """Return figures of made motion at 1242x375; the library is DIS called on the full frames, without agreement."""
    mine, theirs, given = [], [], []
    for name in PHOTOS:
        for number, pixels in enumerate(MOTIONS):
            frames, truth = driven(photo(name), pixels, float(number))
            (row, _) = ready()(table(frames)).to_pylist()
            true = float(np.linalg.norm(truth, axis=-1).mean())
            flow = _dis(frames)
            theirs.append(abs(float(np.linalg.norm(flow, axis=-1).mean()) - true) / true > RIGHT)
            given.append(row["motion_mean"] is not None)
            mine.append(given[-1] and abs(row["motion_mean"] - true) / true > RIGHT)
    data = f"{len(given)} made pairs of 1242x375, motion of {MOTIONS[0]} to {MOTIONS[-1]} px"
    wrong = _figure(data, "mean motion wrong by 30 %, share", float(np.mean(mine)), float(np.mean(theirs)))
    return [wrong, _figure(data, "mean motion given, share", float(np.mean(given)), 1.0, better="higher")]


def _dis(frames: Sequence[np.ndarray]) -> np.ndarray:
    """Return OpenCV's flow between two RGB frames at full size."""
    now, then = (cv2.cvtColor(frame, cv2.COLOR_RGB2GRAY) for frame in frames)
    start = np.zeros((*now.shape, 2), np.float32)
    dis = cv2.DISOpticalFlow.create(cv2.DISOPTICAL_FLOW_PRESET_MEDIUM)
    return np.asarray(dis.calc(now, then, start))
