"""Where people's bodies are: 33 landmarks each, in the picture and in metres, by MediaPipe's BlazePose.

The Tasks API runs in IMAGE mode. VIDEO mode tracks, so that a frame's result would depend on which frames came before
it in the same process; here it depends on the frame alone.

Shapes: p people of one picture, 33 landmarks in the order of MediaPipe's PoseLandmark (0 nose, 11 left shoulder, ... 32
right foot index; left and right are the person's own). A `Body` is float32 p 33 5: x, y, z, visibility, presence.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from pipeline.columns import Image, field, pixels_of, views
from pipeline.stage import Drawing, Placement, Scope, Stage, Weights
from stages.nets.blazepose import LANDMARKS, BlazePose, Body, World
from stages.nets.likeness import Things, by_boxes
from stages.nets.masks import BOX
from stages.nets.skeleton import BONES, LANDMARK, PERSON, POINT

SAME_BODY = 0.1  # of the box's diagonal. One person found twice, 11 photos: .009 to .09; two side by side: from .27
DRAWN = 0.5  # visibility from which a landmark is drawn; the threshold of MediaPipe's own drawing_utils

OUTPUTS = pa.schema(
    [
        field(
            "poses",
            pa.list_(PERSON),
            "people, most visible first: score, box, 33 landmarks in the picture and in metres",
        ),
        field("people", pa.int32(), "number of people in `poses`"),
    ]
)


class Pose(Stage):
    """People and their landmarks.

    BlazePose's detector works at 224 px: it misses people smaller than about a third of the picture's height and, of a
    group, may find only some.
    """

    scope = Scope.ROW
    placement = Placement(cpus=1.0, batch_rows=16)

    @dataclass(frozen=True, kw_only=True)
    class Config(Stage.Config):
        """Which model, how many people, and how sure it must be.

        Raises:
            ValueError: a size or a number of people that makes no sense, or a confidence outside 0 to 1.
        """

        model: str = "pose_landmarker_full_bundled"  # the one that a package registry is enough for
        # Short side, as in frame_512; 0 is full size. OKS on a COCO photo in 9 pictures of 1 to 39 MP: .881 to .944 at
        # full size, .902 to .928 at 512, .877 to .927 at 256.
        size: int = 512
        max_people: int = 8  # each one found costs 10 ms; from 4 to 16, the photos tried gave the same people
        # MediaPipe's own. On 43 photos .3 finds nobody more but one person twice; .7 misses a portrait.
        min_detection_confidence: float = 0.5
        min_presence_confidence: float = 0.5  # MediaPipe's own; from .3 to .7 nothing changed on those photos

        def __post_init__(self) -> None:
            if self.max_people < 1 or self.size < 0:
                raise ValueError("max_people must be at least 1, and size at least 0")
            for name in ("min_detection_confidence", "min_presence_confidence"):
                if not 0 <= getattr(self, name) <= 1:
                    raise ValueError(f"{name} must lie between 0 and 1, not {getattr(self, name)}")

    @property
    def pixels(self) -> str:
        """The pixel column that the settings ask for."""
        return pixels_of(self.config.size)

    @property
    def inputs(self) -> tuple[str, ...]:
        """Pixels only: everything said is in shares of the picture, whatever its size."""
        return (self.pixels,)

    @property
    def outputs(self) -> pa.Schema:
        """`poses` and `people`; never null."""
        return OUTPUTS

    @property
    def weights(self) -> tuple[str, ...]:
        """One task bundle."""
        return (self.config.model,)

    def setup(self, weights: Weights, placement: Placement) -> None:  # noqa: ARG002
        """Build MediaPipe's graph, which keeps to one thread, and run it once on a photo of a person.

        Raises:
            RuntimeError: MediaPipe refuses the file, or system libraries that it needs are missing.
            TimeoutError: MediaPipe hangs; the process is best ended then.
        """
        self._net = BlazePose(
            weights[self.config.model],
            max_people=self.config.max_people,
            min_detection=self.config.min_detection_confidence,
            min_presence=self.config.min_presence_confidence,
        )

    def __call__(self, batch: pa.Table) -> pa.Table:
        """People of each picture."""
        found = [self.find(image) for image in views(batch[self.pixels])]
        with self.phase("postprocess"):
            counts = [len(body) for body, _ in found]
            bodies = np.concatenate([np.empty((0, LANDMARKS, 5), np.float32), *(body for body, _ in found)])
            worlds = np.concatenate([np.empty((0, LANDMARKS, 3), np.float32), *(world for _, world in found)])
            offsets = pa.array(np.cumsum([0, *counts]), pa.int32())
            poses = pa.ListArray.from_arrays(offsets, people(bodies, worlds))
            return pa.table([poses, pa.array(counts, pa.int32())], schema=self.outputs)

    def find(self, image: Image) -> tuple[Body, World]:
        """The people of one RGB picture (h w 3 uint8), each once, the most visible first."""
        with self.phase("infer"):
            body, world = self._net(image)
        with self.phase("postprocess"):
            keep = distinct(body, image.shape[0], image.shape[1])
            return body[keep], world[keep]

    def agreement(self, a: pa.Table, b: pa.Table, table: str = "") -> dict[str, float] | None:  # noqa: ARG002
        """People with a partner, and how far their landmarks are apart, in diagonals of their boxes."""
        first, second = Things.of(a["poses"]), Things.of(b["poses"])
        pairs = by_boxes(first, second)
        mine, others = _places(first)[pairs.first], _places(second)[pairs.second]
        boxes = first.boxes[pairs.first]
        diagonals = np.linalg.norm(boxes[:, 2:] - boxes[:, :2], axis=1)
        far = np.linalg.norm(mine - others, axis=2).mean(1) / np.maximum(diagonals, 1e-9)
        distance = float(far.mean()) if len(far) else 0.0
        drift = 1 - pairs.found * (1 - min(1.0, distance))
        return {"people_found": pairs.found, "pose_distance": distance, "drift": drift}

    def preview(self, row: Mapping[str, Any]) -> Drawing | None:
        """The skeletons, without the landmarks that are probably hidden; None without people."""
        if not row.get("poses"):
            return None
        lines = []
        for person in row["poses"]:
            marks = person["landmarks"]
            ends = [(marks[a], marks[b]) for a, b in BONES]
            seen = [(a, b) for a, b in ends if min(a["visibility"], b["visibility"]) >= DRAWN]
            lines += [(a["x"], a["y"], b["x"], b["y"]) for a, b in seen]
        count = len(row["poses"])
        return Drawing(lines=lines, caption=f"{count} {'person' if count == 1 else 'people'}")


def scores(body: Body) -> NDArray[np.float32]:
    """Mean visibility of each person's landmarks (p), 0 to 1; the Tasks API keeps the detector's score to itself."""
    return body[:, :, 3].mean(axis=1)


def boxes(body: Body) -> NDArray[np.float32]:
    """The box round each person's landmarks within the picture: p 4, x0 y0 x1 y1 as shares of width and height."""
    inside = body[:, :, :2].clip(0, 1)
    return np.concatenate([inside.min(axis=1), inside.max(axis=1)], axis=1)


