"""Objects followed through a video: prompted in one frame, with a mask and one number in every later frame.

Segment Anything 2.1, or EdgeTAM, carries an object's mask from frame to frame by its memories. Frames are decoded when
needed, and memories are dropped once no later frame reads them. So a long video takes no more memory than a short one,
except for its rows.

Shapes: o objects of a video, in the order of their numbers; logits o 256 256 on the device.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any, ClassVar, Literal

import numpy as np
import pyarrow as pa

from framekiln.contract import Drawing, Media, Placement, Scope, Stage, Table, Weights, field
from framekiln.contract.columns import FRAME_INDEX, MEDIA_ID, pixel_column
from framekiln.contract.limits import Count, Natural
from framekiln.device import torch
from framekiln_stages.nets.sam2.image import MODELS
from framekiln_stages.nets.sam2.video import EDGETAM, Tracker, is_timm_installed, load_video_model
from framekiln_stages.shared.masks import (
    BOX,
    SEGMENTATION,
    Mask,
    areas_and_boxes,
    box_label,
    decode,
    encode_masks,
    mask_area,
    upsample_masks,
)
from framekiln_stages.shared.point_prompts import Prompt, PromptFile, check_prompt_file
from framekiln_stages.shared.result_agreement import mask_iou, mean_or
from framekiln_stages.shared.tables import BOXES, RUN_LENGTHS

OBJECTS = pa.schema(
    [
        MEDIA_ID,
        FRAME_INDEX,
        field("object", pa.int32(), "number of the object in its file, from 0", nullable=False),
        field("segmentation", SEGMENTATION, f"mask at the frame's size; empty where hidden. {RUN_LENGTHS}"),
        field("area", pa.int32(), "area of the mask", "px"),
        field("box", BOX, f"{BOXES}; null where the mask is empty"),
        field(
            "score",
            pa.float32(),
            "the network's estimate that the object is visible, 0 to 1; no calibrated probability",
        ),
    ]
)
FRAMES = 4  # frames encoded at once on a GPU, which computes few large launches faster; 50 to 100 MB each


class Objects(Stage):
    """Masks of prompted objects in every frame of a video, from the prompt to the end. Photos have no rows."""

    scope = Scope.MEDIA
    reads_media = True
    chunk_kinds = ("frames",)
    devices = ("cpu", "cuda")
    dummy_weights = True
    tables: ClassVar[dict[str, Table]] = {
        "objects": Table(
            schema=OBJECTS, keys=("media_id", "frame_index", "object"), description="objects followed through videos"
        )
    }

    @dataclass(frozen=True, kw_only=True)
    class Config(Stage.Config):
        """Model and prompts. Raises ValueError: an unknown model, or prompts without a file."""

        # Weights. J&F on the SA-V test set is 79.5, and 76.5 for the tiny model, by the authors. A frame with one
        # object takes edgetam 2.4 s of CPU time in fp32, the tiny model 7.8 s.
        model: str = "sam2.1-hiera-large"
        size: Natural = 1024  # short side of the pixels, as in frame_1024; the model's input is 1024 by 1024
        # masks: the largest of `masks` in the first frame with any; otherwise points or boxes from a file
        prompts: Literal["masks", "points", "boxes"] = "masks"
        # .parquet, .csv or .jsonl: see Segment. Each prompt is an object. Rows without a frame prompt the first frame.
        prompt_file: str = ""
        max_objects: Count = 8  # most objects of `masks`; each costs one pass of memory attention and decoder a frame
        mask_threshold: float = 0.0  # limit of a mask's logits, as in sam2

        def __post_init__(self) -> None:
            if self.model not in (*MODELS, EDGETAM):
                raise ValueError(f"there is no model {self.model!r}, only {', '.join((*MODELS, EDGETAM))}")
            if self.model == EDGETAM and not is_timm_installed():
                raise ValueError("the model 'edgetam' needs timm; install it by: pip install 'framekiln[edgetam]'")
            if (self.prompts == "masks") == bool(self.prompt_file):
                raise ValueError("prompt_file is needed for points and boxes, and only for these")
            if self.prompt_file:
                check_prompt_file(self.prompt_file)

    @property
    def inputs(self) -> tuple[str, ...]:
        """The rows, and for mask prompts the masks."""
        masks = ("masks",) if self.config.prompts == "masks" else ()
        return ("media_id", "frame_index", "media_type", "height", "width", *masks)

    @property
    def files(self) -> tuple[str, ...]:
        return (self.config.prompt_file,) if self.config.prompt_file else ()

    @property
    def weights(self) -> tuple[str, ...]:
        return (self.config.model,)

    def setup(self, weights: Weights, placement: Placement) -> None:
        """Load the model, or give it random weights where they are absent; read the file of prompts.

        Raises ValueError: the weights belong to another model, or a prompt is invalid. Raises FileNotFoundError: the
        file of prompts is missing.
        """
        config = self.config
        frames = self.chunk_sizes.setdefault("frames", 1 if placement.device == "cpu" else FRAMES)
        self._tracker = Tracker(load_video_model(config.model, weights.get(config.model)), placement, frames)
        self._file = PromptFile(Path(config.prompt_file), config.prompts) if config.prompt_file else None

    def __call__(self, batch: pa.Table, media: Media) -> dict[str, pa.Table]:  # type: ignore[override]  # reads_media
        """Return the objects of one file, from its rows in any order and its frames."""
        keys = batch.drop_columns(["masks"]) if "masks" in batch.column_names else batch
        rows = {row["frame_index"]: row for row in keys.to_pylist() if row["media_type"] != "photo"}
        prompts = self._read_prompts(batch.sort_by("frame_index"), sorted(rows)) if rows else {}
        if not prompts:
            return {"objects": OBJECTS.empty_table()}
        tracker, first, records = self._tracker.another(), min(prompts), list[dict[str, Any]]()
        found = media.frames(pixel_column(self.config.size))
        wanted = ((number, image) for number, image in found if number in rows and number >= first)
        while frames := list(islice(wanted, self.chunk_sizes["frames"])):
            with self.phase("infer"):
                encoded = tracker.encode([image for _, image in frames])
            for (number, _), features in zip(frames, encoded, strict=True):
                for prompt in prompts.get(number, ()):
                    tracker.add(prompt)
                row = rows[number]
                objects = self._track_objects(tracker, features, (row["height"], row["width"]))
                records += ({"media_id": row["media_id"], "frame_index": number, **values} for values in objects)
        return {"objects": pa.Table.from_pylist(records, schema=OBJECTS)}

    def _read_prompts(self, batch: pa.Table, numbers: Sequence[int]) -> dict[int, Sequence[Prompt | Mask]]:
        """Return, by frame, the prompts of objects that start there."""
        if self._file is None:
            for i, number in enumerate(batch["frame_index"].to_pylist()):
                if masks := batch["masks"][i].as_py():
                    largest = sorted((mask for mask in masks if mask["area"]), key=lambda mask: -mask["area"])
                    return {number: [decode(mask["segmentation"]) for mask in largest[: self.config.max_objects]]}
            return {}
        name = batch["media_id"][0].as_py()
        prompts: dict[int, Sequence[Prompt | Mask]] = {number: self._file.only_for(name, number) for number in numbers}
        prompts[numbers[0]] = [*self._file.only_for(name, None), *prompts[numbers[0]]]
        return {number: own for number, own in prompts.items() if own}

    def _track_objects(self, tracker: Tracker, features: torch.Tensor, size: tuple[int, int]) -> list[dict[str, Any]]:
        """Return every object in the next frame, as values of `OBJECTS` without keys."""
        with self.phase("infer"):
            logits, visibility = tracker.follow(features)
        with self.phase("postprocess"):
            height, width = size
            masks: list[dict[str, Any]] = []
            for own in torch.split(logits, 1):  # one at a time: 33 MB each at 4K
                masks += encode_masks(upsample_masks(own, (0, 0, width, height), size, self.config.mask_threshold))
            areas, boxes = areas_and_boxes(masks)
            shares = (boxes / [width, height, width, height]).tolist()
            columns = zip(masks, areas.tolist(), shares, visibility.sigmoid().tolist(), strict=True)
            return [
                {
                    "object": number,
                    "segmentation": mask,
                    "area": area,
                    "box": dict(zip(BOX.names, box, strict=True)) if area else None,
                    "score": score,
                }
                for number, (mask, area, box, score) in enumerate(columns)
            ]

    def draw(self, row: Mapping[str, Any]) -> Drawing | None:
        """Draw each object's mask in its colour, with its number; None where all are hidden."""
        visible = [item for item in row.get("objects") or () if item["box"] and item["segmentation"]]
        if not visible:
            return None
        names = [f"object {item['object']}" for item in visible]
        return Drawing(
            areas=[mask_area(item["segmentation"], item["object"]) for item in visible],
            labels=[box_label(item["box"], name) for item, name in zip(visible, names, strict=True)],
            caption=", ".join(names),
        )

    def agreement(self, a: pa.Table, b: pa.Table, table: str = "") -> dict[str, float] | None:  # noqa: ARG002
        """Return the overlap of an object's masks in a frame; 1 where both are empty."""
        codes = [run["segmentation"].to_pylist() for run in (a, b)]
        overlaps = [mask_iou([mine], [other]) for mine, other in zip(*codes, strict=True)]
        empty = [run["box"].is_null().to_numpy() for run in (a, b)]
        iou = np.where(empty[0] & empty[1], 1.0, [0.0 if item is None else float(item[0, 0]) for item in overlaps])
        mean = mean_or(1.0, iou)
        return {"mask_iou": mean, "mask_iou_min": float(iou.min()) if len(iou) else 1.0, "drift": 1 - mean}
