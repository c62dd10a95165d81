"""Looks: the number of different pictures of a person. Copies of one picture are no evidence.

A copy that was encoded, scaled, cropped, brightened, blurred or mirrored has the same aligned face, in few pixels and
after small corrections. Two photos of one person have not. Frames of one file count as different pictures.

Shapes: n faces, m members of a group; a thumbnail is uint8 256, an aligned face in 16 by 16 px.
"""

import numpy as np
from numpy.typing import NDArray

from framekiln_stages.identities.evidence import Floats
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
