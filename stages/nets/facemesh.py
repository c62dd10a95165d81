"""MediaPipe's FaceLandmarker as a function from one picture to arrays.

Shapes: f faces of one picture, 478 points in the order of MediaPipe's FaceMesh. A `Mesh` is float32 f 478 3: x and y
in shares of width and height, z in the unit of x and smaller the nearer.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from stages.nets.tasks import Landmarker, Picture

Mesh = NDArray[np.float32]  # f 478 3
Scores = NDArray[np.float32]  # f s

POINTS = 478


class FaceMesh(Landmarker):
    """MediaPipe's FaceLandmarker; its errors are those of `Landmarker`.

    Args:
        path: a task bundle with blendshapes.
        max_faces: of one picture.
        min_detection: confidence of the detector, 0 to 1.
        min_presence: confidence of the landmark network that there is a face, 0 to 1.
        shapes: names of the blendshapes to return.
    """

    def __init__(
        self, path: Path, *, max_faces: int, min_detection: float, min_presence: float, shapes: tuple[str, ...]
    ) -> None:
        super().__init__(
            "FaceLandmarker",
            path,
            num_faces=max_faces,
            min_face_detection_confidence=min_detection,
            min_face_presence_confidence=min_presence,
            output_face_blendshapes=True,
        )
        self._shapes = shapes

    def __call__(self, picture: Picture) -> tuple[Mesh, Scores]:
        """The faces of one picture, and the blendshapes asked for, 0 to 1 (f s)."""
        result = self.detect(picture)
        mesh = [[(point.x, point.y, point.z) for point in face] for face in result.face_landmarks]
        scores = [{shape.category_name: shape.score for shape in face} for face in result.face_blendshapes]
        named = [[face[name] for name in self._shapes] for face in scores]
        count = len(mesh)
        return (
            np.array(mesh, np.float32).reshape(count, POINTS, 3),
            np.array(named, np.float32).reshape(count, len(self._shapes)),
        )
