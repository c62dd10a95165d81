"""MediaPipe's FaceLandmarker as a function from one picture to arrays.

Shapes: f faces of one picture, 478 points in the order of MediaPipe's FaceMesh. A `Mesh` is float32 f 478 3: x and y
in shares of width and height, z in the unit of x and smaller the nearer.
"""

from __future__ import annotations

import weakref
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from stages.nets.tasks import Picture, close, photo_of_a_person, refusal, stderr_without_chatter, within

Mesh = NDArray[np.float32]  # f 478 3
Scores = NDArray[np.float32]  # f s

POINTS = 478
SETUP_SECONDS = 60.0  # the graph is built in about 0.2 s


class FaceMesh:
    """MediaPipe's FaceLandmarker in IMAGE mode, on one CPU thread.

    VIDEO mode tracks, so that a frame's result would depend on which frames came before it in the same process.

    Args:
        path: a task bundle with blendshapes.
        max_faces: of one picture.
        min_detection: confidence of the detector, 0 to 1.
        min_presence: confidence of the landmark network that there is a face, 0 to 1.
        shapes: names of the blendshapes to return.

    Raises:
        RuntimeError: MediaPipe refuses the file, or system libraries that it needs are missing.
        TimeoutError: it did not answer within `SETUP_SECONDS`; the process is best ended then.
    """

    def __init__(
        self, path: Path, *, max_faces: int, min_detection: float, min_presence: float, shapes: tuple[str, ...]
    ) -> None:
        def build() -> Any:
            return _landmarker(path, max_faces, min_detection, min_presence)

        self._shapes = shapes
        with stderr_without_chatter():
            self._landmarker = within(SETUP_SECONDS, build, f"MediaPipe's graph for {path}")
            weakref.finalize(self, close, self._landmarker)
            photo = photo_of_a_person()
            if photo is not None:  # the first face found makes MediaPipe print
                self(photo)

    def __call__(self, picture: Picture) -> tuple[Mesh, Scores]:
        """The faces of one picture, and the blendshapes asked for, 0 to 1 (f s)."""
        import mediapipe

        image = mediapipe.Image(mediapipe.ImageFormat.SRGB, np.ascontiguousarray(picture))
        result = self._landmarker.detect(image)
        mesh = [[(point.x, point.y, point.z) for point in face] for face in result.face_landmarks]
        scores = [{shape.category_name: shape.score for shape in face} for face in result.face_blendshapes]
        named = [[face[name] for name in self._shapes] for face in scores]
        count = len(mesh)
        return (
            np.array(mesh, np.float32).reshape(count, POINTS, 3),
            np.array(named, np.float32).reshape(count, len(self._shapes)),
        )


def _landmarker(path: Path, max_faces: int, min_detection: float, min_presence: float) -> Any:
    try:
        from mediapipe.tasks.python import BaseOptions, vision

        options = vision.FaceLandmarkerOptions(
            base_options=BaseOptions(model_asset_path=str(path)),
            running_mode=vision.RunningMode.IMAGE,
            num_faces=max_faces,
            min_face_detection_confidence=min_detection,
            min_face_presence_confidence=min_presence,
            output_face_blendshapes=True,
        )
        return vision.FaceLandmarker.create_from_options(options)
    except (OSError, ValueError, RuntimeError) as error:
        raise refusal(path, error) from error
