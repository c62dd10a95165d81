"""MediaPipe's FaceLandmarker as a function from one image to arrays.

Shapes: f faces of one image, 478 points in the order of MediaPipe's FaceMesh. A `Mesh` is float32 f 478 3: x and y
in shares of width and height, z in the unit of x and smaller the nearer.
"""

from __future__ import annotations

from types import MappingProxyType

import numpy as np
from numpy.typing import NDArray

from pipeline.contract.columns import Image
from stages.nets.mediapipe.task import Landmarker

Mesh = NDArray[np.float32]  # f 478 3

POINTS = 478


class FaceMesh(Landmarker):
    """MediaPipe's FaceLandmarker, from a task bundle with blendshapes."""

    kind = "Face"
    options = MappingProxyType({"output_face_blendshapes": True})

    def __call__(self, image: Image) -> tuple[Mesh, list[dict[str, float]]]:
        """Return the faces of one image, and the blendshapes of each by name, 0 to 1."""
        result = self.detect(image)
        mesh = [[(point.x, point.y, point.z) for point in face] for face in result.face_landmarks]
        shapes = [{shape.category_name: shape.score for shape in face} for face in result.face_blendshapes]
        return np.array(mesh, np.float32).reshape(-1, POINTS, 3), shapes
