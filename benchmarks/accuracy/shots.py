"""Transitions made between takes of photos, and clips without one, against what Shots finds.

The limit of `same_image` was chosen on other photos than these three.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import permutations

import numpy as np

from benchmarks.accuracy.figure import Figure
from stages.shots.stage import Shots
from tests.support.photos import PHOTOS
from tests.support.shots_factory import clip, described, dissolve, mixed, through

PAIRS = [((one, 0), (other, 10)) for one, other in permutations(PHOTOS, 2)]
LENGTHS = (8, 25)  # frames
Frames = Sequence[np.ndarray]


def measure() -> list[Figure]:
    """Return the figures of shots."""
    cuts = [[*clip(*one, 12), *clip(*other, 12)] for one, other in PAIRS]
    dissolves = [dissolve(*pair, length) for pair in PAIRS for length in LENGTHS]
    fades = [through(*pair, length, colour) for pair in PAIRS[:3] for length in LENGTHS for colour in (0, 255)]
    wipes = [wipe(*pair, 12) for pair in PAIRS]
    partial = [part for frames in fades for part in halves(frames)]
    return [
        _share("cuts", cuts, ["cut"], "higher"),
        _share("dissolves of 8 and 25 frames", dissolves, ["dissolve"], "higher"),
        _share("fades through black and white", fades, ["fade_out", "fade_in"], "higher"),
        _share("wipes of 12 frames", wipes, ["wipe"], "higher"),
        _share("clips that begin or end inside a fade", partial, [], "higher"),
        _share("clips that get brighter", [brighter(name, n) for name in PHOTOS for n in LENGTHS], [], "higher"),
    ]


def _share(what: str, made: Sequence[Frames], kinds: Sequence[str], better: str) -> Figure:
    """Return the share of clips in which exactly these transitions are found; a wipe may have any one kind."""
    found = [Shots()(described(frames))["transitions"]["kind"].to_pylist() for frames in made]
    right = [len(own) == 1 if kinds == ["wipe"] else own == kinds for own in found]
    data, measure_ = f"{len(made)} {what}", "clips with these transitions and no other, share"
    return Figure(
        subject="shots", data=data, measure=measure_, value=float(np.mean(right)), library=None, better=better
    )


def wipe(first: tuple[str, int], second: tuple[str, int], length: int) -> list[np.ndarray]:
    """Return twelve frames of one clip, a wipe from the left, and twelve of another."""
    one, other = clip(*first, 24 + length), clip(*second, 24 + length)
    width = one[0].shape[1]
    frames = []
    for number, (old, new) in enumerate(zip(one, other, strict=True)):
        edge = int(np.clip((number - 11) / length, 0, 1) * width)
        frames.append(np.concatenate([new[:, :edge], old[:, edge:]], axis=1))
    return frames


def halves(frames: Frames) -> list[Frames]:
    """Return a faded clip up to the middle of its first fade, and from the middle of its second one."""
    fade = (len(frames) - 44) // 2
    return [frames[: 20 + fade // 2], frames[len(frames) - 20 - fade // 2 :]]


def brighter(name: str, length: int) -> list[np.ndarray]:
    """Return a clip that goes from 0.35 to all of its light."""
    shares = np.interp(np.arange(length + 20), [10, 10 + length], [0.35, 1.0])
    return [mixed(frame, 0, 1 - share) for frame, share in zip(clip(name, 0, length + 20), shares, strict=True)]
