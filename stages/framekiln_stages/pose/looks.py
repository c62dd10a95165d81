"""Poses as arrays, and looks at parts of an image: at small people, and mirrored to confirm a pose.

BlazePose's detector sees 224 px of any image, so a small person must be searched in a part of it. There it also takes a
knob, a flower or half a person for somebody. So each pose is looked at again, mirrored, in squares around it. On sharp
people both poses agree to 0.03 of the box's diagonal. Under artificial motion blur, every pose wrong by more than 0.1
was not found again within 0.1 (10 of 10, on 12 images).

Shapes: p people of one image; `Body` p 33 5 and `World` p 33 3 as in `framekiln_stages.nets.mediapipe_tasks`.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from framekiln.contract import Image
from framekiln_stages.nets.mediapipe_tasks import Body, World
from framekiln_stages.shared.masks import landmark_boxes
from framekiln_stages.shared.skeleton import LANDMARKS, MIRRORED

# Share of the box's diagonal. One person detected twice, in 11 photos: 0.009 to 0.09; two side by side: at least 0.27.
SAME_BODY = 0.1


def scores(body: Body) -> NDArray[np.float32]:
    """Return the mean visibility of each person's landmarks (p), 0 to 1.

    The Tasks API does not return the detector's score.
    """
    return body[:, :, 3].mean(axis=1)


def pixel_boxes(body: Body, height: int, width: int) -> NDArray[np.float64]:
    """Return the boxes around the landmarks inside an image: p 4, x0 y0 x1 y1 in px."""
    return landmark_boxes(body).astype(np.float64) * [width, height, width, height]


def share_in(box: NDArray[np.float64], others: NDArray[np.float64]) -> float:
    """Return the largest share of a box (4) that lies in one of some others (n 4)."""
    sides = np.minimum(box[2:], others[:, 2:]) - np.maximum(box[:2], others[:, :2])
    areas = np.prod(sides.clip(0), axis=1)
    return float(areas.max(initial=0.0) / max(float(np.prod(box[2:] - box[:2])), 1e-9))


def distances(one: Body, others: Body, height: int, width: int) -> NDArray[np.float64]:
    """Return the distances of one pose (33 5) from others (p), in diagonals of the larger box.

    It is the mean distance of the landmarks, weighted by presence in both.
    """
    if not len(others):
        return np.empty(0)
    size = np.array([width, height], np.float64)
    apart = np.hypot(*np.moveaxis((one[None, :, :2] - others[:, :, :2]) * size, -1, 0))
    weights = one[None, :, 4] * others[:, :, 4] + 1e-9
    boxes = pixel_boxes(np.concatenate([one[None], others]), height, width)
    diagonals = np.hypot(*(boxes[:, 2:] - boxes[:, :2]).T)
    largest = np.maximum(np.maximum(diagonals[0], diagonals[1:]), 1e-9)
    return np.asarray((apart * weights).sum(1) / weights.sum(1) / largest)


def stacked(bodies: Iterable[Body]) -> Body:
    """Return poses of one person each (33 5) as one array."""
    return np.array(list(bodies), np.float32).reshape(-1, LANDMARKS, 5)


def is_near(one: Body, others: Iterable[Body], limit: float, height: int, width: int) -> bool:
    """Return whether a pose (33 5) is nearer than `limit` to one of some others (33 5 each)."""
    return bool((distances(one, stacked(others), height, width) < limit).any())


def distinct(body: Body, height: int, width: int) -> list[int]:
    """Return the indices of distinct people, the most visible first.

    Two detections of one person pass the detector's non-maximum suppression if their boxes differ; both then end on the
    same landmarks. Two people are the same if they are less than `SAME_BODY` apart.
    """
    kept: list[int] = []
    for i in np.argsort(-scores(body), kind="stable").tolist():
        if not is_near(body[i], body[kept], SAME_BODY, height, width):
            kept.append(i)
    return kept


Net = Callable[[Image], tuple[Body, World]]
NOBODY: tuple[Body, World] = (np.empty((0, LANDMARKS, 5), np.float32), np.empty((0, LANDMARKS, 3), np.float32))

# Sides of second looks, in longer sides of the person's box. The smaller keeps neighbours out, since the detector might
# take one. The larger shows a whole person if the box has a part.
AROUND = (1.2, 1.4, 2.0)
OVERLAP = 1 / 3  # overlap of neighbouring tiles: with 1/2, 12 % more looks found the same 23 of 30 people
LEAST_SIDE = 24  # px; in smaller squares, noise looks like people


class Square(NamedTuple):
    """A part of an image, in px; it may reach beyond the image."""

    x: int
    y: int
    side: int

    def share_in(self, boxes: NDArray[np.float64]) -> float:
        """Return the largest share of the square that lies in one of some boxes (n 4)."""
        return share_in(np.array([self.x, self.y, self.x + self.side, self.y + self.side], np.float64), boxes)


class Look(NamedTuple):
    """A pose, and its distance from another look."""

    body: Body  # 33 5
    world: World  # 33 3
    distance: float  # distance of the two looks, as in `distances`; infinite if the second found nobody


class Seen(NamedTuple):
    """The people of an image, and poses that no second look confirmed, with the distance of the nearest one."""

    found: list[Look]
    doubtful: list[tuple[Body, float]]


def tiles(height: int, width: int, share: float) -> Iterator[Square]:
    """Return overlapping squares that cover an image; `share` is their side as a share of the image's short side."""
    side = int(min(height, width) * share)
    if side < LEAST_SIDE:
        return
    for y in _place_starts(height, side):
        for x in _place_starts(width, side):
            yield Square(x, y, side)


