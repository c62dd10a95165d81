"""Two photos of one person with nothing else near, the smallest evidence of somebody; and photos that look alike.

Copies of one picture are no evidence. A copy that was encoded, scaled, cropped, brightened, blurred or mirrored has the
same aligned face, in few pixels and after small corrections. Two photos of one person have not. Frames of one file
count as different pictures.

Shapes: n faces, k nearest of each, g groups of copies, m members of a group; a thumbnail is uint8 256, an aligned face
in 16 by 16 px.
"""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from framekiln_stages.identities.cosine_knn import Points, plain_float32
from framekiln_stages.identities.evidence import Evidence, Floats
from framekiln_stages.identities.face_table import FaceTable, Ints

# Least likeness of copies. Chosen on 60 people of Labeled Faces in the Wild with 29 changes of one photo each (blurs,
# motion, sizes, JPEG, noise, light, crops, mirrored, turned, stretched) and a second photo: 0 of 60 sets of changes
# have a person, and 50 of 60 pairs of photos. Of 60 people kept aside 4 and 53. At 0.945 it is 0, 48, 3 and 53.
ALIKE = 0.955
SAME_FACE = 0.2  # least cosine of copies, which saves time among strangers
SAME_PIXELS = 0.98  # cosine of copies with unknown thumbnails
_SIDE = 16
_Y, _X = np.mgrid[:_SIDE, :_SIDE] - (_SIDE - 1) / 2
_FACE = (_X / (0.42 * _SIDE)) ** 2 + (_Y / (0.45 * _SIDE)) ** 2 < 1  # without background
_TAPS = np.exp(-((_X - _Y) ** 2) / (2 * 0.7**2))  # a blur of 0.7 px hides noise and JPEG
_BLUR = _TAPS / _TAPS.sum(axis=1, keepdims=True)


def are_copies(faces: FaceTable, one: int, others: Ints, *, frames: bool) -> NDArray[np.bool_]:
    """Return which other faces (m) show the same picture as a face; `frames`: also faces of its file may."""
    known = bool(faces.thumbnails.size)
    same = faces.vectors[others] @ faces.vectors[one] >= (SAME_FACE if known else SAME_PIXELS)
    if known and same.any():
        same[same] = _compare(faces.thumbnails[one], faces.thumbnails[others[same]]) >= ALIKE
    return same if frames else same & (faces.files[others] != faces.files[one])


def _compare(one: NDArray[np.uint8], others: NDArray[np.uint8]) -> Floats:
    """Return the share, 0 to 1, of each thumbnail (m) that another explains, seen directly or in a mirror.

    Light, contrast, sharpness, position, size and rotation may differ a little: they are fitted by least squares (the
    tangent distance of Simard et al. 1993).
    """
    image, images = (_BLUR @ faces.reshape(-1, _SIDE, _SIDE) @ _BLUR.T for faces in (one, others))
    seen = _centre(images[:, _FACE])
    lengths = np.maximum(np.linalg.norm(seen, axis=1), 1e-9)
    explained = np.zeros((2, len(seen)))
    for number, view in enumerate((image[0], image[0, :, ::-1])):
        down, right = np.gradient(view)
        sharper = np.gradient(down, axis=0) + np.gradient(right, axis=1)
        changes = np.stack([view, right, down, right * _X + down * _Y, down * _X - right * _Y, sharper])[:, _FACE]
        basis = np.linalg.qr(_centre(changes).T)[0]
        explained[number] = np.linalg.norm(seen @ basis, axis=1) * (seen @ _centre(changes)[0] > 0)
    return np.asarray(explained.max(axis=0) / lengths)


def _centre(values: Floats) -> Floats:
    return np.asarray(values - values.mean(axis=1, keepdims=True))


