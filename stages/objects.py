"""Things followed through a video: shown once, found in every frame after, under one number from end to end.

Segment Anything 2.1, or EdgeTAM, carries an object's mask from frame to frame by what it remembers of it. Frames are
decoded as they are looked at, and memories are dropped when no later frame reads them, so a long video takes no more
memory than a short one but for its rows.

Shapes: o objects of a video, in the order of their numbers; logits o 256 256 on the device.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pyarrow as pa

from pipeline.columns import FRAME_INDEX, MEDIA_ID, field, pixels_of
from pipeline.stage import Drawing, Media, Placement, Scope, Stage, Table, Weights
from stages.nets.drawings import area_of, label_of
from stages.nets.edgetam import EDGETAM, available
from stages.nets.likeness import mask_overlaps
from stages.nets.masks import BOX, SEGMENTATION, Mask, decode, encode, measures
from stages.nets.prompts import READERS, Prompt, PromptFile
from stages.nets.proposals import enlarged
from stages.nets.sam2 import MODELS
from stages.nets.sam2_video import Tracker, built

OBJECTS = pa.schema(
    [
        MEDIA_ID,
        FRAME_INDEX,
        field("object", pa.int32(), "number of the object in its file, from 0", nullable=False),
        field("segmentation", SEGMENTATION, "its mask at the frame's size, as COCO run lengths; empty where hidden"),
        field("area", pa.int32(), "of the mask", "px"),
        field("box", BOX, "round the mask, shares of width and height, 0 to 1; null where the mask is empty"),
        field("score", pa.float32(), "how likely the object is to be seen at all, 0 to 1"),
    ]
)
KEYS = ("media_id", "frame_index", "object")


class Objects(Stage):
    """Masks of chosen objects in every frame of a video, from where they are shown to the end. Photos have no rows."""

    scope = Scope.MEDIA
    reads_media = True
    placement = Placement(cpus=1.0)
    devices = ("cpu", "cuda")
    dummy_weights = True

    @dataclass(frozen=True, kw_only=True)
    class Config(Stage.Config):
        """Which model, and what to follow.

        Raises:
            ValueError: an unknown model, a number that makes no sense, or prompts without a file.
        """

        # As of Segment: J&F on the SA-V test set 79.5, of the tiny one 76.5, by its authors. A frame
        # with one object takes 2.4 s of CPU time by edgetam in fp32, 7.8 s by the tiny one.
        model: str = "sam2.1-hiera-large"
        size: int = 1024  # short side of the pixels, as in frame_1024; the model looks at 1024 by 1024
        # masks: the largest of the column `masks` in the first frame that has any; or points or boxes out of a file
        prompts: Literal["masks", "points", "boxes"] = "masks"
        # .parquet, .csv or .jsonl: see Segment. Each prompt is an object. Where rows name no frame: the file's first.
        prompt_file: str = ""
        max_objects: int = 8  # of masks: each costs one pass of memory attention and decoder a frame
        mask_threshold: float = 0.0  # sam2's, of logits

        def __post_init__(self) -> None:
            if self.model not in (*MODELS, EDGETAM):
                raise ValueError(f"there is no model {self.model!r}, only {', '.join((*MODELS, EDGETAM))}")
            if self.model == EDGETAM and not available():
                raise ValueError("the model 'edgetam' needs timm; install it by: pip install 'framemill[edgetam]'")
            if self.prompts not in ("masks", "points", "boxes"):
                raise ValueError(f"prompts must be masks, points or boxes, not {self.prompts!r}")
            if (self.prompts == "masks") == bool(self.prompt_file):
                raise ValueError("prompt_file must be given for points or boxes, and for these only")
            if self.prompt_file and Path(self.prompt_file).suffix not in READERS:
                raise ValueError(f"prompt_file must end in one of {', '.join(READERS)}")
            if self.size < 0 or self.max_objects < 1:
                raise ValueError("size must be at least 0, and max_objects at least 1")

    @property
    def inputs(self) -> tuple[str, ...]:
        """What rows there are, and perhaps their masks."""
        masks = ("masks",) if self.config.prompts == "masks" else ()
        return ("media_id", "frame_index", "media_type", "height", "width", *masks)

    @property
    def tables(self) -> dict[str, Table]:
        """`objects`: one row for each object and frame."""
        return {"objects": Table(schema=OBJECTS, keys=KEYS, description="objects followed through videos")}

    @property
    def files(self) -> tuple[str, ...]:
        """Files that are settings: the prompts."""
        return (self.config.prompt_file,) if self.config.prompt_file else ()

    @property
    def weights(self) -> tuple[str, ...]:
        """The model."""
        return (self.config.model,)

    def setup(self, weights: Weights, placement: Placement) -> None:
        """Load the model, or draw its weights where they are absent; read the file of prompts.

        Raises:
            ValueError: the weights are another model's, or the prompts make no sense.
            FileNotFoundError: there is no such file of prompts.
        """
        config = self.config
        model = built(config.model, weights.get(config.model))
        self._tracker = Tracker(model, placement)
        self._file = PromptFile(Path(config.prompt_file), config.prompts) if config.prompt_file else None

    def __call__(self, batch: pa.Table, media: Media) -> dict[str, pa.Table]:  # type: ignore[override]  # reads_media
        """The objects of one file, from its rows in any order and its frames."""
        keys = batch.drop_columns(["masks"]) if "masks" in batch.column_names else batch
        rows = {row["frame_index"]: row for row in keys.to_pylist() if row["media_type"] != "photo"}
        shown = self._shown(batch.sort_by("frame_index"), sorted(rows)) if rows else {}
        records: list[dict[str, Any]] = []
        if shown:
            for number, row, found in self._followed(rows, shown, media):
                records += ({"media_id": row["media_id"], "frame_index": number, **one} for one in found)
        return {"objects": pa.Table.from_pylist(records, schema=OBJECTS)}

    def preview(self, row: Mapping[str, Any]) -> Drawing | None:
        """Each object's mask in its colour, with its number; None where all are hidden."""
        seen = [one for one in row.get("objects") or () if one["box"] and one["segmentation"]]
        if not seen:
            return None
        names = [f"object {one['object']}" for one in seen]
        return Drawing(
            areas=[area_of(one["segmentation"], one["object"]) for one in seen],
            labels=[label_of(one["box"], name) for one, name in zip(seen, names, strict=True)],
            caption=", ".join(names),
        )

    def agreement(self, a: pa.Table, b: pa.Table, table: str = "") -> dict[str, float] | None:  # noqa: ARG002
        """How masks of an object in a frame overlap; 1 where both are empty."""
        codes = [one["segmentation"].to_pylist() for one in (a, b)]
        found = [mask_overlaps([mine], [other]) for mine, other in zip(*codes, strict=True)]
        empty = [one["box"].is_null().to_numpy() for one in (a, b)]
        each = np.where(empty[0] & empty[1], 1.0, [0.0 if one is None else float(one[0, 0]) for one in found])
        mean = float(each.mean()) if len(each) else 1.0
        return {"mask_iou": mean, "mask_iou_min": float(each.min()) if len(each) else 1.0, "drift": 1 - mean}

    def _shown(self, batch: pa.Table, numbers: Sequence[int]) -> dict[int, Sequence[Prompt | Mask]]:
        """By frame, what is to be followed from there on."""
        if self._file is None:
            for i, number in enumerate(batch["frame_index"].to_pylist()):
                if masks := batch["masks"][i].as_py():
                    return {number: [decode(one["segmentation"]) for one in self._largest(masks)]}
            return {}
        name = batch["media_id"][0].as_py()
        asked: dict[int, Sequence[Prompt | Mask]] = {number: self._file.at(name, number) for number in numbers}
        asked[numbers[0]] = [*self._file.at(name, None), *asked[numbers[0]]]
        return {number: prompts for number, prompts in asked.items() if prompts}

    def _largest(self, masks: Sequence[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
        seen = [one for one in masks if one["area"]]
        return sorted(seen, key=lambda one: -one["area"])[: self.config.max_objects]

    def _followed(
        self, rows: Mapping[int, Mapping[str, Any]], shown: Mapping[int, Sequence[Prompt | Mask]], media: Media
    ) -> Iterator[tuple[int, Mapping[str, Any], list[dict[str, Any]]]]:
        """Numbers of frames, their rows and the objects in them, from the first that shows one."""
        self._tracker.begin()
        for number, image in media.frames(pixels_of(self.config.size)):
            if number not in rows:
                continue
            for prompt in shown.get(number, ()):
                self._tracker.add(prompt)
            if self._tracker.objects:
                yield number, rows[number], self._found(image, (rows[number]["height"], rows[number]["width"]))

    def _found(self, image: Any, size: tuple[int, int]) -> list[dict[str, Any]]:
        """Every object in the next frame, as values of `OBJECTS` without their keys."""
        import torch

        with self.phase("infer"):
            logits, seen = self._tracker.look(image)
        with self.phase("postprocess"):
            height, width = size
            masks: list[dict[str, Any]] = []
            for one in torch.split(logits, 1):  # a 4K frame's masks at once would be 33 MB each
                masks += encode(list(enlarged(one, (0, 0, width, height), size, self.config.mask_threshold)))
            areas, boxes = measures(masks)
            shares = boxes / [width, height, width, height]
            return [
                {
                    "object": i,
                    "segmentation": mask,
                    "area": area,
                    "box": dict(zip(BOX.names, box, strict=True)) if area else None,
                    "score": score,
                }
                for i, (mask, area, box, score) in enumerate(
                    zip(masks, areas.tolist(), shares.tolist(), seen.sigmoid().tolist(), strict=True)
                )
            ]
