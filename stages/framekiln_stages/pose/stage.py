"""People's poses: 33 landmarks each, in the image and in metres, by MediaPipe's BlazePose.

The Tasks API runs in IMAGE mode, in which a result depends on its frame alone. VIDEO mode tracks: a result would depend
on earlier frames in the same process.

Shapes: p people of one image, 33 landmarks in the order of MediaPipe's PoseLandmark (0 nose, 11 left shoulder, ... 32
right foot index; left and right are the person's own). A `Body` is float32 p 33 5: x, y, z, visibility, presence.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from framekiln.contract import Drawing, Image, Scope, annotates, field, views
from framekiln.contract.limits import Count, NonNegative, Proportion
from framekiln.contract.words import counted
from framekiln_stages.nets.mediapipe_tasks import BlazePose, Body, World
from framekiln_stages.pose.films import follow, key_frames, shots
from framekiln_stages.pose.looks import SAME_BODY, Seen, distinct, is_near, scores, search, stacked, tiles
from framekiln_stages.shared.masks import BOX, landmark_boxes
from framekiln_stages.shared.result_agreement import Detections, match_by_boxes, mean_or
from framekiln_stages.shared.settings import LandmarkStage
from framekiln_stages.shared.skeleton import (
    BODY_POINTS,
    BONES,
    LANDMARK,
    LANDMARKS,
    PERSON,
    POINT,
    landmarks,
    orientations,
)
from framekiln_stages.shared.tables import BODY, BOXES, struct_array, struct_lists

DRAWN = 0.5  # least visibility of a drawn landmark, as in MediaPipe's own drawing_utils

UNKNOWN = pa.struct([("score", pa.float32()), ("box", BOX), ("reason", pa.string())])
_POSES = (
    f"people, most visible first: score, the mean visibility of the landmarks, no probability; {BOXES}, around "
    f"the landmarks, so without hair and hat; {BODY}; world: "
    "the same landmarks in metres from the middle of the hips, x right, y down, z away from the camera; disagreement: "
    "mean distance of two looks, of the box's diagonal; orientation, by which the trunk is turned clockwise in the "
    "image: 0, 90, 180 or 270 degrees"
)
_UNKNOWN = (
    f"people with an unknown pose, as on blur: score and box of the first look ({BOXES}), and the reason: "
    "not_seen_again, or looks_disagree where a second look found other landmarks"
)
OUTPUTS = pa.schema(
    [
        annotates(field("poses", pa.list_(PERSON), _POSES), **BODY_POINTS),
        field("people", pa.int32(), "number of people in `poses`"),
        annotates(field("poses_unknown", pa.list_(UNKNOWN), _UNKNOWN), **BODY_POINTS),
    ]
)


class People(NamedTuple):
    """The people of one image, the most visible first."""

    body: Body
    world: World
    disagreement: NDArray[np.float32]  # p, between two looks, of the box's diagonal
    unknown: list[dict[str, Any]]  # values of `UNKNOWN`


class Pose(LandmarkStage):
    """People and their landmarks.

    BlazePose's detector sees the whole image in 224 px. There it misses people smaller than about a third of the
    image's height, whoever stands close to somebody else, and most of a group. So it looks at tiles of the image too. A
    mirrored second look must find each pose again. In a film it does so now and then, and follows people in between
    (`pose.films`). It still misses people from behind, people cut by the image's edge, and crowds
    (docs/measuring/accuracy.md).
    """

    finds = (("poses", "pose", "poses"),)
    version = 6
    scope = Scope.CLIP
    cut_dependence = "the first and the last frame of a clip are searched everywhere, but not all between"

    outputs = OUTPUTS  # never null
    network = BlazePose

    @dataclass(frozen=True, kw_only=True)
    class Config(LandmarkStage.Config):
        """The model, the most people, and where to look again.

        OKS on a COCO photo in 9 images of 1 to 39 MP is 0.881 to 0.944 at full size. It is 0.902 to 0.928 at a `size`
        of 512, and 0.877 to 0.927 at 256. On 43 photos, a detection confidence of 0.3 finds one person twice and nobody
        new; 0.7 misses a portrait. With presence confidences from 0.3 to 0.7 the results of those photos are equal.
        """

        limit = "max_people"
        model: str = "pose_landmarker_full_bundled"  # weights; available from a package registry alone
        # Most people of one image, 25 ms each; from 4 to 16, the test photos gave the same people.
        max_people: Count = 8
        # Side of the tiles as a share of the image's short side; 0: no tiles. Of 30 people with 0.25 to 0.5 of the
        # height, 0.5 finds 23, 0.6 at most as many, 0.4 finds 24 in 1.5 times the time, and no tiles 3.
        tile: Proportion = 0.5
        # Longest time between two full searches in a video; in between, people are followed. 0: search each frame
        # everywhere. In 10 videos of 75 to 100 frames that finds 613 people; 0.5 s finds 609 of them and 2 more, in
        # 16 % of the time.
        look_s: NonNegative = 0.5

    @property
    def inputs(self) -> tuple[str, ...]:
        """Pixels, and times of films' frames."""
        return (self.pixels, "time_s")

    def __call__(self, batch: pa.Table) -> pa.Table:
        """Find the people of a clip's frames."""
        images, times = views(batch[self.pixels]), batch["time_s"].to_pylist()
        with self.phase("preprocess"):
            parts = shots(images, self.config.look_s)
        with self.phase("infer"):
            seen = [one for part in parts for one in self._follow(images[part], times[part])]
        with self.phase("postprocess"):
            results = [collected(one, image, self.config.max_people) for one, image in zip(seen, images, strict=True)]
            offsets = pa.array(np.cumsum([0, *(len(result.body) for result in results)]), pa.int32())
            poses = pa.ListArray.from_arrays(offsets, people(results))
            counts = pa.array([len(result.body) for result in results], pa.int32())
            unknown = pa.array([result.unknown for result in results], pa.list_(UNKNOWN))
            return pa.table([poses, counts, unknown], schema=self.outputs)

    def _follow(self, images: Sequence[Image], times: Sequence[float | None]) -> Iterator[Seen]:
        return follow(self._net, images, key_frames(times, self.config.look_s), self.config.tile)

    def find(self, image: Image) -> People:
        """Return the people of one RGB image (h w 3 uint8), each once."""
        with self.phase("infer"):
            height, width = image.shape[:2]
            parts = tiles(height, width, self.config.tile)
            seen = search(self._net, image, self._net(image), parts)
        with self.phase("postprocess"):
            return collected(seen, image, self.config.max_people)

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


