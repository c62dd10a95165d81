"""Further looks at a pair of frames if the flow back does not confirm it, and whether its motion is known.

Moving light looks like motion: bands of a lamp, a spot, a flash. Scaling each part by its own mean and contrast removes
smooth light, so that the camera stands still. Large motion is found better in fewer pixels.

Shapes: h, w of the computed size.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import NamedTuple

import numpy as np

from framekiln_stages.flow.motion import Field, resized
from framekiln_stages.shared.grey_images import Gray, even, reduced
from framekiln_stages.shared.stripes import is_textured, without_stripes

# Agreement below which a pair is checked again: motion of 60 px of 1242 has 0.83, bands of light 0.1 to 0.8.
DOUBTFUL = 0.8
# Chosen on ten photos with bands, spots and steps of light over a camera that stands or moves by 6 px, and with motion
# of 60 to 220 px of 1242. Of 100 pairs in such light, looks at 224 px alone kept 53, 41 wrong by more than 2 px and 30
# %. Now 75 are kept, 7 wrong. Of the 60 with large motion 45 were kept, 5 wrong by 30 %; now 43, 4 wrong.
SURE = 0.75  # agreement from which no other look is needed
NEAR = 0.3  # mean distance of one motion in two looks, as a share of its length
RIVAL = 0.1  # a look with less agreement, by at most this, and another motion makes the motion unknown
SMALL = 1.0  # px: stripes that change a flow by less do no harm
LEAST = 0.6  # agreement without stripes below which no further look was sure, in 40 pairs of films
SMALLEST = 24  # px of a frame's sides: DIS takes 12 px, and the rough flow back half of the pixels
FEWER = 0.75  # share of the pixels' sides, if these are at most `size`


class Motion(NamedTuple):
    """The flow of a pair of frames, its agreement with the flow back, and whether its motion is known."""

    flow: Field
    agreement: float
    known: bool = True


Confirm = Callable[[Gray, Gray], Motion]
"""Computes the flow of a pair and its agreement."""


def settle(first: Motion, now: Gray, then: Gray, size: int, confirm: Confirm) -> Motion:
    """Return the surest of several looks at a pair; its motion is known if the looks agree, or it is sure."""
    looks = [first, *_look_again(now, then, size, confirm)]
    best = max(looks, key=lambda look: look.agreement)
    others = [(_distance(best.flow, look.flow), look.agreement) for look in looks if look is not best]
    confirmed = any(distance <= NEAR for distance, _ in others)
    rivalled = any(distance > NEAR and sure >= best.agreement - RIVAL for distance, sure in others)
    return best._replace(known=best.agreement >= SURE or (confirmed and not rivalled))


def unstripe(first: Motion, now: Gray, then: Gray, size: int, confirm: Confirm, guess: Callable[..., Field]) -> Motion:
    """Return the flow of a pair without changing stripes of light, if these change it; else the first flow.

    Brick walls and feathers look like stripes too: there `guess`, a rough flow, is near the first one. With stripes,
    the first look's agreement says nothing. So its motion is unknown unless the other look is sure.
    """
    plain = without_stripes(now, then)
    if plain is None or _is_near(first.flow, resized(guess(*plain), *now.shape)):
        return first
    found = confirm(*plain)
    if _is_near(first.flow, found.flow):
        return first
    if LEAST <= found.agreement < DOUBTFUL and is_textured(plain[0]):
        found = settle(found, *plain, size, confirm)
    known = found.known and found.agreement >= SURE and is_textured(plain[0])
    return found if known else first._replace(known=False)


def _is_near(flow: Field, other: Field) -> bool:
    apart, length = (float(np.linalg.norm(each, axis=-1).mean()) for each in (flow - other, flow))
    return apart <= max(SMALL, NEAR * length)


def _look_again(now: Gray, then: Gray, size: int, confirm: Confirm) -> Iterator[Motion]:
    small = size if size and min(now.shape) > size / FEWER else round(min(now.shape) * FEWER)
    found = confirm(*(reduced(image, max(SMALLEST, small)) for image in (now, then)))
    yield found._replace(flow=resized(found.flow, *now.shape))
    yield confirm(even(now), even(then))


def _distance(one: Field, other: Field) -> float:
    """Return the mean distance of two flows, relative to the first one's mean length or one px."""
    lengths = (float(np.linalg.norm(flow, axis=-1).mean()) for flow in (one - other, one))
    return next(lengths) / max(next(lengths), 1.0)
