"""Looks: how many different pictures show a person. Copies of one picture are no evidence.

A copy that was encoded, scaled, cropped, brightened or mirrored has its face's landmarks where they were, to the error
of the detector; of two photos of one person most have not. Frames of one file count as different pictures.

Shapes: n faces, m members of a group.
"""

import numpy as np
from numpy.typing import NDArray

from framekiln_stages.identities.face_table import FaceTable, Ints

# Chosen on 60 photos of LFW (faces of 56 px) and 12 changes of each: JPEG at 75, 40 and 15, half, 0.35 and twice the
# size, brighter, grey, cropped, mirrored, turned, blurred. Landmarks of the aligned face were off by 0.25 px (JPEG) to
# 1.3 px (half the size), those of two photos of a person by 2.5 px; medians.
LANDMARK_ERROR = 1.0  # px, root mean square, in the smaller of two images
LEAST_ERROR = 0.03  # the same as a share of the spread of the landmarks, for large faces
# Two photos of one person are less alike than most copies. Of 40 others of that set with two photos 0.45 of the faces
# were copies at one error for all, 0.28 with these; mirrored and enlarged copies 0.80 and 0.72, now 0.92 each. Of
# 40 people kept aside 0.38, now 0.28, and 0.85 and 0.80, now 0.98 and 0.92.
ALIKE, UNLIKE = (0.85, 1.5), (0.7, 0.6)  # cosine from which, and below which, the errors are as many times as large
RESIZED, SHRUNK = 1.1, 1.3  # how many times one is as large; pixels differ, and errors of small faces are larger
SAME_FACE = 0.4  # least cosine of copies: the smallest of those had 0.56 at half the size
SAME_PIXELS = 0.98  # cosine of copies whose landmarks are not known
_MIRRORED = np.array([1, 0, 2, 4, 3])  # landmarks in the mirror


def are_copies(faces: FaceTable, one: int, others: Ints, *, frames: bool) -> NDArray[np.bool_]:
    """Return which of other faces (m) show the same picture as a face; `frames`: also those of its file may."""
    cosines = faces.vectors[others] @ faces.vectors[one]
    shape, shapes = faces.shapes[one], faces.shapes[others]
    upright, mirrored = abs(shapes @ shape.conj()), abs(shapes @ -shape[_MIRRORED])
    apart = np.sqrt(np.maximum(2 - 2 * np.maximum(upright, mirrored), 0))  # after the best shift, scale and rotation
    spread = np.minimum(faces.spreads[others], faces.spreads[one])
    larger = np.maximum(faces.spreads[others], faces.spreads[one]) / np.maximum(spread, 1e-9)
    alike = (cosines >= ALIKE[0]) & ((mirrored > upright) | (larger >= RESIZED))
    unlike = (cosines < UNLIKE[0]) & (larger < SHRUNK)
    times = np.select([alike, unlike], [ALIKE[1], UNLIKE[1]], 1.0)
    allowed = np.maximum(LEAST_ERROR, LANDMARK_ERROR * np.sqrt(shapes.shape[1]) / np.maximum(spread, 1e-9))
    same = (apart <= times * allowed) & (cosines >= SAME_FACE) | np.isnan(apart) & (cosines >= SAME_PIXELS)
    return same if frames else same & (faces.files[others] != faces.files[one])


def split_looks(faces: FaceTable, members: Ints, most: int) -> list[Ints]:
    """Return the members of a group by the pictures they show; the last of `most` holds the rest too."""
    looks: list[Ints] = []
    left = members[np.argsort(-faces.spreads[members], kind="stable")]  # small faces are copies of more pictures
    while len(left) and len(looks) < most - 1:
        copies = are_copies(faces, int(left[0]), left, frames=False)
        copies[0] = True
        looks.append(left[copies])
        left = left[~copies]
    return [*looks, left] if len(left) else looks


def keep_once_per_frame(
    faces: FaceTable, members: Ints, people: Ints, likeness: NDArray[np.floating]
) -> NDArray[np.bool_]:
    """Return which faces keep their person (m), so that nobody is twice in one frame: the likest, then the first."""
    order = np.lexsort((members, -likeness, faces.pictures[members], people))
    keys = np.column_stack([people[order], faces.pictures[members][order]])
    keep = np.zeros(len(members), bool)
    keep[order] = np.append(True, (np.diff(keys, axis=0) != 0).any(axis=1))[: len(members)]
    return keep
