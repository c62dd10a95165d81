"""BlazePose as a function from one image to arrays."""

import numpy as np
from numpy.typing import NDArray

from framekiln.contract.columns import Image
from framekiln_stages.nets.mediapipe.task import Landmarker
from framekiln_stages.shared.skeleton import LANDMARKS

Body = NDArray[np.float32]  # p 33 5: x, y, z, visibility, presence
World = NDArray[np.float32]  # p 33 3: x, y, z


class BlazePose(Landmarker):
    """MediaPipe's PoseLandmarker."""

    kind = "Pose"

    def __call__(self, image: Image) -> tuple[Body, World]:
        """Return the people that MediaPipe finds in one image."""
        result = self.detect(image)
        body = [[(m.x, m.y, m.z, m.visibility, m.presence) for m in person] for person in result.pose_landmarks]
        world = [[(m.x, m.y, m.z) for m in person] for person in result.pose_world_landmarks]
        return (
            np.array(body, np.float32).reshape(-1, LANDMARKS, 5),
            np.array(world, np.float32).reshape(-1, LANDMARKS, 3),
        )
