"""Poses of a video's clip: a search everywhere now and then, and around a neighbouring frame's people in between.

Some frames are searched everywhere: the first and the last of each shot of the clip, and some between them. People are
followed forward from such a frame to the next one; new people there are followed back. Where somebody is lost, the
whole image and the tiles around the person are searched. Only new people get second looks.

Shapes: `Body` of one person here, 33 5.
"""

import itertools
from collections.abc import Collection, Iterator, Sequence
from typing import NamedTuple

import cv2
import numpy as np

from framekiln.contract import Image
from framekiln_stages.nets.mediapipe_tasks import Body, World
from framekiln_stages.pose.looks import (
    NOBODY,
    SAME_BODY,
    Look,
    Net,
    Seen,
    distances,
    distinct,
    is_near,
    look,
    pixel_boxes,
    search,
    second_look,
    square_around,
    stacked,
    tiles,
)

# Share of the box's diagonal that somebody may move between frames. Two side by side are at least 0.27 apart.
_STEP = 0.25
_SIDES = (1.4, 2.0)  # side of the square around somebody, in longer sides of the box: the second if one shows nobody
_FILLED = 0.9  # share of a tile inside a known person's box, from which it is not looked at
_THUMBNAIL = (32, 32)
# Mean difference of two frames' thumbnails, in levels, from which they are searched as if a cut were between them.
_CUT = 24.0


class _Person(NamedTuple):
    """Somebody in one frame, and the last pose confirmed by two looks."""

    found: Look
    confirmed: Body


class _Frame(NamedTuple):
    """A frame, its people, and its poses that no second look confirmed."""

    image: Image
    people: list[_Person]
    doubtful: list[tuple[Body, float]]


def shots(images: Sequence[Image], seconds: float) -> list[slice]:
    """Return the frames between cuts; each frame by itself if `seconds` is 0."""
    small = [cv2.resize(image, _THUMBNAIL, interpolation=cv2.INTER_AREA).astype(np.float32) for image in images]
    cuts = [i for i in range(1, len(images)) if not seconds or np.abs(small[i] - small[i - 1]).mean() > _CUT]
    return [slice(first, stop) for first, stop in itertools.pairwise(sorted({0, *cuts, len(images)}))]


def key_frames(times: Sequence[float | None], seconds: float) -> set[int]:
    """Return the frames of a shot to search everywhere.

    They are the first, the last, and others, so that nobody is followed longer than `seconds`.
    """
    moments = np.array([time or 0.0 for time in times])
    length = moments[-1] - moments[0]
    due = np.linspace(moments[0], moments[-1], 1 + int(np.ceil(length / seconds)) if length else 1)
    return {0, len(times) - 1, *(np.searchsorted(moments, due, side="right") - 1).tolist()}


def follow(net: Net, images: Sequence[Image], keys: Collection[int], tile: float) -> Iterator[Seen]:
    """Yield the people in each frame of a shot.

    Args:
        net: the network.
        images: the frames, RGB, h w 3 uint8.
        keys: numbers of the frames to search everywhere, including the first and the last.
        tile: side of the tiles, as in `tiles`.
    """
    before: list[_Person] = []
    frames: list[_Frame] = []  # since the last search everywhere
    for i, image in enumerate(images):
        whole = net(image) if i in keys else NOBODY
        people, lost = _find_again(net, image, before, whole)
        frame = _Frame(image, people, [])
        if len(lost) or i in keys:
            new = _find_new(net, frame, whole if i in keys else net(image), tile, lost, everywhere=i in keys)
            _follow_back(net, frames, [one for one in new if not _is_among(one, before, _STEP, image)])
        before = frame.people
        frames.append(frame)
        if i in keys:
            yield from (Seen([one.found for one in frame.people], frame.doubtful) for frame in frames)
            frames.clear()


def _find_new(
    net: Net, frame: _Frame, whole: tuple[Body, World], tile: float, lost: Body, *, everywhere: bool
) -> list[_Person]:
    """Add new people to a frame, and return them. Search all tiles (`everywhere`), or those with a lost person."""
    height, width = frame.image.shape[:2]
    known = stacked(one.found.body for one in frame.people)
    there, lost_there = pixel_boxes(known, height, width), pixel_boxes(lost, height, width)
    parts = [part for part in tiles(height, width, tile) if part.share_in(there) < _FILLED]
    parts = [part for part in parts if everywhere or part.share_in(lost_there)]
    seen = search(net, frame.image, whole, parts, known, lost)
    new = [_Person(one, one.body) for one in seen.found]
    frame.people.extend(new)
    frame.doubtful.extend(seen.doubtful)
    return new


def _follow_back(net: Net, frames: Sequence[_Frame], new: Sequence[_Person]) -> None:
    """Add people to earlier frames, as far back as they are seen."""
    for image, people, _ in reversed(frames):
        again, _ = _find_again(net, image, new)
        new = [one for one in again if not _is_among(one, people, SAME_BODY, image)]
        people.extend(new)


def _find_again(
    net: Net, image: Image, people: Sequence[_Person], whole: tuple[Body, World] = NOBODY
) -> tuple[list[_Person], Body]:
    """Return a neighbouring frame's people found in this one, and the poses there of the missing.

    Poses that the whole image shows come first; so whoever is among them costs no look.
    """
    height, width = image.shape[:2]
    free = [(whole[0][i], whole[1][i]) for i in distinct(whole[0], height, width)]  # seen here, but not yet matched
    taken, lost = list[_Person](), list[Body]()
    for one in people:
        nearest = _take_nearest(one.found.body, free, height, width)
        for side in _SIDES:
            if nearest is not None:
                break
            bodies, worlds = look(net, image, square_around(one.found.body, side, height, width))
            known = [body for body, _ in free] + [other.found.body for other in taken]
            for body, world in zip(bodies, worlds, strict=True):
                if not is_near(body, known, SAME_BODY, height, width):
                    free.append((body, world))
            nearest = _take_nearest(one.found.body, free, height, width)
        if nearest is not None and (again := _confirm(net, image, *nearest, one.confirmed)) is not None:
            taken.append(again)
        else:
            lost.append(one.found.body)
    return taken, stacked(lost)


def _take_nearest(body: Body, free: list[tuple[Body, World]], height: int, width: int) -> tuple[Body, World] | None:
    apart = distances(body, stacked(one for one, _ in free), height, width)
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
    return is_near(one.found.body, [other.found.body for other in people], limit, *image.shape[:2])
