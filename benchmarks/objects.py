"""Quality of object tracking: J and F of each object, on videos in the layout of DAVIS or SA-V.

    python -m benchmarks.objects DIR [--weights FILE] [--model sam2.1-hiera-tiny] [--device cuda] [--video NAME ...]

DIR holds frames in JPEGImages*/[480p/]VIDEO/*.jpg and masks in Annotations*/: either one palette image a frame with a
level for each object (DAVIS: VIDEO/00000.png), or a folder for each object (SA-V: VIDEO/000/00000.png). The prompt of
an object is its first mask. It is scored on every later frame with a mask except the last, as in DAVIS. Without
--weights they are random, and the scores mean nothing.

J is the overlap of masks, F that of their outlines: Perazzi et al., "A Benchmark Dataset and Evaluation Methodology for
Video Object Segmentation", CVPR 2016, section 5.1. Masks are h w bool, both of one size.
"""

from __future__ import annotations

import argparse
import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

import cv2
import numpy as np

from pipeline.contract.placement import Placement
from stages.nets.sam2.edgetam import EDGETAM
from stages.nets.sam2.image import MODELS
from stages.nets.sam2.video import Tracker, load_video_model
from stages.shared.mask_proposals import upsample_masks
from stages.shared.masks import Mask

TOLERANCE = 0.008  # of the diagonal, rounded up to px: allowed distance of outlines, as in the benchmark


def region_similarity(mask: Mask, truth: Mask) -> float:
    """Return J: intersection over union, 0 to 1; 1 where both are empty."""
    union = int((mask | truth).sum())
    return int((mask & truth).sum()) / union if union else 1.0


def contour_accuracy(mask: Mask, truth: Mask, tolerance: float = TOLERANCE) -> float:
    """Return F: the harmonic mean of an outline's precision and recall, 0 to 1; 1 where both are empty.

    A pixel of one outline is matched where the other has one within the tolerance. As in the benchmark's published
    code, one side is dilated with a disc instead of a bipartite matching.
    """
    radius = math.ceil(tolerance * math.hypot(*truth.shape))
    lines = [outline(area) for area in (mask, truth)]
    if not all(line.any() for line in lines):
        return 1.0 if not any(line.any() for line in lines) else 0.0
    span = np.arange(-radius, radius + 1)
    disc = (span[:, None] ** 2 + span**2 <= radius**2).astype(np.uint8)
    near = [cv2.dilate(line.astype(np.uint8), disc).astype(bool) for line in lines]
    precision, recall = (float(lines[i][near[1 - i]].sum() / lines[i].sum()) for i in (0, 1))
    return 2 * precision * recall / (precision + recall) if precision + recall else 0.0


def outline(mask: Mask) -> Mask:
    """Return the pixels that differ from one to the right, below, or both: a line one pixel wide.

    The frame's edge is not part of it.
    """
    grown = np.pad(mask, ((0, 1), (0, 1)), mode="edge")
    here = grown[:-1, :-1]
    return (here != grown[:-1, 1:]) | (here != grown[1:, :-1]) | (here != grown[1:, 1:])


@dataclass(frozen=True, kw_only=True)
class Video:
    """Frames in order, and their true masks."""

    name: str
    frames: list[Path]
    masks: Mapping[str, list[Path]]  # by frame; one image of all objects, or one for each
    whole: bool  # one image of all objects

    def truth(self, frame: Path) -> dict[int, Mask]:
        """Return the masks of a frame by object number; empty where it has none."""
        images = self.masks.get(frame.stem, [])
        if self.whole:
            levels = [labels(path) for path in images]
            return {int(n): level == n for level in levels for n in np.unique(level) if n not in (0, 255)}
        return {int(path.parent.name): labels(path) > 0 for path in images}


@dataclass
class Scores:
    """J and F of one object, a value a frame."""

    j: list[float] = field(default_factory=list)
    f: list[float] = field(default_factory=list)


def labels(path: Path) -> np.ndarray:
    """Return an image's palette indices or grey levels (h w)."""
    from PIL import Image

    with Image.open(path) as image:
        return np.asarray(image if image.mode in ("P", "L") else image.convert("L"))


def videos(root: Path) -> list[Video]:
    """Return the videos in a folder.

    Raises:
        FileNotFoundError: no frames, or none with masks.
    """
    images, notes = (sorted(root.glob(f"{kind}*")) for kind in ("JPEGImages", "Annotations"))
    if not images or not notes:
        raise FileNotFoundError(f"{root} has no JPEGImages* and Annotations*")
    folders = {path.parent for path in images[0].rglob("*.jpg")}
    annotated = []
    for folder in sorted(folders):
        masks = notes[0] / folder.relative_to(images[0])
        paths = sorted(masks.rglob("*.png"))
        by_frame: dict[str, list[Path]] = {}
        for path in paths:
            by_frame.setdefault(path.stem, []).append(path)
        if paths:
            whole = paths[0].parent == masks
            annotated.append(Video(name=folder.name, frames=sorted(folder.glob("*.jpg")), masks=by_frame, whole=whole))
    if not annotated:
        raise FileNotFoundError(f"{root} has no video with both frames and masks")
    return annotated


def score(video: Video, tracker: Tracker) -> dict[int, Scores]:
    """Return the scores of every object of a video."""
    tracker.reset()
    numbers: dict[int, int] = {}  # tracker's by annotated
    scores: dict[int, Scores] = {}
    for path in video.frames:
        truth = video.truth(path)
        new = [theirs for theirs, mask in truth.items() if theirs not in numbers and mask.any()]
        for theirs in new:
            numbers[theirs], scores[theirs] = len(numbers), Scores()
            tracker.add(truth[theirs])
        if not numbers:
            continue
        image = cv2.cvtColor(cv2.imread(str(path)), cv2.COLOR_BGR2RGB)
        logits, _ = tracker.track(image)
        if not truth or path == video.frames[-1]:
            continue
        height, width = image.shape[:2]
        masks = upsample_masks(logits, (0, 0, width, height), (height, width), 0.0)
        for theirs, ours in numbers.items():
            if theirs not in new:
                known = truth.get(theirs, np.zeros((height, width), bool))
                scores[theirs].j.append(region_similarity(masks[ours], known))
                scores[theirs].f.append(contour_accuracy(masks[ours], known))
    return scores


def main() -> None:
    """Print a line for each object and one for all."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--weights", type=Path)
    parser.add_argument("--model", choices=[*MODELS, EDGETAM], default="sam2.1-hiera-large")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--precision", default="mixed")
    parser.add_argument("--video", action="append", help="only these")
    args = parser.parse_args()
    model = load_video_model(args.model, args.weights)
    tracker = Tracker(model, Placement(device=args.device, precision=args.precision))
    every = Scores()
    if args.weights is None:
        print("random weights: the scores below mean nothing")
    for video in videos(args.folder):
        if args.video and video.name not in args.video:
            continue
        for number, scores in score(video, tracker).items():
            if scores.j:
                j, f = float(np.mean(scores.j)), float(np.mean(scores.f))
                every.j.append(j)
                every.f.append(f)
                print(f"{video.name} object {number}: J {j:.3f} F {f:.3f} ({len(scores.j)} frames)")
    if every.j:
        j, f = float(np.mean(every.j)), float(np.mean(every.f))
        print(f"{len(every.j)} objects: J {j:.3f} F {f:.3f} J&F {(j + f) / 2:.3f}")


if __name__ == "__main__":
    main()
