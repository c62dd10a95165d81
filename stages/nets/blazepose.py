"""BlazePose as a function from one picture to arrays, shielded from the habits of MediaPipe's native code.

It misreads an array that is not contiguous; its other habits are dealt with in `stages/nets/tasks.py`.
"""

from __future__ import annotations

import weakref
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from stages.nets.tasks import Picture, close, photo_of_a_person, refusal, stderr_without_chatter, within

Body = NDArray[np.float32]  # p 33 5: x, y, z, visibility, presence
World = NDArray[np.float32]  # p 33 3: x, y, z

LANDMARKS = 33
SETUP_SECONDS = 60.0  # the graph is built in about 0.2 s


class BlazePose:
    """MediaPipe's PoseLandmarker in IMAGE mode, on one CPU thread.

    Args:
        path: a task bundle.
        max_people: of one picture.
        min_detection: confidence of the detector, 0 to 1.
        min_presence: confidence of the landmark network that there is a person, 0 to 1.

    Raises:
        RuntimeError: MediaPipe refuses the file, or system libraries that it needs are missing.
        TimeoutError: it did not answer within `SETUP_SECONDS`; the process is best ended then.
    """

    def __init__(self, path: Path, *, max_people: int, min_detection: float, min_presence: float) -> None:
        def build() -> Any:
            return _landmarker(path, max_people, min_detection, min_presence)

        with stderr_without_chatter():
            self._landmarker = within(SETUP_SECONDS, build, f"MediaPipe's graph for {path}")
            weakref.finalize(self, close, self._landmarker)
            photo = photo_of_a_person()
            if photo is not None:  # else the first person found makes MediaPipe print two lines: no more than that
                self(photo)

    def __call__(self, picture: Picture) -> tuple[Body, World]:
        """The people of one picture, as MediaPipe finds them."""
        import mediapipe

        image = mediapipe.Image(mediapipe.ImageFormat.SRGB, np.ascontiguousarray(picture))
        result = self._landmarker.detect(image)
        body = [[(m.x, m.y, m.z, m.visibility, m.presence) for m in person] for person in result.pose_landmarks]
        world = [[(m.x, m.y, m.z) for m in person] for person in result.pose_world_landmarks]
        count = len(body)
        return np.array(body, np.float32).reshape(count, LANDMARKS, 5), np.array(world, np.float32).reshape(
            count, LANDMARKS, 3
        )


def _landmarker(path: Path, max_people: int, min_detection: float, min_presence: float) -> Any:
    try:
        from mediapipe.tasks.python import BaseOptions, vision

        options = vision.PoseLandmarkerOptions(
            base_options=BaseOptions(model_asset_path=str(path)),
            running_mode=vision.RunningMode.IMAGE,
            num_poses=max_people,
            min_pose_detection_confidence=min_detection,
            min_pose_presence_confidence=min_presence,
        )
        return vision.PoseLandmarker.create_from_options(options)
    except (OSError, ValueError, RuntimeError) as error:
        raise refusal(path, error) from error
