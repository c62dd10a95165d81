"""A search of one image for people: in the whole of it, then in parts, each person confirmed by a second look."""

from collections.abc import Iterable, Sequence

import numpy as np

from framekiln.contract import Image
from framekiln_stages.nets.mediapipe_tasks import Body, World
from framekiln_stages.pose.looks import (
    NOBODY,
    SAME_BODY,
    Look,
    Net,
    Seen,
    Square,
    distances,
    distinct,
    is_near,
    look,
    pixel_boxes,
    scores,
    second_look,
    share_in,
)

# Least score of a pose in a part of the image, to save second looks; no other value was tried.
PART_SCORE = 0.4
# Least agreement of two looks at a pose in a part. On 14 photos and 6 collages, people there agree to 0.03; an arm
# taken for a person has 0.099.
PART_AGREES = 0.05
# Share of a pose's box inside a known person's, from which the pose in a part is a piece of that person. TODO
_PIECE = 0.7


def search(net: Net, image: Image, whole: tuple[Body, World], parts: Iterable[Square], known: Body = NOBODY[0]) -> Seen:
    """Return the people of an image besides known ones.

    Args:
        net: the network.
        image: RGB, h w 3 uint8.
        whole: what the network sees in the whole image.
        parts: where to look besides.
        known: people of a film whom another frame helped to find here. What parts show inside them is not looked at.
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
    found += _find_in_parts(net, image, parts, known, found)
    if image.mean() < DARK:
        lit = [is_seen_in_light(net, image, one.body) for one in found]
        doubtful += [(one.body, float("inf")) for one, seen in zip(found, lit, strict=True) if not seen]
        found = [one for one, seen in zip(found, lit, strict=True) if seen]
    return Seen(found, doubtful)


def _find_in_parts(net: Net, image: Image, parts: Iterable[Square], known: Body, whole: Sequence[Look]) -> list[Look]:
    """Return people whom only parts of the image show, as found by a second look around them."""
    height, width = image.shape[:2]
    bodies = np.concatenate([NOBODY[0], *(look(net, image, part)[0] for part in parts)])
    seen, found = [*known, *(one.body for one in whole)], list[Look]()
    boxes, inside = pixel_boxes(bodies, height, width), pixel_boxes(known, height, width)
    for i in np.argsort(-scores(bodies), kind="stable").tolist():
        if scores(bodies[i : i + 1])[0] < PART_SCORE or share_in(boxes[i], inside) > _PIECE:
            continue
        if is_near(bodies[i], seen, SAME_BODY, height, width):
            continue
        again = second_look(net, image, bodies[i], SAME_BODY)
        if PART_AGREES <= again.distance < SAME_BODY:  # a tile may cut a person whom the second look shows whole
            again = second_look(net, image, again.body, PART_AGREES)
        if again.distance < PART_AGREES and not is_near(again.body, seen, SAME_BODY, height, width):
            seen.append(again.body)
            found.append(again)
    return found


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
