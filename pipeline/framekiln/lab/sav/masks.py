"""Masks of objects: models that follow them, prompts from true masks, and J and F as SA-V's evaluator computes them.

Networks and tracker are those of the stage `objects`. They are imported by name, as a pipeline file does, since the
pipeline knows no stage.

J is the overlap of masks, F that of their outlines (Perazzi et al., CVPR 2016, section 5.1). SA-V's evaluator is
`sav_dataset/utils/sav_benchmark.py` of facebookresearch/sam2. It leaves out each object's first and last annotated
frame. A frame without a PNG of the object is not annotated. Frames before the object first appears, in the truth or in
the result, are not counted. Later frames with two empty masks count as 1. So the prompt's frame of a late object counts
if an empty PNG precedes it.

Masks are h w bool, both of one size. Pictures show them beside the truth.
"""

from __future__ import annotations

import importlib
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import cv2
import numpy as np
from numpy.typing import NDArray
from scipy.ndimage import distance_transform_edt

from framekiln.contract.columns import Image
from framekiln.contract.errors import ConfigError, check_known
from framekiln.contract.placement import Placement
from framekiln.contract.user_files import writing

Mask = NDArray[np.bool_]

TOLERANCE = 0.008  # allowed distance of outlines, as a share of the diagonal, rounded up to px, as in DAVIS and SA-V
_FILL, _LINE = (40, 200, 90), (255, 40, 40)  # RGB of the mask, and of the true outline
_SHARE = 0.5  # of the fill; the image stays visible below
_LONGEST = 1280  # px: larger frames are reduced, since outlines and errors are seen at this size


def evaluated(annotated: Sequence[str]) -> Sequence[str]:
    """Return an object's scored annotated frames, in order: all except the first and the last."""
    return annotated[1:-1]


@dataclass(kw_only=True)
class ObjectScores:
    """J and F of one object, one value for each counted frame."""

    j: list[float] = field(default_factory=list)
    f: list[float] = field(default_factory=list)
    in_truth: bool = False  # in one of the frames; the evaluator gives other objects no score

    def add(self, mask: Mask, truth: Mask) -> None:
        """Count the next evaluated frame, in the order of the video."""
        self.in_truth = self.in_truth or bool(truth.any())
        if not self.j and not (mask.any() or truth.any()):
            return
        self.j.append(region_similarity(mask, truth))
        self.f.append(contour_accuracy(mask, truth))

    @property
    def means(self) -> tuple[float, float] | None:
        """The mean J and F, 0 to 1; None if no evaluated frame shows the object."""
        return (float(np.mean(self.j)), float(np.mean(self.f))) if self.in_truth else None


def region_similarity(mask: Mask, truth: Mask) -> float:
    """Return J: intersection over union, 0 to 1; 1 if both are empty."""
    union = int((mask | truth).sum())
    return int((mask & truth).sum()) / union if union else 1.0


def contour_accuracy(mask: Mask, truth: Mask) -> float:
    """Return F: the harmonic mean of an outline's precision and recall, 0 to 1; 1 if both are empty.

    A pixel of one outline is matched if the other has one within the tolerance. As in the benchmark's published code,
    one side is dilated with a disc, in place of a bipartite matching.
    """
    radius = math.ceil(TOLERANCE * math.hypot(*truth.shape))
    lines = [outline(area) for area in (mask, truth)]
    if not all(line.any() for line in lines):
        return 1.0 if not any(line.any() for line in lines) else 0.0
    span = np.arange(-radius, radius + 1)
    disc = (span[:, None] ** 2 + span**2 <= radius**2).astype(np.uint8)
    near = [cv2.dilate(line.astype(np.uint8), disc).astype(bool) for line in lines]
    precision, recall = (float(lines[i][near[1 - i]].sum() / lines[i].sum()) for i in (0, 1))
    return 2 * precision * recall / (precision + recall) if precision + recall else 0.0


def outline(mask: Mask) -> Mask:
    """Return the pixels that differ from the one to the right, below, or both: a line one pixel wide.

    The frame's edge is not part of it.
    """
    grown = np.pad(mask, ((0, 1), (0, 1)), mode="edge")
    here = grown[:-1, :-1]
    return (here != grown[:-1, 1:]) | (here != grown[1:, :-1]) | (here != grown[1:, 1:])