def split_looks(faces: FaceTable, members: Ints, most: int) -> list[Ints]:
    """Return a group's members by picture; the last of `most` pictures holds the rest too."""
    looks: list[Ints] = []
    left = members[np.argsort(-faces.sides[members], kind="stable")]  # large faces show most
    while len(left) and len(looks) < most - 1:
        copies = are_copies(faces, int(left[0]), left, frames=False)
        copies[0] = True
        looks.append(left[copies])
        left = left[~copies]
    return [*looks, left] if len(left) else looks


def keep_once_per_frame(
    faces: FaceTable, members: Ints, people: Ints, likeness: NDArray[np.floating]
) -> NDArray[np.bool_]:
    """Return which faces keep their person (m), so that nobody is in a frame twice: the likeliest, then the first."""
    order = np.lexsort((members, -likeness, faces.pictures[members], people))
    keys = np.column_stack([people[order], faces.pictures[members][order]])
    keep = np.zeros(len(members), bool)
    keep[order] = np.append(True, (np.diff(keys, axis=0) != 0).any(axis=1))[: len(members)]
    return keep


NEAREST = 16  # nearest faces that are checked: partners and copies


def find_pairs(evidence: Evidence, groups: Sequence[Ints], probability: float) -> list[Ints]:
    """Return pairs of different photos that are each other's only likely partner, with their copies.

    `groups`: faces without a person, copies of one picture together. `probability`: least, for either of them.
    """
    first = np.array([group[0] for group in groups], np.int64)
    if len(first) < 2:
        return []
    nearest, odds = _find_nearest(evidence, first)
    sure = odds[:, 0] / (len(first) + odds.sum(axis=1)) >= probability
    partners = np.where(sure, nearest[:, 0], -1)
    pairs = [(i, int(j)) for i, j in enumerate(partners) if j > i and partners[j] == i]
    return [np.sort(np.concatenate([groups[i], groups[j]])) for i, j in pairs]


def group_copies(evidence: Evidence, candidates: Ints) -> list[Ints]:
    """Return faces (n) with copies of one picture together, the largest first, as it shows most."""
    owner = np.arange(len(candidates))
    if len(candidates) > 1:
        nearest, _ = _find_nearest(evidence, candidates)
        before = np.zeros(len(candidates), bool)
        for i in np.argsort(-evidence.faces.sides[candidates], kind="stable").tolist():
            near = nearest[i][nearest[i] >= 0]
            leaders = np.unique(owner[near[before[near]]])
            same = leaders[are_copies(evidence.faces, int(candidates[i]), candidates[leaders], frames=True)]
            if len(same):  # the others' copies were too far from the first for its nearest faces
                first = int(same[0])
                one = same[are_copies(evidence.faces, int(candidates[first]), candidates[same], frames=True)]
                owner[np.isin(owner, one)] = owner[i] = first
            before[i] = True
    everyone = np.arange(len(candidates))
    return [
        candidates[np.append(leader, everyone[(owner == leader) & (everyone != leader)])]
        for leader in dict.fromkeys(owner.tolist())
    ]


def _find_nearest(evidence: Evidence, faces: Ints) -> tuple[Ints, Floats]:
    """Return each face's nearest faces by index, and the odds that they are one person (n k)."""
    with plain_float32():
        points = Points(evidence.faces.vectors[faces], "cpu", evidence.shared[faces])
        nearest, excesses = points.nearest(np.arange(len(faces)), min(NEAREST, len(faces) - 1), exact=True)
    strengths, shared, frames = (
        values[faces] for values in (evidence.faces.strengths, evidence.shared, evidence.faces.pictures)
    )
    odds = evidence.log_odds(
        excesses,
        np.minimum(strengths[:, None], strengths[nearest]),
        np.maximum(shared[:, None], shared[nearest]),
        np.zeros(nearest.shape, bool),
    )
    possible = (nearest >= 0) & (frames[nearest] != frames[:, None])
    odds = np.where(possible, np.exp(odds), 0)
    order = np.argsort(-odds, axis=1, kind="stable")
    return np.take_along_axis(nearest, order, 1), np.take_along_axis(odds, order, 1)