def collected(seen: Seen, image: Image, most: int) -> People:
    """Return the most visible people, and people whose pose no second look confirmed, as unknown."""
    body = stacked(one.body for one in seen.found)
    world = np.array([one.world for one in seen.found], np.float32).reshape(-1, LANDMARKS, 3)
    disagreement = np.array([one.distance for one in seen.found], np.float32)
    keep = distinct(body, *image.shape[:2])[:most]
    unknown = []
    for one, distance in seen.doubtful:
        if not is_near(one, body[keep], SAME_BODY, *image.shape[:2]):
            box = landmark_boxes(one[None])[0].tolist()
            unknown.append(
                {
                    "score": float(scores(one[None])[0]),
                    "box": dict(zip(BOX.names, box, strict=True)),
                    "reason": "looks_disagree" if np.isfinite(distance) else "not_seen_again",
                }
            )
    return People(body[keep], world[keep], disagreement[keep], unknown)


def people(results: Sequence[People]) -> pa.StructArray:
    """Return the people of all images as Arrow values of type `PERSON`."""
    body = np.concatenate([np.empty((0, LANDMARKS, 5), np.float32), *(result.body for result in results)])
    world = np.concatenate([np.empty((0, LANDMARKS, 3), np.float32), *(result.world for result in results)])
    columns = [
        pa.array(scores(body)),
        struct_array(landmark_boxes(body), BOX),
        struct_lists(body, LANDMARK),
        struct_lists(world, POINT),
        pa.array(np.concatenate([np.empty(0, np.float32), *(result.disagreement for result in results)])),
        pa.array(orientations(world)),
    ]
    return pa.StructArray.from_arrays(columns, fields=list(PERSON))
