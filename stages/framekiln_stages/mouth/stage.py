"""Opening and shape of each mouth in an image, for comparison with speech.

Shapes: f faces of one image; a `Mesh` is float32 f 468 3, points in the order of MediaPipe's FaceMesh, x and y in
fractions of width and height, z in the unit of x.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from framekiln.contract import Drawing, annotates, field, views
from framekiln.contract.limits import Count
from framekiln_stages.nets.mediapipe_tasks import FaceMesh, Mesh
from framekiln_stages.shared.masks import BOX, POINT, landmark_boxes
from framekiln_stages.shared.settings import LandmarkStage
from framekiln_stages.shared.tables import BOXES, FRACTIONS

SHAPES = {"jaw_open": "jawOpen", "close": "mouthClose", "funnel": "mouthFunnel", "pucker": "mouthPucker"}
"""Blendshapes that change in speech, by the member of `MOUTH`; `mouthSmile` and others change with emotions."""

# Points of MediaPipe's face mesh. The pairs lie above each other on the inner rims of the lips. The corners are where
# the lips meet. The outline is every second point of the outer ring of
# vision.FaceLandmarksConnections.FACE_LANDMARKS_LIPS.
UPPER, LOWER = (13, 82, 312), (14, 87, 317)
CORNERS = (61, 291)
EYES = (33, 263)  # outer corners: a length of the face that expressions do not change
OUTLINE = (61, 40, 37, 0, 267, 270, 291, 321, 314, 17, 84, 91)

MOUTH = pa.struct(
    [
        ("box", BOX),  # round the face's points, cut at the image's edges; shares of width and height
        ("opening", pa.float32()),  # gap between the lips' inner rims, over the distance of the eyes' outer corners
        ("width", pa.float32()),  # distance of the mouth's corners, over the same
        *((name, pa.float32()) for name in SHAPES),  # 0 to 1; null where the model has no blendshapes
        ("lips", pa.list_(POINT, len(OUTLINE))),  # the lips' outer rim; shares of width and height
    ]
)
_MOUTHS = field(
    "mouths",
    pa.list_(MOUTH),
    f"mouths, largest face first: the face's {BOXES}; opening between the lips and width, over the distance of "
    "the eyes' outer corners; shapes (jaw_open to pucker) 0 to 1; lips: 12 points of the outer rim in order, "
    f"from the corner at the left of an upright face over the upper lip, x, y in {FRACTIONS}",
)
OUTPUTS = pa.schema([annotates(_MOUTHS, kind="")])  # not exported: the boxes are of the faces


class Mouth(LandmarkStage):
    """The mouth of every face.

    FaceLandmarker's detector works at 128 px and is trained for faces near the camera. In one portrait a face of 0.165
    of the image's height was found, and one of 0.124 was not.
    """

    outputs = OUTPUTS  # never null, empty without a face
    network = FaceMesh

    @dataclass(frozen=True, kw_only=True)
    class Config(LandmarkStage.Config):
        """The model and the most faces. The landmark network sees 256 px of a face: a larger `size` gains nothing."""

        limit = "max_faces"
        model: str = "face_landmarker"  # weights: the published bundle
        max_faces: Count = 4  # most faces of one image: two speakers and two more; each takes time

    def __call__(self, batch: pa.Table) -> pa.Table:
        rows = []
        for image in views(batch[self.pixels]):
            with self.phase("infer"):
                mesh, shapes = self._net(image)
            with self.phase("postprocess"):
                rows.append(_make_mouths(mesh, shapes, image.shape[0] / image.shape[1]))
        return pa.table([pa.array(rows, OUTPUTS.field("mouths").type)], schema=OUTPUTS)

    def draw(self, row: Mapping[str, Any]) -> Drawing | None:
        """Return the lips' outlines; None without a face."""
        if not row.get("mouths"):
            return None
        lines = []
        for mouth in row["mouths"]:
            rim = [(point["x"], point["y"]) for point in mouth["lips"]]
            lines += [(*start, *end) for start, end in zip(rim, [*rim[1:], rim[0]], strict=True)]
        return Drawing(lines=lines, caption=f"opening {row['mouths'][0]['opening']:.2f}")


def openings(mesh: Mesh, aspect: float) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return opening and width of each mouth (f), in distances between the eyes' outer corners.

    Distances are taken in three dimensions, so that a turned head changes them less.

    `mesh`: f 468 3. `aspect`: height over width of the image.
    """
    points = mesh.astype(np.float64) * [1, aspect, 1]

    def distances(a: tuple[int, ...], b: tuple[int, ...]) -> NDArray[np.float64]:
        return np.asarray(np.linalg.norm(points[:, a] - points[:, b], axis=-1).mean(axis=1))

    unit = np.maximum(distances(EYES[:1], EYES[1:]), 1e-6)
    return distances(UPPER, LOWER) / unit, distances(CORNERS[:1], CORNERS[1:]) / unit


def _make_mouths(mesh: Mesh, shapes: Sequence[Mapping[str, float]], aspect: float) -> list[dict[str, Any]]:
    opening, width = openings(mesh, aspect)
    boxes = landmark_boxes(mesh)
    areas = (boxes[:, 2:] - boxes[:, :2]).prod(axis=1)
    return [
        {
            "box": dict(zip(BOX.names, boxes[i], strict=True)),
            "opening": opening[i],
            "width": width[i],
            **{name: shapes[i].get(shape) for name, shape in SHAPES.items()},
            "lips": [{"x": x, "y": y} for x, y in mesh[i, OUTLINE, :2]],
        }
        for i in np.argsort(-areas, kind="stable")
    ]
