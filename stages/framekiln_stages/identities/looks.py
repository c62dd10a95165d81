"""Looks: the number of different pictures of a person. Copies of one picture are no evidence.

A copy that was encoded, scaled, cropped, brightened or mirrored keeps its face's landmarks, within the detector's
error. Two photos of one person mostly differ in them. Frames of one file count as different pictures.

Shapes: n faces, m members of a group.
"""

import numpy as np
from numpy.typing import NDArray

from framekiln_stages.identities.face_table import FaceTable, Ints

# Chosen on 60 photos of LFW (faces of 56 px) and 12 changes of each: JPEG at 75, 40 and 15, half, 0.35 and twice the
# size, brighter, grey, cropped, mirrored, turned, blurred. Median errors of the aligned face's landmarks were 0.25 px
# (JPEG) to 1.3 px (half the size); between two photos of a person 2.5 px.
LANDMARK_ERROR = 1.0  # px, root mean square, in the smaller of two images
LEAST_ERROR = 0.03  # the same as a share of the landmarks' spread, for large faces
# Two photos of one person are less alike than most copies. Among 40 others of that set with two photos, 0.45 of the
# faces were copies with one error for all, and 0.28 with these. Mirrored and enlarged copies had 0.80 and 0.72, and now
# 0.92 each. Among 40 held-out people it was 0.38, now 0.28, and 0.85 and 0.80, now 0.98 and 0.92.
ALIKE, UNLIKE = (0.85, 1.5), (0.7, 0.6)  # a cosine, and the scale of the errors from it on, or below it
RESIZED, SHRUNK = 1.1, 1.3  # ratio of sizes; pixels differ, and small faces have larger errors
SAME_FACE = 0.4  # least cosine of copies: the smallest had 0.56, at half the size
SAME_PIXELS = 0.98  # cosine of copies with unknown landmarks
_MIRRORED = np.array([1, 0, 2, 4, 3])  # landmarks when mirrored


def are_copies(faces: FaceTable, one: int, others: Ints, *, frames: bool) -> NDArray[np.bool_]:
    """Return which other faces (m) show the same picture as a face; `frames`: also faces of its file may."""
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
    """Return a group's members by picture; the last of `most` pictures holds the rest too."""
    looks: list[Ints] = []
    left = members[np.argsort(-faces.spreads[members], kind="stable")]  # small faces are copies of several pictures
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
