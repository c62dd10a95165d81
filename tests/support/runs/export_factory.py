"""An output with known boxes, masks, people, tracks and identities, as the shipped stages declare them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from framekiln.contract import field
from framekiln.contract.columns import PLACES, SOURCE
from framekiln_stages.categorize.stage import Categorize
from framekiln_stages.faces.stage import Faces
from framekiln_stages.identities.tables import FACES as IDENTITIES
from framekiln_stages.objects.stage import OBJECTS
from framekiln_stages.pose.stage import OUTPUTS as POSES
from framekiln_stages.segment.stage import Segment
from framekiln_stages.shared.masks import encode
from framekiln_stages.tracks.stage import ROWS as TRACKS

HEIGHT, WIDTH = 64, 128
FILM, FRAMES = "films/walk.mp4", 4
NAME = "Ada"  # of person 5; person 6 has none
PHOTOS = ("a b/ü 50%25 off.jpg", "a b/plain.png")
INSTANCES = Categorize(Categorize.Config(of="instances", keep_embedding=False)).outputs.field("instances")
FACES = Faces(Faces.Config()).outputs.field("faces")
MASKS = Segment(Segment.Config()).outputs.field("masks")
CARS = field(
    "cars", pa.list_(pa.struct([("box", MASKS.type.value_type.field("box").type), ("label", pa.string())])), ""
)
"""A column of nobody's stage that the pipeline ships."""


def ring(height: int, width: int) -> np.ndarray:
    """A mask (height width) of two parts, one with a hole."""
    mask = np.zeros((height, width), bool)
    mask[height // 8 : height // 2, width // 8 : width // 2] = True
    mask[height // 4 : height // 3, width // 4 : width // 3] = False
    mask[-height // 4 :, -width // 4 :] = True
    return mask


def box(x0: float, y0: float, x1: float, y1: float) -> dict[str, float]:
    """A box in fractions, which float32 holds exactly."""
    return {"x0": x0 / WIDTH, "y0": y0 / HEIGHT, "x1": x1 / WIDTH, "y1": y1 / HEIGHT}


def face(x: float) -> dict[str, Any]:
    """A face at a place."""
    marks = [{"x": (x + i) / WIDTH, "y": (8 + i) / HEIGHT} for i in range(5)]
    vector = np.zeros(FACES.type.value_type.field("embedding").type.list_size)
    vector[int(x)] = 1
    return {"box": box(x, 8, x + 8, 20), "score": 0.75, "landmarks": marks, "quality": 0.5, "embedding": vector}


def person(x: float) -> dict[str, Any]:
    """A person at a place, with a hidden knee and a foot below the picture."""
    marks = [
        {"x": (x + i / 2) / WIDTH, "y": (6 + i) / HEIGHT, "z": 0.0, "visibility": 1.0, "presence": 1.0}
        for i in range(33)
    ]
    marks[25]["visibility"] = 0.25
    marks[28]["y"] = 1.25
    return {"score": 0.5, "box": box(x, 6, x + 16, 38), "landmarks": marks, "world": [{"x": 0, "y": 0, "z": 0}] * 33}


def mask(height: int, width: int) -> dict[str, Any]:
    """A mask of its own size."""
    return {
        "segmentation": encode([ring(height, width)])[0],
        "area": 1,
        "box": box(16, 8, 128, 64),
        "predicted_iou": 0.875,
    }


def frame_rows(folder: Path) -> list[dict[str, Any]]:
    """Two photos and a film; nobody looked at the film's last frame."""
    rows = [{"media_id": name, "frame_index": 0, "media_type": "photo"} for name in PHOTOS]
    rows += [{"media_id": FILM, "frame_index": i, "media_type": "video", "time_s": i / 25} for i in range(FRAMES)]
    for place, row in enumerate(rows):
        path = folder / row["media_id"]
        row |= {"uri": path.as_uri(), "path": str(path), "clip_index": 0, "height": HEIGHT, "width": WIDTH}
        row |= {"category": "park", "sharpness": 100.0 + place, "clip_embedding": [1.0, 0.0]}
        row |= {"faces": [face(8.0), face(30.0)] if place == 0 else []}
        row |= {"poses": [person(4.0 + place), person(30.0)], "poses_unknown": [{"score": 0.2, "box": box(2, 2, 6, 6)}]}
        row |= {
            "masks": [mask(64, 128), mask(32, 64)],
            "instances": [{"category": "dog", "probability": 0.5, "box": box(16, 8, 128, 64)}, None],
        }
        row |= {"cars": [{"box": box(1, 2, 9, 12), "label": "van"}]}
    rows[-1]["masks"] = rows[-1]["instances"] = rows[-1]["poses"] = None
    return rows


def tables() -> dict[str, pa.Table]:
    """Two people followed, one of them missed once; an object that hides in one frame; who the faces are."""
    whole = {"segmentation": encode([ring(64, 128)])[0], "area": 1, "box": box(16, 8, 128, 64), "score": 0.5}
    hidden = {"segmentation": encode([np.zeros((64, 128), bool)])[0], "area": 0, "box": None, "score": 0.0}
    tracks = [
        {
            "media_id": FILM,
            "frame_index": i,
            "track": track,
            "shot": 0,
            "pose_index": None if (track, i) == (1, 1) else track,
            "landmarks": person(6.0 + i if track == 0 else 30.0)["landmarks"],
        }
        for i in range(FRAMES)
        for track in (0, 1)
    ]
    objects = [
        {"media_id": FILM, "frame_index": i, "object": 7, **(hidden if i == 2 else whole)} for i in range(FRAMES)
    ]
    people = [
        {
            "media_id": PHOTOS[0],
            "frame_index": 0,
            "face_index": i,
            "identity": 5 + i,
            "name": (NAME, None)[i],
            "clustered": True,
            "assigned": False,
        }
        for i in range(2)
    ]
    made = {"tracks": (tracks, TRACKS), "objects": (objects, OBJECTS), "identities": (people, IDENTITIES)}
    return {name: pa.Table.from_pylist(rows, schema) for name, (rows, schema) in made.items()}


def write_output(folder: Path, media: Path) -> Path:
    """Write the output into a folder; its files would lie in `media`."""
    own = [field("category", pa.string(), ""), field("sharpness", pa.float32(), "")]
    vector = field("clip_embedding", pa.list_(pa.float16(), 2), "")
    schema = pa.schema([*SOURCE, *PLACES, *own, vector, FACES, *POSES, MASKS, INSTANCES, CARS])
    frames = pa.Table.from_pylist(frame_rows(media), schema)
    parts = {"frames/part-0": frames.slice(2), "frames/part-1": frames.slice(0, 2)}
    parts |= {f"{name}/part-0": table for name, table in tables().items()}
    (folder / "columns").mkdir(parents=True)
    for name, table in parts.items():
        (folder / name).parent.mkdir(exist_ok=True)
        pq.write_table(table, folder / f"{name}.parquet")
    return folder
