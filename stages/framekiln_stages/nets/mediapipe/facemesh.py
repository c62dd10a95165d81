"""MediaPipe's FaceLandmarker as a function from one image to arrays.

Shapes: f faces of one image, 468 points in the order of MediaPipe's FaceMesh. A `Mesh` is float32 f 468 3: x and y
in shares of width and height, z in the unit of x and smaller the nearer. The ten points of the irises that may follow
are left out: not every network gives them.
"""

import zipfile
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from framekiln.contract.columns import Image
from framekiln_stages.nets.mediapipe.task import Landmarker

Mesh = NDArray[np.float32]  # f 468 3

POINTS = 468
_SHAPES = "face_blendshapes.tflite"  # the member of a bundle


class FaceMesh(Landmarker):
    """MediaPipe's FaceLandmarker, from a task bundle with or without blendshapes."""

    kind = "Face"

    def __init__(self, path: Path, **choices: Any) -> None:
        """See `Landmarker`."""
        self.options = {
            "output_face_blendshapes": zipfile.is_zipfile(path) and _SHAPES in zipfile.ZipFile(path).namelist()
        }
        super().__init__(path, **choices)

    def __call__(self, image: Image) -> tuple[Mesh, list[dict[str, float]]]:
        """Return the faces of one image, and the blendshapes of each by name, 0 to 1; empty without their network."""
        result = self.detect(image)
        mesh = [[(point.x, point.y, point.z) for point in face[:POINTS]] for face in result.face_landmarks]
        shapes = [{shape.category_name: shape.score for shape in face} for face in result.face_blendshapes]
        return np.array(mesh, np.float32).reshape(-1, POINTS, 3), shapes or [{} for _ in mesh]
