"""Transitions made between takes of photos, and clips without one, against what Shots finds.

Limits were chosen on other photos and clips than these three photos (`framekiln_stages.shots`: `gradual`,
`transitions`).
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import permutations

import numpy as np

from benchmarks.accuracy import AccuracyFigure
from framekiln_stages.shots.stage import Shots
from tests.support.media.photos import PHOTOS
from tests.support.stages.shots_factory import clip, described, dissolve, mixed, through, whip, wipe

PAIRS = [((one, 0), (other, 10)) for one, other in permutations(PHOTOS, 2)]
LENGTHS = (8, 25)  # frames
STEPS = ((4.0, 6.0), (6.0, 0.7))  # px a frame of the two clips
WAYS = ("right", "left", "down", "up")
FAST = (20, 40, 60, 80)  # px a frame
Frames = Sequence[np.ndarray]


def measure() -> list[AccuracyFigure]:
    """Return the figures of shots."""
    cuts = [[*clip(*one, 12), *clip(*other, 12)] for one, other in PAIRS]
    dissolves = [dissolve(*pair, length) for pair in PAIRS for length in LENGTHS]
    fades = [through(*pair, length, colour) for pair in PAIRS[:3] for length in LENGTHS for colour in (0, 255)]
    moving = [dissolve(*pair, length, steps) for pair in PAIRS[:3] for length in LENGTHS for steps in STEPS]
    wipes = [wipe(*pair, length, way) for pair in PAIRS[::3] for length in LENGTHS for way in WAYS]
    partial = [part for frames in fades for part in halves(frames)]
    return [
        _share("cuts", cuts, ["cut"], "higher"),
        _share("dissolves of 8 and 25 frames", dissolves, ["dissolve"], "higher"),
        _share("fades through black and white", fades, ["fade_out", "fade_in"], "higher"),
        _share("dissolves between pans of 4 and 6 px a frame", moving, ["dissolve"], "higher"),
        _share("wipes of 8 and 25 frames", wipes, ["wipe"], "higher"),
        _share(
            "pans of 20 to 80 px of 398 a frame", [whip(name, step) for name in PHOTOS for step in FAST], [], "higher"
        ),
        _share("pop-ups of 0.15 to 0.6 of the frame", popups(), [], "higher"),
        _share("clips that begin or end inside a fade", partial, [], "higher"),
        _share("clips that get brighter", [brighter(name, n) for name in PHOTOS for n in LENGTHS], [], "higher"),
    ]


def _share(what: str, made: Sequence[Frames], kinds: Sequence[str], better: str) -> AccuracyFigure:
    """Return the share of clips in which exactly these transitions are found."""
    found = [Shots()(described(frames))["transitions"]["kind"].to_pylist() for frames in made]
    right = [own == kinds for own in found]
    data, measure_ = f"{len(made)} {what}", "clips with these transitions and no other, share"
    return AccuracyFigure(
        subject="shots", data=data, measure=measure_, value=float(np.mean(right)), library=None, better=better
    )


def popups() -> Sequence[Frames]:
    """Return clips in which a part of another photo is shown for ten frames."""
    made = []
    for number, share in enumerate((0.15, 0.3, 0.6)):
        (name, _), (other, start) = PAIRS[2 * number]
        frames, shown = [frame.copy() for frame in clip(name, 0, 30)], clip(other, start, 1)[0]
        height, width = (int(side * share**0.5) for side in shown.shape[:2])
        for frame in frames[10:20]:
            frame[:height, -width:] = shown[:height, :width]
        made.append(frames)
    return made


def halves(frames: Frames) -> list[Frames]:
    """Return a faded clip up to the middle of its first fade, and from the middle of its second one."""
    fade = (len(frames) - 44) // 2
    return [frames[: 20 + fade // 2], frames[len(frames) - 20 - fade // 2 :]]


def brighter(name: str, length: int) -> list[np.ndarray]:
    """Return a clip that goes from 0.35 to all of its light."""
    shares = np.interp(np.arange(length + 20), [10, 10 + length], [0.35, 1.0])
    return [mixed(frame, 0, 1 - share) for frame, share in zip(clip(name, 0, length + 20), shares, strict=True)]