def full_size(logits: object, size: tuple[int, ...]) -> Mask:
    """Return a mask at its frame's size from logits (h w), interpolated bilinearly and above 0, as in SAM 2."""
    from torch.nn.functional import interpolate

    low: object = logits[None, None].float()  # type: ignore[index]
    return (interpolate(low, size, mode="bilinear")[0, 0] > 0).cpu().numpy()  # type: ignore[arg-type]


def write_overlay(folder: Path, stem: str, image: Image, mask: Mask, truth: Mask) -> None:
    """Write the picture of a frame into a folder: the mask filled, the true outline as a line.

    Raises OutputError: the file cannot be written.
    """
    picture = draw(image, mask, truth)
    longest = max(picture.shape[:2])
    if longest > _LONGEST:
        size = tuple(round(side * _LONGEST / longest) for side in picture.shape[1::-1])
        picture = cv2.resize(picture, size, interpolation=cv2.INTER_AREA)
    with writing(folder / f"{stem}.jpg") as path:
        path.write_bytes(cv2.imencode(".jpg", picture[:, :, ::-1])[1].tobytes())


def draw(image: Image, mask: Mask, truth: Mask) -> Image:
    """Return a copy of an image (h w 3) with a filled mask and the true mask's outline, both h w."""
    picture = image.copy()
    picture[mask] = (_SHARE * image[mask] + (1 - _SHARE) * np.array(_FILL)).astype(np.uint8)
    line = cv2.dilate(outline(truth).astype(np.uint8), np.ones((2, 2), np.uint8)).astype(bool)
    picture[line] = _LINE
    return picture


PromptKind = Literal["points", "box", "mask"]

POINT = 1  # label of a point on the object, as in Segment Anything
CORNERS = (2, 3)  # labels of a box's upper left and lower right corner

Points = tuple[NDArray[np.float32], NDArray[np.int64]]
"""Coordinates as shares of width and height (k 2), and labels (k)."""
_NETWORKS, _PROMPTS = "framekiln_stages.nets.sam2.video", "framekiln_stages.shared.point_prompts"

VIDEO_MODELS: Mapping[str, str] = {
    "sam2.1-tiny": "sam2.1-hiera-tiny",
    "sam2.1-small": "sam2.1-hiera-small",
    "sam2.1-base-plus": "sam2.1-hiera-base-plus",
    "sam2.1-large": "sam2.1-hiera-large",
    "edgetam": "edgetam",
}
"""Entries of the weights lockfile by the bench's names."""


def points_of(mask: Mask, kind: PromptKind) -> Points:
    """Return the prompt of a true mask (h w) with at least one pixel.

    points: the pixel farthest from the outline, the first of several. box: the corners of the smallest box.
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


def check_model(name: str) -> None:
    """Check that a model can be built here.

    Raises ConfigError: the name is unknown, or the model's packages are missing or do not fit torch.
    """
    check_known(name, VIDEO_MODELS, f"{name!r} does not segment videos.", code="FK-SAV-MODEL")
    if name == "edgetam":
        try:
            importlib.import_module(_NETWORKS).check_packages()
        except ImportError as error:
            raise ConfigError(str(error), code="FK-SAV-TIMM") from error


def load_tracker(name: str, weights: Path | None, placement: Placement) -> Any:
    """Build one of `VIDEO_MODELS` from a file of safetensors; None for seeded random weights.

    It tracks one video at a time, and `reset` starts a new one. `add` takes a prompt of `prompt_of` for the next frame
    on. `track` returns logits of all objects' masks in the next image (o h w), and of their visibility (o).
    """
    networks: Any = importlib.import_module(_NETWORKS)
    return networks.Tracker(networks.load_video_model(VIDEO_MODELS[name], weights), placement)


def prompt_of(truth: Mask, kind: PromptKind) -> Any:
    """Return the prompt of an object from its true mask (h w), as a tracker's `add` takes it."""
    if kind == "mask":
        return truth
    points, labels = points_of(truth, kind)
    return importlib.import_module(_PROMPTS).Prompt(points=points, labels=labels)
