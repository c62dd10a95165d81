"""Poses of a video's clip: a search everywhere now and then, and around a neighbouring frame's people in between.

Some frames are searched everywhere: the first and the last of each shot of the clip, some between them, and each in
which somebody is lost. So nobody vanishes whom a full search would find. People are followed forward from such a frame
to the next one; new people there are followed back.

Shapes: `Body` of one person here, 33 5.
"""

from collections.abc import Callable, Collection, Iterator, Sequence
from typing import NamedTuple

import cv2
import numpy as np

from framekiln.contract import Image
from framekiln_stages.nets.mediapipe_tasks import Body, World
from framekiln_stages.pose.looks import SAME_BODY, Look, Net, Seen, distances, look, second_look, square_around
from framekiln_stages.shared.skeleton import LANDMARKS

# Share of the box's diagonal that somebody may move between frames. Two side by side are at least 0.27 apart.
_STEP = 0.25
_SIDES = (1.4, 2.0)  # side of the square around somebody, in longer sides of the box: the second if one shows nobody
_THUMBNAIL = (32, 32)
# Mean difference of two frames' thumbnails, in levels, from which they are searched as if a cut were between them.
_CUT = 24.0


class _Person(NamedTuple):
    """Somebody in one frame, and the last pose confirmed by two looks."""

    found: Look
    confirmed: Body


def key_frames(images: Sequence[Image], times: Sequence[float | None], seconds: float) -> set[int]:
    """Return the frames to search everywhere.

    They are the first and the last of each shot, and others, so that nobody is followed longer than `seconds`.
    """
    if not (seconds and images):
        return set(range(len(images)))
    small = [cv2.resize(image, _THUMBNAIL, interpolation=cv2.INTER_AREA).astype(np.float32) for image in images]
    cuts = [i for i in range(1, len(images)) if np.abs(small[i] - small[i - 1]).mean() > _CUT]
    moments, keys = np.array([time or 0.0 for time in times]), set[int]()
    for first, stop in zip([0, *cuts], [*cuts, len(images)], strict=True):
        shot = moments[first:stop]
        due = np.linspace(shot[0], shot[-1], 1 + int(np.ceil((shot[-1] - shot[0]) / seconds)))
        keys |= {first, stop - 1, *(first + np.searchsorted(shot, due, side="right") - 1).tolist()}
    return keys


def follow(
    net: Net, images: Sequence[Image], keys: Collection[int], look_everywhere: Callable[[int], Seen]
) -> Iterator[Seen]:
    """Yield the people in each frame of a clip.

    Args:
        net: the network.
        images: the frames, RGB, h w 3 uint8.
        keys: numbers of the frames to search everywhere, including the first and the last.
        look_everywhere: searches a frame everywhere, by its number.
    """
    people: list[_Person] = []
    between: list[list[_Person]] = []  # frames since the last full search
    for i, image in enumerate(images):
        lost = False
        if i not in keys:
            people, lost = _find_again(net, image, people)
        if i not in keys and not lost:
            between.append(people)
            continue
        seen = look_everywhere(i)
        found = [_Person(one, one.body) for one in seen.found]
        new = [one for one in found if not _is_among(one, people, _STEP, image)]
        for back in range(1, len(between) + 1):
            earlier = images[i - back]
            new = [
                one
                for one in _find_again(net, earlier, new)[0]
                if not _is_among(one, between[-back], SAME_BODY, earlier)
            ]
            between[-back] = [*between[-back], *new]
        yield from (Seen([one.found for one in frame], []) for frame in between)
        yield seen
        people, between = found, []


def _find_again(net: Net, image: Image, people: Sequence[_Person]) -> tuple[list[_Person], bool]:
    """Return a neighbouring frame's people found in this one, and whether some are missing."""
    height, width = image.shape[:2]
    free: list[tuple[Body, World]] = []  # seen here, but not yet matched
    taken: list[_Person] = []
    for one in people:
        nearest = _take_nearest(one.found.body, free, height, width)
        for side in _SIDES:
            if nearest is not None:
                break
            bodies, worlds = look(net, image, square_around(one.found.body, side, height, width))
            known = [body for body, _ in free] + [other.found.body for other in taken]
            for body, world in zip(bodies, worlds, strict=True):
                if not _is_near(body, known, SAME_BODY, height, width):
                    free.append((body, world))
            nearest = _take_nearest(one.found.body, free, height, width)
        if nearest is not None and (again := _confirm(net, image, *nearest, one.confirmed)) is not None:
            taken.append(again)
    return taken, len(taken) < len(people)


def _take_nearest(body: Body, free: list[tuple[Body, World]], height: int, width: int) -> tuple[Body, World] | None:
    apart = distances(body, np.array([one for one, _ in free], np.float32).reshape(-1, LANDMARKS, 5), height, width)
    return free.pop(int(apart.argmin())) if len(apart) and apart.min() < _STEP else None


def _confirm(net: Net, image: Image, body: Body, world: World, confirmed: Body) -> _Person | None:
    """Return somebody whose pose equals a confirmed one, or is confirmed by a second look.

    Both poses are moved to one middle. With half of `SAME_BODY` as limit, videos of 8 photos with growing motion blur
    kept as many poses, and as few wrong ones: 86 and 1.
    """
    height, width = image.shape[:2]
    moved = body.copy()
    moved[:, :2] += confirmed[:, :2].mean(0) - body[:, :2].mean(0)
    change = float(distances(moved, confirmed[None], height, width)[0])
    if change < SAME_BODY:
        return _Person(Look(body, world, change), confirmed)
    again = second_look(net, image, body, SAME_BODY).distance
    return _Person(Look(body, world, again), body) if again < SAME_BODY else None


def _is_among(one: _Person, people: Sequence[_Person], limit: float, image: Image) -> bool:
    return _is_near(one.found.body, [other.found.body for other in people], limit, *image.shape[:2])


def _is_near(body: Body, others: Sequence[Body], limit: float, height: int, width: int) -> bool:
    return bool((distances(body, np.array(others, np.float32).reshape(-1, LANDMARKS, 5), height, width) < limit).any())
