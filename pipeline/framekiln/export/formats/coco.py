"""COCO: annotations/instances_SPLIT.json, as pycocotools, FiftyOne and torchvision read it.

Boxes are x, y, width and height in px, masks compressed run lengths, keypoints x, y and visibility. Beyond COCO's own
names an annotation has `score`, `track_id` and `attributes`, an image `media_id`, `frame_index` and `category`. COCO
has no embeddings: Parquet tables beside it hold them, and name the image and the annotation.
"""

import json
from collections.abc import Sequence
from typing import Any

import pyarrow as pa

from framekiln.export.annotation import ABSENT, Annotation, Categories, ExportedImage, scale_mask
from framekiln.export.formats.base import Format, Spool
from framekiln.export.request import KINDS
from framekiln.output.object_store import Store


class Writer(Format):
    """One JSON file a split, with embeddings beside it."""

    kinds = frozenset(KINDS)
    default = frozenset({"boxes", "masks", "poses", "faces", "categories"})

    def __init__(self, *given: Any) -> None:
        super().__init__(*given)
        self._spool = Spool()  # a COCO file has the images before the annotations
        self._vectors = Vectors(self.destination)
        self._tracks: dict[tuple[str, str, int], int] = {}
        self._image_id = self._annotation_id = 0

    def add(self, image: ExportedImage) -> None:
        self._image_id += 1
        self._spool.add_json(f"images {image.split}", self._describe_image(image))
        for column, vector in image.embeddings.items():
            self._vectors.add(self._image_id, None, column, vector)
        for item in image.annotations:
            self._annotation_id += 1
            ids = {
                "id": self._annotation_id,  # from 1: pycocotools' evaluation takes 0 for unmatched
                "image_id": self._image_id,
                "category_id": self.categories.number(item.category) + 1,
            }
            record = {**ids, **describe(item, image), **self._track(item, image)}
            self._spool.add_json(f"annotations {image.split}", record)
            self._vectors.add(self._image_id, self._annotation_id, item.source, item.embedding)

    def end(self) -> None:
        self._vectors.flush()
        categories = describe_categories(self.categories)
        for split in self.splits:
            with self.destination.writing(f"annotations/instances_{split}.json") as stream:
                stream.write(b'{"images": [\n')
                self._spool.copy(f"images {split}", stream)
                stream.write(b'\n],\n"annotations": [\n')
                self._spool.copy(f"annotations {split}", stream)
                stream.write(b'\n],\n"categories": ' + json.dumps(categories).encode() + b"}\n")

    def _describe_image(self, image: ExportedImage) -> dict[str, Any]:
        own = {"id": self._image_id, "file_name": image.name, "width": image.width, "height": image.height}
        record = own | {"media_id": image.media_id, "frame_index": image.frame_index}
        category = self.category_of(image)
        return record if category is None else record | {"category": category}

    def _track(self, item: Annotation, image: ExportedImage) -> dict[str, int]:
        """Return COCO's track_id: a number over all files, made from our number within a file."""
        if item.track is None:
            return {}
        key = image.media_id, *item.track
        return {"track_id": self._tracks.setdefault(key, len(self._tracks) + 1)}


def describe(item: Annotation, image: ExportedImage) -> dict[str, Any]:
    """Return the record of an annotation, without its numbers."""
    x0, y0, x1, y1 = item.box
    box = [round(value, 3) for value in (x0, y0, x1 - x0, y1 - y0)]
    record: dict[str, Any] = {"bbox": box, "area": round(box[2] * box[3], 3), "iscrowd": 0}
    if item.mask is not None:
        from pycocotools import mask as coco

        record["segmentation"] = scale_mask(item.mask, image.height, image.width)
        record["area"] = int(coco.area({**record["segmentation"], "counts": record["segmentation"]["counts"].encode()}))
    if item.keypoints:
        record["keypoints"] = [round(value, 3) for point in item.keypoints for value in point]
        record["num_keypoints"] = sum(seen != ABSENT for _, _, seen in item.keypoints)
    more = {"score": item.score, "identity": item.identity, "attributes": dict(item.attributes) or None}
    return record | {name: value for name, value in more.items() if value is not None}


def describe_categories(categories: Categories) -> list[dict[str, Any]]:
    """Return the records of categories; COCO counts them and keypoints from 1."""
    records = []
    for number, (name, category) in enumerate(categories, 1):
        skeleton = [[a + 1, b + 1] for a, b in category.skeleton]
        points = {"keypoints": list(category.keypoints), "skeleton": skeleton} if category.keypoints else {}
        records.append({"id": number, "name": name, "supercategory": ""} | points)
    return records


SCHEMA = pa.schema(
    [
        ("image_id", pa.int64()),
        ("annotation_id", pa.int64()),  # null for an embedding of the whole image
        ("column", pa.string()),  # the column of `frames/` that it comes from
        ("embedding", pa.list_(pa.float32())),
    ]
)
_ROWS = 10_000
"""Rows of a file: 20 MB of 512 numbers each."""


class Vectors:
    """The files of embeddings/ in a destination, written as they fill."""

    def __init__(self, destination: Store) -> None:
        self._destination = destination
        self._rows: list[dict[str, Any]] = []
        self._files = 0

    def add(self, image_id: int, annotation_id: int | None, column: str, embedding: Sequence[float] | None) -> None:
        if embedding is None:
            return
        row = {"image_id": image_id, "annotation_id": annotation_id, "column": column, "embedding": embedding}
        self._rows.append(row)
        if len(self._rows) == _ROWS:
            self.flush()

    def flush(self) -> None:
        if self._rows:
            table = pa.Table.from_pylist(self._rows, SCHEMA)
            self._destination.write_table(f"embeddings/part-{self._files:05d}.parquet", table)
            self._files, self._rows = self._files + 1, []
