"""Masks of everything in a picture, or of what somebody points at: Segment Anything 2.1.

What is asked and which answers are kept is decided on the model's own small grid (`stages.nets.asking`); here those
few become masks of the frame's size and rows of a table.

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

from pipeline.columns import field, pixels_of, views
from pipeline.stage import Drawing, Placement, Scope, Stage, Weights
from stages.nets.asking import Asking, Frame, Rules
from stages.nets.drawings import area_of
from stages.nets.likeness import Things, by_masks
from stages.nets.masks import BOX, MASK, encode, measures
from stages.nets.prompts import READERS, Prompt, PromptFile, prompts_of
from stages.nets.proposals import Proposals, apart, cleaned, enlarged, scaled
from stages.nets.sam2 import MODELS, Sam2

CANVAS = 1 << 27  # px of masks enlarged at once: 512 MB of float32, 16 masks of a 4K frame
DRAWN = 12  # masks of a preview, the largest first


class Segment(Stage):
    """Masks with areas, boxes and scores.

    Asking is what takes time: on an H200, in bf16 and compiled, the large model looks at a picture for 7 to 9 ms and
    answers 1,024 prompts, 256 a call, in 60.
    """

    scope = Scope.ROW
    placement = Placement(cpus=1.0, batch_rows=1)
    devices = ("cpu", "cuda")
    dummy_weights = True

    @dataclass(frozen=True, kw_only=True)
    class Config(Rules):
        """Which model, which prompts, what is written; and the rules of asking.

        Raises:
            ValueError: an unknown model, a number that makes no sense, or prompts without a source.
        """

        # The best one. All models answer prompts with the same decoder, so for the 1,024 of the grid a smaller one
        # saves on a GPU no more than part of the 7 to 9 ms of 70 that this one looks.
        model: str = "sam2.1-hiera-large"
        # Short side of the pixels, as in frame_1024; 0 is full size. The model looks at 1024 by 1024. Crops of a large
        # photo are only sharper than the photo itself with 0.
        size: int = 1024
        prompts: Literal["grid", "points", "boxes"] = "grid"
        # Of points or boxes: a list of structs with x, y (perhaps label, object) or x0, y0, x1, y1; or with a struct
        # of these called point or box, such as `faces`. In shares of the frame.
        prompt_column: str = ""
        # Or .parquet, .csv or .jsonl, with media_id, perhaps frame_index, and the same names as columns.
        prompt_file: str = ""
        # full: of the frame; low: the model's own grid of 256 by 256, whatever the frame's shape
        mask_size: Literal["full", "low"] = "full"

        def __post_init__(self) -> None:
            super().__post_init__()
            if self.model not in MODELS:
                raise ValueError(f"there is no model {self.model!r}, only {', '.join(MODELS)}")
            if self.size < 0:
                raise ValueError(f"size must be at least 0, not {self.size}")
            self._check_prompts()

        def _check_prompts(self) -> None:
            sources = bool(self.prompt_column) + bool(self.prompt_file)
            if self.prompts == "grid" and sources:
                raise ValueError("prompts must be points or boxes where prompt_column or prompt_file is given")
            if self.prompts != "grid" and sources != 1:
                raise ValueError(f"prompts of {self.prompts} need either prompt_column or prompt_file")
            if self.prompts != "grid" and self.crop_n_layers:
                raise ValueError("crop_n_layers goes with prompts of the grid only")
            if self.prompt_file and Path(self.prompt_file).suffix not in READERS:
                raise ValueError(f"prompt_file must end in {', '.join(READERS)}, not be {self.prompt_file!r}")

        @property
        def low(self) -> bool:
            """Whether masks stay on the model's grid."""
            return self.fast or self.mask_size == "low"

    @property
    def pixels(self) -> str:
        """The pixel column that the settings ask for."""
        return pixels_of(self.config.size)

    @property
    def inputs(self) -> tuple[str, ...]:
        """Pixels, the frame's full size, and what says the prompts."""
        config = self.config
        keys = ("media_id", "frame_index") if config.prompt_file else ()
        return (self.pixels, "height", "width", *keys, *([config.prompt_column] if config.prompt_column else []))

    @property
    def files(self) -> tuple[str, ...]:
        """Files that are settings: the prompts."""
        return (self.config.prompt_file,) if self.config.prompt_file else ()

    @property
    def outputs(self) -> pa.Schema:
        """`masks` and `mask_count`; never null."""
        order = "in the order of the prompts" if self.config.prompts != "grid" else "highest predicted IoU first"
        about = f"masks, {order}: COCO run lengths, area, box in shares, predicted IoU, stability, point asked at"
        return pa.schema(
            [field("masks", pa.list_(MASK), about), field("mask_count", pa.int32(), "number of masks in `masks`")]
        )

    @property
    def weights(self) -> tuple[str, ...]:
        """The model."""
        return (self.config.model,)

    def setup(self, weights: Weights, placement: Placement) -> None:
        """Load the model, or draw its weights where they are absent; read the file of prompts.

        With drawn weights hardly any mask of the grid passes the thresholds as they are by default, so that nothing is
        enlarged or encoded: a benchmark wants `pred_iou_thresh` and `stability_score_thresh` 0 and `box_nms_thresh` 1
        (then all masks are), perhaps with `max_masks`.

        Raises:
            ValueError: the weights are another model's, or the prompts make no sense.
            FileNotFoundError: there is no such file of prompts.
        """
        config = self.config
        net = Sam2(MODELS[config.model], weights.get(config.model), placement)
        self._file = PromptFile(Path(config.prompt_file), config.prompts) if config.prompt_file else None
        self._asking = Asking(self, net, config, placement)

    def __call__(self, batch: pa.Table) -> pa.Table:
        """The masks of each frame."""
        import torch

        sizes = zip(batch["height"].to_pylist(), batch["width"].to_pylist(), strict=True)
        rows = zip(views(batch[self.pixels]), sizes, self._prompts(batch), strict=True)
        with torch.inference_mode():
            frames = [self._asking.frame(*row) for row in rows]
            found = self._asking.ask(frames)
            masks = [self._records(*pair) for pair in zip(frames, found, strict=True)]
        counts = pa.array([len(one) for one in masks], pa.int32())
        return pa.table([pa.array(masks, pa.list_(MASK)), counts], schema=self.outputs)

    @property
    def _grid(self) -> bool:
        return self.config.prompts == "grid"

    def _prompts(self, batch: pa.Table) -> Sequence[Sequence[Prompt] | None]:
        """The prompts of each row; None for the grid."""
        if self._grid:
            return [None] * batch.num_rows
        if self._file is not None:
            keys = zip(batch["media_id"].to_pylist(), batch["frame_index"].to_pylist(), strict=True)
            return [list(self._file.of(*key)) for key in keys]
        return [prompts_of(rows or (), self.config.prompts) for rows in batch[self.config.prompt_column].to_pylist()]

    def _records(self, frame: Frame, found: Proposals) -> list[dict[str, Any]]:
        """A frame's masks as values of `MASK`."""
        with self.phase("postprocess"):
            low = MODELS[self.config.model].low
            canvas = (low, low) if self.config.low else frame.size
            coded, changed = self._coded(frame, found, canvas)
            areas, boxes = measures(coded)
            chosen = self._chosen(areas, boxes, np.array(changed, bool)) if self._grid else range(len(coded))
            shares = (boxes / np.tile(canvas[::-1], 2)).tolist()
            scores = [one.tolist() for one in (found.crops, found.prompts, found.iou, found.stability)]
            return [
                {
                    "segmentation": coded[row],
                    "area": int(areas[row]),
                    "box": dict(zip(BOX.names, shares[row], strict=True)),
                    "predicted_iou": iou,
                    "stability_score": steady,
                    "point": self._asking.point(frame, crop, prompt),
                }
                for row, crop, prompt, iou, steady in ((row, *(column[row] for column in scores)) for row in chosen)
            ]

    def _chosen(self, areas: NDArray[np.int64], boxes: NDArray[np.float64], changed: NDArray[np.bool_]) -> list[int]:
        """Numbers of the grid's masks that are still worth a row at their final size.

        A lone cell of the model's grid may fall between the pixels of the frame; and a mask that was cleaned may now
        repeat another, of which one that needed no cleaning stays.
        """
        import torch

        some = np.flatnonzero(areas)
        if changed.any():
            most = max(self.config.box_nms_thresh, self.config.crop_nms_thresh)
            clean = torch.from_numpy(~changed[some]).double()
            some = some[apart(torch.from_numpy(boxes[some]), clean, most).sort().values.numpy()]
        return some.tolist()

    def _coded(
        self, frame: Frame, found: Proposals, canvas: tuple[int, int]
    ) -> tuple[list[dict[str, Any]], list[bool]]:
        """Masks at the size of the canvas as values of `SEGMENTATION`, and whether cleaning changed them."""
        config, numbers = self.config, found.crops.cpu().numpy()
        coded: list[dict[str, Any]] = [{}] * len(numbers)
        changed = [False] * len(numbers)
        for crop in np.unique(numbers):
            place = scaled(frame.views[crop].box, frame.size, canvas)
            rows = np.flatnonzero(numbers == crop).tolist()
            for part in self.chunks(rows, "masks", default=max(1, CANVAS // (canvas[0] * canvas[1]))):
                whole = enlarged(found.logits[part], place, canvas, config.mask_threshold)
                least = config.min_mask_region_area
                clean = [cleaned(mask, least) for mask in whole] if least else list(whole)
                for row, before, after, code in zip(part, whole, clean, encode(clean), strict=True):
                    coded[row], changed[row] = code, after is not before
        return coded, changed

    def agreement(self, a: pa.Table, b: pa.Table, table: str = "") -> dict[str, float] | None:  # noqa: ARG002
        """Masks with a partner, and how they overlap."""
        pairs = by_masks(Things.of(a["masks"]), Things.of(b["masks"]))
        overlap = pairs.mean_overlap()
        return {"masks_found": pairs.found, "mask_iou": overlap, "drift": 1 - pairs.found * overlap}

    def preview(self, row: Mapping[str, Any]) -> Drawing | None:
        """The largest masks, each in a colour; None without masks."""
        masks = row.get("masks")
        if not masks:
            return None
        largest = sorted(masks, key=lambda one: -_share(one))[:DRAWN]
        areas = [area_of(mask["segmentation"], colour) for colour, mask in enumerate(largest)]
        more = f", the {DRAWN} largest drawn" if len(masks) > DRAWN else ""
        return Drawing(areas=areas, caption=f"{len(masks)} {'mask' if len(masks) == 1 else 'masks'}{more}")


def _share(mask: Mapping[str, Any]) -> float:
    height, width = mask["segmentation"]["size"]
    return mask["area"] / (height * width)