def _place_starts(length: int, side: int) -> list[int]:
    count = 1 + int(np.ceil((length - side) / (side * (1 - OVERLAP))))
    return sorted({int(start) for start in np.linspace(0, length - side, count)})


def look(net: Net, image: Image, square: Square, *, mirrored: bool = False) -> tuple[Body, World]:
    """Return the people whom the network sees in a square, in fractions of the whole image."""
    height, width = image.shape[:2]
    x0, y0 = max(0, square.x), max(0, square.y)
    x1, y1 = min(width, square.x + square.side), min(height, square.y + square.side)
    if min(x1 - x0, y1 - y0) < LEAST_SIDE:
        return NOBODY
    part = image[y0:y1, x0:x1]
    body, world = net(np.ascontiguousarray(part[:, ::-1]) if mirrored else part)
    if mirrored:
        body, world = body[:, MIRRORED], world[:, MIRRORED]
        body[:, :, 0] = 1 - body[:, :, 0]
        world[:, :, 0] *= -1
    scale = [(x1 - x0) / width, (y1 - y0) / height, (x1 - x0) / width, 1, 1]
    whole = body * scale + [x0 / width, y0 / height, 0, 0, 0]
    return whole.astype(np.float32), world.astype(np.float32)


def square_around(body: Body, factor: float, height: int, width: int) -> Square:
    """Return the square in the middle of somebody's box (33 5); its side is `factor` longer sides of the box."""
    x0, y0, x1, y1 = pixel_boxes(body[None], height, width)[0]
    side = int(max(x1 - x0, y1 - y0) * factor)
    return Square(int((x0 + x1 - side) / 2), int((y0 + y1 - side) / 2), side)


def second_look(net: Net, image: Image, body: Body, enough: float) -> Look:
    """Return the pose nearest to one (33 5) in mirrored looks around it; the first one near `enough`."""
    height, width = image.shape[:2]
    best = Look(body, np.zeros((33, 3), np.float32), float("inf"))
    for factor in AROUND:
        bodies, worlds = look(net, image, square_around(body, factor, height, width), mirrored=True)
        for other, world, distance in zip(bodies, worlds, distances(body, bodies, height, width), strict=True):
            if distance < best.distance:
                best = Look(other, world, float(distance))
        if best.distance < enough:
            break
    return best


