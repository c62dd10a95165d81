"""Arrow types of a person, and their values: 33 landmarks and the lines between them.

Landmarks are in the order of MediaPipe's PoseLandmark (0 nose, 11 left shoulder, ... 32 right foot index).
"""

from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from framekiln_stages.shared.masks import BOX

LANDMARKS = 33

COCO_17 = (0, 2, 5, 7, 8, 11, 12, 13, 14, 15, 16, 23, 24, 25, 26, 27, 28)
"""The landmark for each of COCO's 17 keypoints (nose, eyes, ears, shoulders, elbows, wrists, hips, knees, ankles; left
before right), matched by name with the categories of COCO's person_keypoints_*.json."""

BONES = (
    *((0, 1), (1, 2), (2, 3), (3, 7), (0, 4), (4, 5), (5, 6), (6, 8), (9, 10)),  # face
    *((11, 12), (11, 23), (12, 24), (23, 24)),  # trunk
    *((11, 13), (13, 15), (15, 17), (15, 19), (15, 21), (17, 19)),  # left arm
    *((12, 14), (14, 16), (16, 18), (16, 20), (16, 22), (18, 20)),  # right arm
    *((23, 25), (25, 27), (27, 29), (29, 31), (27, 31)),  # left leg
    *((24, 26), (26, 28), (28, 30), (30, 32), (28, 32)),  # right leg
)
"""Lines of the skeleton: mediapipe.tasks.python.vision.PoseLandmarksConnections.POSE_LANDMARKS."""

_PAIRS = ("shoulder", "elbow", "wrist", "pinky", "index", "thumb", "hip", "knee", "ankle", "heel", "foot_index")
NAMES = (
    "nose",
    *(f"{side}_eye{part}" for side in ("left", "right") for part in ("_inner", "", "_outer")),
    *("left_ear", "right_ear", "mouth_left", "mouth_right"),
    *(f"{side}_{part}" for part in _PAIRS for side in ("left", "right")),
)
"""Names of the landmarks: mediapipe.tasks.python.vision.PoseLandmark, in small letters."""

BODY_POINTS: dict[str, Any] = {"kind": "poses", "category": "person", "keypoints": NAMES, "skeleton": BONES}
"""Arguments of `annotates` for a column of people."""

MIRRORED = [0, 4, 5, 6, 1, 2, 3, 8, 7, 10, 9, *(i + (1 if i % 2 else -1) for i in range(11, LANDMARKS))]
"""Each landmark's counterpart in a mirrored image, in which left and right are exchanged."""

LANDMARK = pa.struct([(name, pa.float32()) for name in ("x", "y", "z", "visibility", "presence")])
POINT = pa.struct([(name, pa.float32()) for name in ("x", "y", "z")])
PERSON = pa.struct(
    [
        ("score", pa.float32()),  # mean visibility of the landmarks
        ("box", BOX),  # around the landmarks, clipped to the image; fractions of width and height
        # x, y fractions of width and height, unclipped; z as x
        ("landmarks", pa.list_(LANDMARK, LANDMARKS)),
        ("world", pa.list_(POINT, LANDMARKS)),  # metres from the middle of the hips; x right, y down, z away
        # mean distance of this person's landmarks from those of a mirrored second look, in box diagonals, below 0.1
        ("disagreement", pa.float32()),
        ("orientation", pa.int16()),  # see `orientations`
    ]
)


def orientations(world: NDArray[np.float32]) -> NDArray[np.int16]:
    """Return the angles by which trunks are turned clockwise in the image (p): 0, 90, 180 or 270 degrees.

    `world`: landmarks in metres, p 33 3. In 44 photos of people, upright, on a side and upside down, 175 of 180 agree
    with the photo; the others lie or bend.
    """
    right, down, _ = (world[:, [11, 12]].mean(axis=1) - world[:, [23, 24]].mean(axis=1)).T  # from hips to shoulders
    return np.asarray(np.rint(np.arctan2(right, -down) * 2 / np.pi) * 90 % 360, np.int16)


def landmarks(people: pa.StructArray) -> NDArray[np.float64]:
    """Return the landmarks of people (p 33 5), as stored."""
    members = pc.list_flatten(pc.struct_field(people, "landmarks")).flatten()
    columns = [member.to_numpy(zero_copy_only=False) for member in members]
    return np.stack(columns, axis=1).astype(np.float64).reshape(-1, LANDMARKS, LANDMARK.num_fields)
