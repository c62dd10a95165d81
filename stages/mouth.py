"""How far each mouth in the picture is open: what the eye knows of speech, for whoever compares it with the sound.

Shapes: f faces of one picture; a `Mesh` is float32 f 478 3, points in the order of MediaPipe's FaceMesh, x and y in
shares of width and height, z in the unit of x.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from pipeline.columns import field, pixels_of, views
from pipeline.stage import Drawing, Placement, Scope, Stage, Weights
from stages.nets.facemesh import FaceMesh, Mesh
from stages.nets.masks import BOX, POINT

SHAPES = ("jawOpen", "mouthClose", "mouthFunnel", "mouthPucker")
"""The blendshapes that follow the mouth in speech; `mouthSmile` and the rest follow feelings."""

# Points of MediaPipe's face mesh. The pairs lie above each other on the inner rims of the lips; the corners are where
# the lips meet; the outline is every second point of vision.FaceLandmarksConnections.FACE_LANDMARKS_LIPS's outer ring.
UPPER, LOWER = (13, 82, 312), (14, 87, 317)
CORNERS = (61, 291)
EYES = (33, 263)  # their outer corners: the face's own measure, which no expression changes
OUTLINE = (61, 40, 37, 0, 267, 270, 291, 321, 314, 17, 84, 91)

MOUTH = pa.struct(
    [
        ("box", BOX),  # round the face's points, cut at the picture's edges; shares of width and height
        ("opening", pa.float32()),  # gap between the lips' inner rims, over the distance of the eyes' outer corners
        ("width", pa.float32()),  # distance of the mouth's corners, over the same
        ("jaw_open", pa.float32()),  # blendshapes jawOpen, mouthClose, mouthFunnel, mouthPucker: 0 to 1
        ("close", pa.float32()),
        ("funnel", pa.float32()),
        ("pucker", pa.float32()),
        ("lips", pa.list_(POINT, len(OUTLINE))),  # the lips' outer rim; shares of width and height
    ]
)
OUTPUTS = pa.schema(
    [field("mouths", pa.list_(MOUTH), "mouths, largest face first: face's box, opening, width, jaw, lips' outline")]
)


class Mouth(Stage):
    """The mouth of every face.

    FaceLandmarker's detector works at 128 px and is made for faces near the camera: of one portrait, a face of
    .165 of the picture's height was found, one of .124 was not.
    """

    scope = Scope.ROW
    placement = Placement(cpus=1.0, batch_rows=16)

    @dataclass(frozen=True, kw_only=True)
    class Config(Stage.Config):
        """Which model, how many faces, and how sure it must be.

        Raises:
            ValueError: a size or a number of faces that makes no sense, or a confidence outside 0 to 1.
        """

        model: str = "face_landmarker"  # the published bundle
        # Short side, as in frame_512; 0 is full size. The landmark network looks at 256 px of face, so more is lost.
        size: int = 512
        max_faces: int = 4  # two speakers and two more; each face found costs time
        min_detection_confidence: float = 0.5  # MediaPipe's own
        min_presence_confidence: float = 0.5  # MediaPipe's own

        def __post_init__(self) -> None:
            if self.max_faces < 1 or self.size < 0:
                raise ValueError("max_faces must be at least 1, and size at least 0")
            for name in ("min_detection_confidence", "min_presence_confidence"):
                if not 0 <= getattr(self, name) <= 1:
                    raise ValueError(f"{name} must lie between 0 and 1, not {getattr(self, name)}")

    @property
    def pixels(self) -> str:
        """The pixel column that the settings ask for."""
        return pixels_of(self.config.size)

    @property
    def inputs(self) -> tuple[str, ...]:
        """Pixels only."""
        return (self.pixels,)

    @property
    def outputs(self) -> pa.Schema:
        """`mouths`; never null, empty without a face."""
        return OUTPUTS

    @property
    def weights(self) -> tuple[str, ...]:
        """One task bundle."""
        return (self.config.model,)

    def setup(self, weights: Weights, placement: Placement) -> None:  # noqa: ARG002
        """Build MediaPipe's graph, which keeps to one thread, and run it once on a photo of a face.

        Raises:
            RuntimeError: MediaPipe refuses the file, or system libraries that it needs are missing.
            TimeoutError: MediaPipe hangs; the process is best ended then.
        """
        self._net = FaceMesh(
            weights[self.config.model],
            max_faces=self.config.max_faces,
            min_detection=self.config.min_detection_confidence,
            min_presence=self.config.min_presence_confidence,
            shapes=SHAPES,
        )

    def __call__(self, batch: pa.Table) -> pa.Table:
        """Mouths of each picture."""
        rows = []
        for image in views(batch[self.pixels]):
            with self.phase("infer"):
                mesh, shapes = self._net(image)
            with self.phase("postprocess"):
                rows.append(_mouths(mesh, shapes, image.shape[0] / image.shape[1]))
        return pa.table([pa.array(rows, OUTPUTS.field("mouths").type)], schema=OUTPUTS)

    def preview(self, row: Mapping[str, Any]) -> Drawing | None:
        """The lips' outer rims; None without a face."""
        if not row.get("mouths"):
            return None
        lines = []
        for mouth in row["mouths"]:
            rim = [(point["x"], point["y"]) for point in mouth["lips"]]
            lines += [(*start, *end) for start, end in zip(rim, [*rim[1:], rim[0]], strict=True)]
        return Drawing(lines=lines, caption=f"opening {row['mouths'][0]['opening']:.2f}")


def openings(mesh: Mesh, aspect: float) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Opening and width of each mouth (f), in distances between the eyes' outer corners.

    In three dimensions, so that a turned head changes them less.

    Args:
        mesh: f 478 3.
        aspect: height over width of the picture.
    """
    points = mesh.astype(np.float64) * [1, aspect, 1]

    def apart(one: tuple[int, ...], other: tuple[int, ...]) -> NDArray[np.float64]:
        lengths: NDArray[np.float64] = np.linalg.norm(points[:, one] - points[:, other], axis=-1).mean(axis=1)
        return lengths

    unit = np.maximum(apart(EYES[:1], EYES[1:]), 1e-6)
    return apart(UPPER, LOWER) / unit, apart(CORNERS[:1], CORNERS[1:]) / unit


def _mouths(mesh: Mesh, shapes: NDArray[np.float32], aspect: float) -> list[dict[str, Any]]:
    """Values of type `MOUTH`, the largest face first."""
    opening, width = openings(mesh, aspect)
    inside = mesh[:, :, :2].clip(0, 1)
    boxes = np.concatenate([inside.min(axis=1), inside.max(axis=1)], axis=1)
    areas = (boxes[:, 2:] - boxes[:, :2]).prod(axis=1)
    names = ("jaw_open", "close", "funnel", "pucker")
    return [
        {
            "box": dict(zip(BOX.names, boxes[i], strict=True)),
            "opening": opening[i],
            "width": width[i],
            **dict(zip(names, shapes[i], strict=True)),
            "lips": [{"x": x, "y": y} for x, y in mesh[i, OUTLINE, :2]],
        }
        for i in np.argsort(-areas, kind="stable")
    ]
