"""Models that follow objects through a video, by name, and their prompts: what a person clicks, draws or paints first.

The networks and their tracker are those of the stage `objects`. They are imported by name, as a pipeline file does,
since the pipeline knows no stage.
"""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal, Protocol

import numpy as np
from numpy.typing import NDArray
from scipy.ndimage import distance_transform_edt

from framekiln.contract.columns import Image
from framekiln.contract.errors import ConfigError, check_known
from framekiln.contract.placement import Placement
from framekiln.device import torch
from framekiln.lab.sav.scores import Mask

PromptKind = Literal["points", "box", "mask"]

POINT = 1  # label of a point on the object, as in Segment Anything
CORNERS = (2, 3)  # labels of a box's upper left and lower right corner

Points = tuple[NDArray[np.float32], NDArray[np.int64]]
"""Coordinates as shares of width and height (k 2), and labels (k)."""
_NETWORKS, _PROMPT = "framekiln_stages.nets.sam2.video", "framekiln_stages.shared.point_prompts:Prompt"
_EDGETAM = "framekiln_stages.nets.sam2.video"

VIDEO_MODELS: Mapping[str, str] = {
    "sam2.1-tiny": "sam2.1-hiera-tiny",
    "sam2.1-small": "sam2.1-hiera-small",
    "sam2.1-base-plus": "sam2.1-hiera-base-plus",
    "sam2.1-large": "sam2.1-hiera-large",
    "edgetam": "edgetam",
}
"""Entries of the weights lockfile by the bench's names."""


def points_of(mask: Mask, kind: PromptKind) -> Points:
    """Return the prompt of a mask with at least one pixel.

    Args:
        mask: true mask, h w.
        kind: points: the pixel that is farthest from the outline, the first of several; box: the corners of the
            smallest box around all pixels.
    """
    if kind == "points":
        depth = distance_transform_edt(np.pad(mask, 1))[1:-1, 1:-1]
        row, column = np.unravel_index(int(depth.argmax()), mask.shape)
        corners, labels = [(column + 0.5, row + 0.5)], [POINT]
    else:
        rows, columns = (np.flatnonzero(mask.any(axis=axis)) for axis in (1, 0))
        corners = [(columns[0], rows[0]), (columns[-1] + 1, rows[-1] + 1)]
        labels = list(CORNERS)
    size = np.array(mask.shape[::-1], np.float32)
    return np.array(corners, np.float32) / size, np.array(labels)


class VideoTracker(Protocol):
    """A network on its device, for one video at a time."""

    def reset(self) -> None:
        """Start a new video."""

    def add(self, prompt: Any) -> None:
        """Track another object from the next frame on, by a prompt of `prompt_of`."""

    def track(self, image: Image) -> tuple[torch.Tensor, torch.Tensor]:
        """Return logits of every object's mask in the next frame (o h w), and of its visibility (o)."""


def check_model(name: str) -> None:
    """Check that a model can be built here.

    Raises:
        ConfigError: the name is unknown, or the model's packages are missing or do not fit torch.
    """
    check_known(name, VIDEO_MODELS, f"{name!r} does not segment videos.", code="FK-SAV-MODEL")
    if name == "edgetam":
        try:
            importlib.import_module(_EDGETAM).check_packages()
        except ImportError as error:
            raise ConfigError(str(error), code="FK-SAV-TIMM") from error


def load_tracker(name: str, weights: Path | None, placement: Placement) -> VideoTracker:
    """Build a model.

    Args:
        name: one of `VIDEO_MODELS`.
        weights: file of safetensors; None for seeded random ones.
        placement: its device and precision.
    """
    networks: Any = importlib.import_module(_NETWORKS)
    return networks.Tracker(networks.load_video_model(VIDEO_MODELS[name], weights), placement)


def prompt_of(truth: Mask, kind: PromptKind) -> Any:
    """Return the prompt of an object from its true mask (h w), as `VideoTracker.add` takes it."""
    if kind == "mask":
        return truth
    module, _, name = _PROMPT.partition(":")
    points, labels = points_of(truth, kind)
    return getattr(importlib.import_module(module), name)(points=points, labels=labels)
