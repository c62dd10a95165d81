"""BlazePose as a function from one picture to arrays."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from stages.nets.tasks import Landmarker, Picture

Body = NDArray[np.float32]  # p 33 5: x, y, z, visibility, presence
World = NDArray[np.float32]  # p 33 3: x, y, z

LANDMARKS = 33


class BlazePose(Landmarker):
    """MediaPipe's PoseLandmarker; its errors are those of `Landmarker`.

    Args:
        path: a task bundle.
        max_people: of one picture.
        min_detection: confidence of the detector, 0 to 1.
        min_presence: confidence of the landmark network that there is a person, 0 to 1.
    """

    def __init__(self, path: Path, *, max_people: int, min_detection: float, min_presence: float) -> None:
        super().__init__(
            "PoseLandmarker",
            path,
            num_poses=max_people,
            min_pose_detection_confidence=min_detection,
            min_pose_presence_confidence=min_presence,
        )

    def __call__(self, picture: Picture) -> tuple[Body, World]:
        """The people of one picture, as MediaPipe finds them."""
        result = self.detect(picture)
        body = [[(m.x, m.y, m.z, m.visibility, m.presence) for m in person] for person in result.pose_landmarks]
        world = [[(m.x, m.y, m.z) for m in person] for person in result.pose_world_landmarks]
        count = len(body)
        return np.array(body, np.float32).reshape(count, LANDMARKS, 5), np.array(world, np.float32).reshape(
            count, LANDMARKS, 3
        )