def distinct(body: Body, height: int, width: int) -> list[int]:
    """Which people to keep, the most visible first: nobody whose landmarks lie on those of one already kept.

    Two detections of one person pass the detector's own suppression of overlaps where their boxes differ, and then both
    end on the same landmarks. People are the same when their landmarks are on average (weighted by presence) less than
    `SAME_BODY` of the larger box's diagonal apart.
    """
    size = np.array([width, height], np.float32)
    points = body[:, :, :2] * size
    sides = (boxes(body)[:, 2:] - boxes(body)[:, :2]) * size
    diagonals = np.hypot(sides[:, 0], sides[:, 1])
    kept: list[int] = []
    for one in np.argsort(-scores(body), kind="stable").tolist():
        for other in kept:
            weight = body[one, :, 4] * body[other, :, 4]
            apart = np.hypot(*(points[one] - points[other]).T)
            if (apart * weight).sum() < SAME_BODY * max(diagonals[one], diagonals[other]) * weight.sum():
                break
        else:
            kept.append(one)
    return kept


def people(body: Body, world: World) -> pa.StructArray:
    """Arrow values of type `PERSON`."""
    landmarks = pa.FixedSizeListArray.from_arrays(_structs(body, LANDMARK), LANDMARKS)
    points = pa.FixedSizeListArray.from_arrays(_structs(world, POINT), LANDMARKS)
    return pa.StructArray.from_arrays(
        [pa.array(scores(body)), _structs(boxes(body), BOX), landmarks, points], fields=list(PERSON)
    )


def _structs(values: NDArray[np.float32], dtype: pa.StructType) -> pa.StructArray:
    flat = values.reshape(-1, dtype.num_fields)
    return pa.StructArray.from_arrays([pa.array(np.ascontiguousarray(column)) for column in flat.T], fields=list(dtype))


def _places(things: Things) -> NDArray[np.float64]:
    """Landmarks of people (p 33 2), in shares of width and height."""
    points = pc.list_flatten(pc.struct_field(things.values, "landmarks"))
    both = [pc.struct_field(points, axis).to_numpy(zero_copy_only=False).astype(np.float64) for axis in "xy"]
    return np.stack(both, axis=1).reshape(-1, LANDMARKS, 2)