# Least score of a pose in a part of the image, to save second looks; no other value was tried.
PART_SCORE = 0.4
# Least agreement of two looks at a pose in a part. On 14 photos and 6 collages, people there agree to 0.03; an arm
# taken for a person has 0.099.
PART_AGREES = 0.05
# Share of a pose's box inside a followed person's, from which a part shows a piece of that person. In two films all 30
# such poses, of a share of 0.7 and more, were refused by second looks.
_PIECE = 0.7


def search(
    net: Net,
    image: Image,
    whole: tuple[Body, World],
    parts: Iterable[Square],
    known: Body = NOBODY[0],
    lost: Body = NOBODY[0],
) -> Seen:
    """Return the people of an image besides known ones.

    Args:
        net: the network.
        image: RGB, h w 3 uint8.
        whole: what the network sees in the whole image.
        parts: where to look besides.
        known: people of a film who are found here by another frame. Pieces of them in parts get no second look.
        lost: people of the frame before who are not. Nor do pieces of these.
    """
    height, width = image.shape[:2]
    found, doubtful = list[Look](), list[tuple[Body, float]]()
    for i in distinct(whole[0], height, width):
        one, world = whole[0][i], whole[1][i]
        if not is_near(one, known, SAME_BODY, height, width):
            distance = second_look(net, image, one, SAME_BODY).distance
            if distance < SAME_BODY:
                found.append(Look(one, world, distance))
            else:
                doubtful.append((one, distance))
    found += _find_in_parts(net, image, parts, [*known, *(one.body for one in found)], known, lost)
    if image.mean() < DARK:
        lit = [is_seen_in_light(net, image, one.body) for one in found]
        doubtful += [(one.body, float("inf")) for one, seen in zip(found, lit, strict=True) if not seen]
        found = [one for one, seen in zip(found, lit, strict=True) if seen]
    return Seen(found, doubtful)


def _find_in_parts(
    net: Net, image: Image, parts: Iterable[Square], found: Sequence[Body], known: Body, lost: Body
) -> list[Look]:
    """Return people whom only parts of the image show, as found by a second look around them."""
    height, width = image.shape[:2]
    bodies = np.concatenate([NOBODY[0], *(look(net, image, part)[0] for part in parts)])
    seen, new = list(found), list[Look]()
    boxes, inside = (pixel_boxes(each, height, width) for each in (bodies, np.concatenate([known, lost])))
    for i in np.argsort(-scores(bodies), kind="stable").tolist():
        one = bodies[i]
        if scores(one[None])[0] < PART_SCORE or is_near(one, seen, SAME_BODY, height, width):
            continue
        if share_in(boxes[i], inside) > _PIECE and not is_near(one, lost, SAME_BODY, height, width):
            continue
        again = second_look(net, image, one, SAME_BODY)
        if PART_AGREES <= again.distance < SAME_BODY:  # a tile may cut a person whom the second look shows whole
            again = second_look(net, image, again.body, PART_AGREES)
        if again.distance < PART_AGREES and not is_near(again.body, seen, SAME_BODY, height, width):
            seen.append(again.body)
            new.append(again)
    return new


# Mean level below which an image is dark. The demo's frames, in which a pagoda is taken for a person, have 50.
DARK = 64.0
LIGHT = 118.0  # mean level of a brighter copy: the grey card


def is_seen_in_light(net: Net, image: Image, body: Body) -> bool:
    """Return whether a pose (33 5) is found again in a brighter copy of its image, plain or mirrored.

    In the dark, edges from noise and a codec may look like a person; no copy shows the pagoda's two poses. Of 61 poses
    in 22 photos of people at 0.35, 0.2 and 0.12 of their light, one look at the first copy keeps 56. Further looks at
    both copies find again all four lost at 0.35 and 0.2.
    """
    height, width = image.shape[:2]
    gain = image.astype(np.float32) * min(8.0, LIGHT / max(float(image.mean()), 1.0))
    for brighter in (gain.clip(0, 255), np.sqrt(image / np.float32(255)) * 255):
        copy = brighter.astype(np.uint8)
        if second_look(net, copy, body, SAME_BODY).distance < SAME_BODY:
            return True
        if (distances(body, net(copy)[0], height, width) < SAME_BODY).any():
            return True
    return False
