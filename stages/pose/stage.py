"""People's poses: 33 landmarks each, in the image and in metres, by MediaPipe's BlazePose.

The Tasks API runs in IMAGE mode, where a result depends on its frame alone. VIDEO mode tracks: a result would depend
on earlier frames in the same process.

Shapes: p people of one image, 33 landmarks in the order of MediaPipe's PoseLandmark (0 nose, 11 left shoulder, ... 32
right foot index; left and right are the person's own). A `Body` is float32 p 33 5: x, y, z, visibility, presence.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from pipeline.contract.columns import Image, field, views
from pipeline.contract.drawing import Drawing
from stages.nets.mediapipe.blazepose import BlazePose, Body, World
from stages.shared.arrow_values import struct_array, struct_lists
from stages.shared.mask_drawings import counted
from stages.shared.masks import BOX, landmark_boxes
from stages.shared.pixel_stage import LandmarkStage
from stages.shared.result_agreement import Detections, match_by_boxes, mean_or
from stages.shared.skeleton import BONES, LANDMARK, LANDMARKS, PERSON, POINT, landmarks

# Of the box's diagonal. One person detected twice, in 11 photos: 0.009 to 0.09; two side by side: from 0.27.
SAME_BODY = 0.1
DRAWN = 0.5  # visibility from which a landmark is drawn; the threshold of MediaPipe's own drawing_utils

_POSES = "people, most visible first: score, box, 33 landmarks in the image and in metres"
OUTPUTS = pa.schema(
    [
        field("poses", pa.list_(PERSON), _POSES),
        field("people", pa.int32(), "number of people in `poses`"),
    ]
)


class Pose(LandmarkStage):
    """People and their landmarks.

    BlazePose's detector works at 224 px. It misses people smaller than about a third of the image's height, and may
    miss some of a group.
    """

    outputs = OUTPUTS  # never null
    network = BlazePose

    @dataclass(frozen=True, kw_only=True)
    class Config(LandmarkStage.Config):
        """The model and the most people.

        OKS on a COCO photo in 9 images of 1 to 39 MP: 0.881 to 0.944 at full size, 0.902 to 0.928 at a `size` of 512,
        0.877 to 0.927 at 256. On 43 photos, a detection confidence of 0.3 finds one person twice and nobody new; 0.7
        misses a portrait. With presence confidences from 0.3 to 0.7 the results of those photos are equal.

        Raises:
            ValueError: `size` is negative, `max_people` below 1, or a confidence outside 0 to 1.
        """

        limit = "max_people"
        model: str = "pose_landmarker_full_bundled"  # available from a package registry alone
        max_people: int = 8  # each person costs 10 ms; with 4 to 16, the test photos gave the same people

    def __call__(self, batch: pa.Table) -> pa.Table:
        """Find the people of each image."""
        results = [self.find(image) for image in views(batch[self.pixels])]
        with self.phase("postprocess"):
            counts = [len(body) for body, _ in results]
            bodies = np.concatenate([np.empty((0, LANDMARKS, 5), np.float32), *(body for body, _ in results)])
            worlds = np.concatenate([np.empty((0, LANDMARKS, 3), np.float32), *(world for _, world in results)])
            offsets = pa.array(np.cumsum([0, *counts]), pa.int32())
            poses = pa.ListArray.from_arrays(offsets, people(bodies, worlds))
            return pa.table([poses, pa.array(counts, pa.int32())], schema=self.outputs)

    def find(self, image: Image) -> tuple[Body, World]:
        """Return the people of one RGB image (h w 3 uint8), each once, the most visible first."""
        with self.phase("infer"):
            body, world = self._net(image)
        with self.phase("postprocess"):
            keep = distinct(body, image.shape[0], image.shape[1])
            return body[keep], world[keep]

    def agreement(self, a: pa.Table, b: pa.Table, table: str = "") -> dict[str, float] | None:  # noqa: ARG002
        """Return the share of matched people, and the distance of their landmarks in diagonals of their boxes."""
        first, second = Detections.from_column(a["poses"]), Detections.from_column(b["poses"])
        matches = match_by_boxes(first, second)
        places = [landmarks(run.values)[..., :2] for run in (first, second)]
        boxes = first.boxes[matches.first]
        diagonals = np.linalg.norm(boxes[:, 2:] - boxes[:, :2], axis=1)
        moves = np.linalg.norm(places[0][matches.first] - places[1][matches.second], axis=2).mean(1)
        distance = mean_or(0.0, moves / np.maximum(diagonals, 1e-9))
        drift = 1 - matches.share * (1 - min(1.0, distance))
        return {"people_found": matches.share, "pose_distance": distance, "drift": drift}

    def draw(self, row: Mapping[str, Any]) -> Drawing | None:
        """Return skeletons without landmarks that are probably hidden; None without people."""
        if not row.get("poses"):
            return None
        lines = []
        for person in row["poses"]:
            marks = person["landmarks"]
            ends = [(marks[a], marks[b]) for a, b in BONES]
            visible = [(a, b) for a, b in ends if min(a["visibility"], b["visibility"]) >= DRAWN]
            lines += [(a["x"], a["y"], b["x"], b["y"]) for a, b in visible]
        return Drawing(lines=lines, caption=counted(len(row["poses"]), "person", "people"))


def scores(body: Body) -> NDArray[np.float32]:
    """Return the mean visibility of each person's landmarks (p), 0 to 1.

    The Tasks API does not return the detector's score.
    """
    return body[:, :, 3].mean(axis=1)


def distinct(body: Body, height: int, width: int) -> list[int]:
    """Return the indices of distinct people, the most visible first.

    Two detections of one person pass the detector's non-maximum suppression if their boxes differ, and then both end
    on the same landmarks. Two people are the same if their landmarks' mean distance, weighted by presence, is less than
    `SAME_BODY` of the larger box's diagonal.
    """
    size = np.array([width, height], np.float32)
    points = body[:, :, :2] * size
    boxes = landmark_boxes(body)
    sides = (boxes[:, 2:] - boxes[:, :2]) * size
    diagonals = np.hypot(sides[:, 0], sides[:, 1])
    kept: list[int] = []

    def is_same(i: int, j: int) -> bool:
        weight = body[i, :, 4] * body[j, :, 4]
        distance = np.hypot(*(points[i] - points[j]).T)
        return bool((distance * weight).sum() < SAME_BODY * max(diagonals[i], diagonals[j]) * weight.sum())

    for i in np.argsort(-scores(body), kind="stable").tolist():
        if not any(is_same(i, j) for j in kept):
            kept.append(i)
    return kept


def people(body: Body, world: World) -> pa.StructArray:
    """Return people as Arrow values of type `PERSON`."""
    columns = [
        pa.array(scores(body)),
        struct_array(landmark_boxes(body), BOX),
        struct_lists(body, LANDMARK),
        struct_lists(world, POINT),
    ]
    return pa.StructArray.from_arrays(columns, fields=list(PERSON))
