"""Quality of object tracking: J and F of each object, on videos in the layout of DAVIS or SA-V.

    python -m benchmarks.objects DIR [--weights FILE] [--model sam2.1-hiera-tiny] [--device cuda] [--video NAME ...]

All objects of a video are tracked together, each from its first mask on. Frames are read, counted and scored by
`framekiln.lab.sav`, as SA-V's evaluator does. Without --weights they are random, and the scores mean nothing.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import numpy as np

from framekiln.contract.placement import Placement
from framekiln.lab.sav.layout import AnnotatedVideo, annotated_videos
from framekiln.lab.sav.masks import ObjectScores, VideoTracker, evaluated, full_size
from framekiln_stages.nets.sam2.image import MODELS
from framekiln_stages.nets.sam2.video import EDGETAM, Tracker, load_video_model


def score(video: AnnotatedVideo, tracker: VideoTracker) -> dict[str, ObjectScores]:
    """Return the scores of every object of a video."""
    tracker.reset()
    scores = {name: ObjectScores() for name in video.objects}
    counted = {name: set(evaluated(video.annotated(name))) for name in scores}
    starts = {name: video.first_visible(name) for name in scores}
    tracked: list[str] = []  # objects in the tracker's order
    for stem, image in video.images():
        for name in [name for name, start in starts.items() if start == stem]:
            tracked.append(name)
            tracker.add(video.truth(name, stem))
        masks = {}
        if tracked:
            logits, _ = tracker.track(image)
            masks = {name: full_size(part, image.shape[:2]) for name, part in zip(tracked, logits, strict=True)}
        for name in [name for name, stems in counted.items() if stem in stems]:
            scores[name].add(masks.get(name, np.zeros(image.shape[:2], bool)), video.truth(name, stem))
    return scores


def main() -> None:
    """Print a line for each object and one for all."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--weights", type=Path)
    parser.add_argument("--model", choices=[*MODELS, EDGETAM], default="sam2.1-hiera-large")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--precision", default="auto")
    parser.add_argument("--video", action="append", help="only these")
    args = parser.parse_args()
    model = load_video_model(args.model, args.weights)
    tracker = Tracker(model, Placement(device=args.device, precision=args.precision))
    every: list[tuple[float, float]] = []
    if args.weights is None:
        print("random weights: the scores below mean nothing")
    for video in annotated_videos(args.folder):
        if args.video and video.name not in args.video:
            continue
        for name, scores in score(video, tracker).items():
            if scores.means:
                every.append(scores.means)
                j, f = scores.means
                print(f"{video.name} object {name}: J {j:.3f} F {f:.3f} ({len(scores.j)} frames)")
    if every:
        j, f = np.mean(every, axis=0)
        print(f"{len(every)} objects: J {j:.3f} F {f:.3f} J&F {(j + f) / 2:.3f}")


if __name__ == "__main__":
    main()
