"""Masks of everything in an image, or of prompted objects, by Segment Anything 2.1.

The masks are chosen on the model's own small grid (`mask_generator`). Here the chosen ones are upsampled to the frame's
size and written as rows.

Shapes: n masks of a frame, h w its full height and width.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from framekiln.contract import Drawing, GpuMemory, Placement, Weights, field, views
from framekiln.contract.limits import Natural
from framekiln.contract.words import counted
from framekiln.device import torch
from framekiln_stages.nets.sam2.image import MEMORY_MB, MODELS, PROMPT_MB, Sam2
from framekiln_stages.segment.mask_generator import PROMPTS, MaskGenerator, PromptedFrame, Rules
from framekiln_stages.segment.mask_proposals import Proposals, non_max_suppression, remove_small_regions, scale_box
from framekiln_stages.shared.masks import (
    BOX,
    MASK,
    areas_and_boxes,
    encode,
    encode_masks,
    mask_area,
    mask_share,
    upsample_masks,
)
from framekiln_stages.shared.point_prompts import Prompt, PromptFile, check_prompt_file, parse_prompts
from framekiln_stages.shared.result_agreement import Detections, match_by_masks
from framekiln_stages.shared.settings import PixelStage
from framekiln_stages.shared.tables import BOXES, FRACTIONS, RUN_LENGTHS

CANVAS_PIXELS = 1 << 27  # px of masks upsampled at once: 512 MB of float32, 16 masks of a 4K frame
DRAWN = 12  # masks of a preview, the largest first


class Segment(PixelStage):
    """Masks with areas, boxes and scores.

    The prompts take most of the time. On an H200, in bf16 and compiled, the large model encodes an image in 7 to 9 ms.
    It decodes 1,024 prompts, 256 a call, in 60 ms.
    """

    finds = (("masks", "mask", "masks"),)
    placement = Placement(batch=1)
    devices = ("cpu", "cuda")
    dummy_weights = True
    chunk_kinds = ("views", "prompts", "masks")
    dummy_note = "six artificial masks for an image without any; mask counts, and the time to write masks, are void"

    @dataclass(frozen=True, kw_only=True)
    class Config(Rules):
        """Model, prompts, size of the masks, and the rules of mask generation.

        Raises ValueError: an unknown model, or prompts without a source.
        """

        # Weights; these are the best. All models share one decoder for prompts. For the 1,024 prompts of the grid, a
        # smaller model saves on a GPU only part of the encoder's 7 to 9 ms of 70.
        model: str = "sam2.1-hiera-large"
        # Short side of the pixels, as in frame_1024; 0: full size. The model's input is 1024 by 1024. Crops of a large
        # photo show more detail than the photo itself only with 0.
        size: Natural = 1024
        prompts: Literal["grid", "points", "boxes"] = "grid"
        # Column with points or boxes, in shares of the frame: a list of structs with x, y (optionally label, object) or
        # x0, y0, x1, y1. They may be in a struct called point or box, as in `faces`.
        prompt_column: str = ""
        # File with points or boxes: .parquet, .csv or .jsonl with media_id, optionally frame_index, and the same names
        # as columns.
        prompt_file: str = ""
        # full: the frame's; low: the model's own grid of 256 by 256, whatever the frame's shape
        mask_size: Literal["full", "low"] = "full"

        def __post_init__(self) -> None:
            if self.model not in MODELS:
                raise ValueError(f"there is no model {self.model!r}, only {', '.join(MODELS)}")
            sources = bool(self.prompt_column) + bool(self.prompt_file)
            if self.prompts == "grid" and sources:
                raise ValueError("prompts must be points or boxes if prompt_column or prompt_file is given")
            if self.prompts != "grid" and sources != 1:
                raise ValueError(f"prompts of {self.prompts} need either prompt_column or prompt_file")
            if self.prompts != "grid" and self.crop_n_layers:
                raise ValueError("crop_n_layers goes with prompts of the grid only")
            if self.prompt_file:
                check_prompt_file(self.prompt_file)

        @property
        def low(self) -> bool:
            """True if masks keep the size of the model's grid."""
            return self.fast or self.mask_size == "low"

    @property
    def inputs(self) -> tuple[str, ...]:
        """Pixels, the frame's full size, and the columns of the prompts."""
        config = self.config
        keys = ("media_id", "frame_index") if config.prompt_file else ()
        return (self.pixels, "height", "width", *keys, *([config.prompt_column] if config.prompt_column else []))

    @property
    def files(self) -> tuple[str, ...]:
        return (self.config.prompt_file,) if self.config.prompt_file else ()

    @property
    def outputs(self) -> pa.Schema:
        """`masks` and `mask_count`; never null."""
        order = "in the order of the prompts" if self.config.prompts != "grid" else "highest predicted IoU first"
        about = (
            f"masks, {order}: segmentation in {RUN_LENGTHS}; area in px of that mask; {BOXES}; predicted IoU and "
            f"stability, the network's, no probabilities; point that was prompted, x, y in {FRACTIONS}"
        )
        return pa.schema(
            [field("masks", pa.list_(MASK), about), field("mask_count", pa.int32(), "number of masks in `masks`")]
        )

    @property
    def weights(self) -> tuple[str, ...]:
        return (self.config.model,)

    def gpu_memory(self, placement: Placement) -> GpuMemory | None:
        if self.config.model not in MEMORY_MB:
            return None
        weights, image = MEMORY_MB[self.config.model]
        prompts = PROMPT_MB * placement.chunks.get("prompts", PROMPTS)
        return GpuMemory(weights_gb=weights / 1e3, call_gb=max(image * placement.batch, prompts) / 1e3)

    def setup(self, weights: Weights, placement: Placement) -> None:
        """Load the model, or give it random weights where they are absent; read the file of prompts.

        With random weights hardly any mask of the grid passes the default thresholds. Then artificial masks replace
        them (`mask_proposals.dummy_logits`), so that later steps have work. For a benchmark of this step set
        `pred_iou_thresh` and `stability_score_thresh` to 0 and `box_nms_thresh` to 1, which keeps all masks. Raises
        ValueError: the weights belong to another model, or a prompt is invalid. Raises FileNotFoundError: the file of
        prompts is missing.
        """
        config = self.config
        net = Sam2(MODELS[config.model], weights.get(config.model), placement)
        self._file = PromptFile(Path(config.prompt_file), config.prompts) if config.prompt_file else None
        self._generator = MaskGenerator(self, net, config, placement, made=config.model not in weights)
        if placement.compile:
            self._generator.warm_up()

    def __call__(self, batch: pa.Table) -> pa.Table:
        sizes = zip(batch["height"].to_pylist(), batch["width"].to_pylist(), strict=True)
        rows = zip(views(batch[self.pixels]), sizes, self._read_prompts(batch), strict=True)
        with torch.inference_mode():
            frames = [self._generator.frame(*row) for row in rows]
            proposals = self._generator.propose(frames)
            masks = [self._make_records(*pair) for pair in zip(frames, proposals, strict=True)]
        counts = pa.array([len(records) for records in masks], pa.int32())
        return pa.table([pa.array(masks, pa.list_(MASK)), counts], schema=self.outputs)

    @property
    def _grid(self) -> bool:
        return self.config.prompts == "grid"

    def _read_prompts(self, batch: pa.Table) -> Sequence[Sequence[Prompt] | None]:
        """Return the prompts of each row; None for the grid."""
        if self._grid:
            return [None] * batch.num_rows
        if self._file is not None:
            keys = zip(batch["media_id"].to_pylist(), batch["frame_index"].to_pylist(), strict=True)
            return [[*self._file.only_for(name, None), *self._file.only_for(name, frame)] for name, frame in keys]
        return [parse_prompts(rows or (), self.config.prompts) for rows in batch[self.config.prompt_column].to_pylist()]

    def _make_records(self, frame: PromptedFrame, proposals: Proposals) -> list[dict[str, Any]]:
        with self.phase("postprocess"):
            low = MODELS[self.config.model].low
            canvas = (low, low) if self.config.low else frame.size
            # one download: numbers of crops and prompts are far below 2^53
            columns = (proposals.crops, proposals.prompts, proposals.iou, proposals.stability)
            values = torch.stack([column.double() for column in columns]).cpu().numpy()
            crops = values[0].astype(np.int64)
            codes, changed = self._encode(frame, proposals.logits, crops, canvas)
            areas, boxes = areas_and_boxes(codes)
            rows = self._select_distinct(areas, boxes, changed) if self._grid else range(len(codes))
            shares = (boxes / np.tile(canvas[::-1], 2)).tolist()
            scores = list(zip(crops.tolist(), values[1].astype(int).tolist(), *values[2:].tolist(), strict=True))
            return [
                {
                    "segmentation": codes[row],
                    "area": int(areas[row]),
                    "box": dict(zip(BOX.names, shares[row], strict=True)),
                    "predicted_iou": iou,
                    "stability_score": stability,
                    "point": self._generator.prompt_point(frame, crop, prompt),
                }
                for row, (crop, prompt, iou, stability) in ((row, scores[row]) for row in rows)
            ]

    def _select_distinct(
        self, areas: NDArray[np.int64], boxes: NDArray[np.float64], changed: NDArray[np.bool_]
    ) -> list[int]:
        """Return the numbers of the grid's masks to keep at their final size.

        A single cell of the model's grid may fall between the frame's pixels. After the removal of small regions a mask
        may duplicate another; the unchanged one is kept.
        """
        visible = np.flatnonzero(areas)
        if changed.any():
            threshold = max(self.config.box_nms_thresh, self.config.crop_nms_thresh)
            unchanged = torch.from_numpy(~changed[visible]).double()
            kept = non_max_suppression(torch.from_numpy(boxes[visible]), unchanged, threshold)
            visible = visible[kept.sort().values.numpy()]
        return visible.tolist()

    def _encode(
        self, frame: PromptedFrame, logits: torch.Tensor, crops: NDArray[np.int64], canvas: tuple[int, int]
    ) -> tuple[list[dict[str, Any]], NDArray[np.bool_]]:
        """Return masks at the size of the canvas as values of `SEGMENTATION`, and which of them lost small regions."""
        codes, changed = np.empty(len(crops), object), np.zeros(len(crops), bool)
        at_once = max(1, CANVAS_PIXELS // (canvas[0] * canvas[1]))
        for crop in np.unique(crops):
            place, numbers = scale_box(frame.views[crop].box, frame.size, canvas), np.flatnonzero(crops == crop)
            own = logits if len(numbers) == len(crops) else logits[torch.from_numpy(numbers).to(logits.device)]
            for rows in self.chunks(range(len(numbers)), "masks", default=at_once):
                part = slice(rows[0], rows[-1] + 1)
                masks = upsample_masks(own[part], place, canvas, self.config.mask_threshold)
                codes[numbers[part]], changed[numbers[part]] = self._encode_clean(masks)
        return codes.tolist(), changed

    def _encode_clean(self, masks: torch.Tensor) -> tuple[list[dict[str, Any]], list[bool]]:
        """Return masks (n w h) as values of `SEGMENTATION` without small regions, and which ones had some."""
        if not (min_area := self.config.min_mask_region_area):
            return encode_masks(masks), [False] * len(masks)
        before = list(masks.cpu().numpy().transpose(0, 2, 1))
        after = [remove_small_regions(mask, min_area) for mask in before]
        return encode(after), [one is not other for one, other in zip(before, after, strict=True)]

    def draw(self, row: Mapping[str, Any]) -> Drawing | None:
        """Draw the largest masks, each in a colour; None without masks."""
        masks = row.get("masks")
        if not masks:
            return None
        largest = sorted(masks, key=mask_share, reverse=True)[:DRAWN]
        areas = [mask_area(mask["segmentation"], colour) for colour, mask in enumerate(largest)]
        more = f", the {DRAWN} largest drawn" if len(masks) > DRAWN else ""
        return Drawing(areas=areas, caption=counted(len(masks), "mask") + more)

    def agreement(self, a: pa.Table, b: pa.Table, table: str = "") -> dict[str, float] | None:  # noqa: ARG002
        """Return the share of matched masks, and their overlap."""
        matches = match_by_masks(*(Detections.from_column(run["masks"]) for run in (a, b)))
        iou = matches.mean_iou()
        return {"masks_found": matches.share, "mask_iou": iou, "drift": 1 - matches.share * iou}
