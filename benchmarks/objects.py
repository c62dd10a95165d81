"""How well objects are followed: J and F of each, on videos laid out as DAVIS or SA-V have them.

    python benchmarks/objects.py DIR [--weights FILE] [--model sam2.1-hiera-tiny] [--device cuda] [--video NAME ...]

DIR holds frames in JPEGImages*/[480p/]VIDEO/*.jpg and masks in Annotations*/, either one palette picture a frame whose
levels are objects (DAVIS: VIDEO/00000.png), or a folder for each object (SA-V: VIDEO/000/00000.png). Each object is
shown by its first mask, and judged on every later frame that has one but the last, as DAVIS does. Without --weights
they are random, and the numbers mean nothing.

Perazzi et al. 2016: J is the overlap of masks, F of their outlines.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

import cv2
import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from pipeline.stage import Placement
from stages.nets.agreement import outline_score, overlap
from stages.nets.edgetam import EDGETAM
from stages.nets.masks import Mask
from stages.nets.proposals import enlarged
from stages.nets.sam2 import MODELS
from stages.nets.sam2_video import Tracker, built


@dataclass(frozen=True, kw_only=True)
class Video:
    """Frames in order, and what is known of them."""

    name: str
    frames: list[Path]
    masks: Mapping[str, list[Path]]  # by frame; one picture of all objects, or one for each
    whole: bool  # one picture of all objects

    def truth(self, frame: Path) -> dict[int, Mask]:
        """The objects of a frame, by number; none where it has no masks."""
        pictures = self.masks.get(frame.stem, [])
        if self.whole:
            levels = [labels(path) for path in pictures]
            return {int(n): one == n for one in levels for n in np.unique(one) if n not in (0, 255)}
        return {int(path.parent.name): labels(path) > 0 for path in pictures}


@dataclass
class Scores:
    """J and F of one object, a value a frame."""

    j: list[float] = field(default_factory=list)
    f: list[float] = field(default_factory=list)


def labels(path: Path) -> np.ndarray:
    """A picture's palette indices or grey levels (h w)."""
    from PIL import Image

    with Image.open(path) as image:
        return np.asarray(image if image.mode in ("P", "L") else image.convert("L"))


def videos(root: Path) -> list[Video]:
    """What lies in a folder.

    Raises:
        FileNotFoundError: no frames, or none with masks.
    """
    images, notes = (sorted(root.glob(f"{kind}*")) for kind in ("JPEGImages", "Annotations"))
    if not images or not notes:
        raise FileNotFoundError(f"{root} has no JPEGImages* and Annotations*")
    folders = {path.parent for path in images[0].rglob("*.jpg")}
    found = []
    for folder in sorted(folders):
        known = notes[0] / folder.relative_to(images[0])
        paths = sorted(known.rglob("*.png"))
        by_frame: dict[str, list[Path]] = {}
        for path in paths:
            by_frame.setdefault(path.stem, []).append(path)
        if paths:
            whole = paths[0].parent == known
            found.append(Video(name=folder.name, frames=sorted(folder.glob("*.jpg")), masks=by_frame, whole=whole))
    if not found:
        raise FileNotFoundError(f"{root} has no video with both frames and masks")
    return found


def judged(video: Video, tracker: Tracker) -> dict[int, Scores]:
    """Scores of every object of a video."""
    tracker.begin()
    numbers: dict[int, int] = {}  # ours by theirs
    found: dict[int, Scores] = {}
    for path in video.frames:
        truth = video.truth(path)
        new = [theirs for theirs, mask in truth.items() if theirs not in numbers and mask.any()]
        for theirs in new:
            numbers[theirs], found[theirs] = len(numbers), Scores()
            tracker.add(truth[theirs])
        if not numbers:
            continue
        image = cv2.cvtColor(cv2.imread(str(path)), cv2.COLOR_BGR2RGB)
        logits, _ = tracker.look(image)
        if not truth or path == video.frames[-1]:
            continue
        height, width = image.shape[:2]
        masks = enlarged(logits, (0, 0, width, height), (height, width), 0.0)
        for theirs, ours in numbers.items():
            if theirs not in new:
                known = truth.get(theirs, np.zeros((height, width), bool))
                found[theirs].j.append(overlap(masks[ours], known))
                found[theirs].f.append(outline_score(masks[ours], known))
    return found


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
    model = built(args.model, args.weights)
    tracker = Tracker(model, Placement(device=args.device, precision=args.precision))
    every = Scores()
    if args.weights is None:
        print("random weights: the numbers below mean nothing")
    for video in videos(args.folder):
        if args.video and video.name not in args.video:
            continue
        for number, scores in judged(video, tracker).items():
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
