"""Masks of everything in a picture, or of what somebody points at: Segment Anything 2.1.

Without prompts a grid of points is asked about, and what the model is sure of is kept (`stages.nets.proposals`). With
prompts, each gets the one mask that the model thinks best.

Shapes: n masks of a frame, p prompts, m masks a prompt; logits p m 256 256 on the device.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import cv2
import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from pipeline.columns import Image, field, pixels_of, views
from pipeline.device import prepare, wait
from pipeline.stage import Drawing, Placement, Scope, Stage, Weights
from stages.nets.masks import BOX, MASK, decode, encode, measures
from stages.nets.prompts import READERS, Prompt, PromptFile, centres, prompts_of
from stages.nets.proposals import (
    Box,
    Proposals,
    apart,
    boxes_of,
    cleaned,
    crops,
    cut_off,
    enlarged,
    grid,
    scaled,
    stability,
)
from stages.nets.sam2 import LOW, MODELS, PREPARATION, Sam2

if TYPE_CHECKING:
    import torch

FAST_POINTS = 16  # a side; a quarter of the prompts
PROMPTS = 64  # asked at once where a profile says nothing, as amg's points_per_batch: 4 GB in fp32
CANVAS = 1 << 27  # px of masks enlarged at once: 512 MB of float32, 16 masks of a 4K frame
LEAST = {
    "size": 0,
    "points_per_side": 1,
    "stability_score_offset": 0,
    "crop_n_layers": 0,
    "crop_n_points_downscale_factor": 1,
    "min_mask_region_area": 0,
    "max_masks": 1,
}
SHARES = ("pred_iou_thresh", "stability_score_thresh", "box_nms_thresh", "crop_nms_thresh", "crop_overlap_ratio")
DRAWN = 12  # masks of a preview, the largest first


@dataclass(frozen=True, kw_only=True)
class View:
    """A frame, or a part of one."""

    image: Image  # h w 3, its pixels as they were read
    layer: int  # 0 the frame, then crops
    box: Box  # px of the full frame


@dataclass(frozen=True, kw_only=True)
class Frame:
    """What is looked at, asked, and found."""

    size: tuple[int, int]  # height and width, px, whatever was read of it
    views: list[View]  # none where there is nothing to ask
    prompts: Sequence[Prompt]
    found: list[Proposals]

    @property
    def box(self) -> Box:
        """All of it."""
        return 0, 0, self.size[1], self.size[0]


class Segment(Stage):
    """Masks with areas, boxes and scores.

    Asking is what takes time: in bf16, compiled, the large model looks for 7 ms and answers 1,024 prompts in 60 on an
    H200.
    """

    scope = Scope.ROW
    placement = Placement(cpus=1.0, batch_rows=1)
    devices = ("cpu", "cuda")
    dummy_weights = True

    @dataclass(frozen=True, kw_only=True)
    class Config(Stage.Config):
        """Which model, what it is asked, and what is kept. "amg" is sam2/automatic_mask_generator.py of Meta's sam2.

        Raises:
            ValueError: an unknown model, a number that makes no sense, or prompts without a source.
        """

        # The prompts' cost is all models' alike, so on a GPU the large one costs a tenth more than the smallest, in
        # 1.3 GB. On a CPU sam2.1-hiera-tiny looks several times as fast.
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
        multimask_output: bool = True  # three masks a prompt, as amg: a point is ambiguous. False: one
        points_per_side: int = 32  # amg
        # Of the grid: the least IoU that the model expects of a mask, as SAM 2's amg; SAM 1's says .88. 0: any
        pred_iou_thresh: float = 0.8
        stability_score_thresh: float = 0.95  # amg. 0: any
        stability_score_offset: float = 1.0  # amg; Meta's example for more masks says .7
        mask_threshold: float = 0.0  # amg; of logits
        box_nms_thresh: float = 0.7  # amg; IoU of boxes from which on one is a repetition
        crop_n_layers: int = 0  # amg; 1 asks again in 4 crops, 2 in 16 more
        crop_nms_thresh: float = 0.7  # amg; between crops, where the smaller crop's mask stays
        crop_overlap_ratio: float = 512 / 1500  # amg
        crop_n_points_downscale_factor: int = 1  # amg; points a side of a layer's crops are fewer by it for each layer
        min_mask_region_area: int = 0  # amg; px of the mask: smaller holes are filled, smaller islands go
        max_masks: int | None = None  # of the grid's masks of one frame, the best; None: all, seldom over 200
        # full: of the frame; low: the model's own grid of 256 by 256, whatever the frame's shape: 1/10 of the bytes
        mask_size: Literal["full", "low"] = "full"
        fast: bool = False  # points_per_side at most 16, mask_size low, and nothing else

        def __post_init__(self) -> None:
            if self.model not in MODELS:
                raise ValueError(f"there is no model {self.model!r}, only {', '.join(MODELS)}")
            self._check_prompts()
            for name, value in LEAST.items():
                if getattr(self, name) is not None and getattr(self, name) < value:
                    raise ValueError(f"{name} must be at least {value}, not {getattr(self, name)}")
            for name in SHARES:
                if not 0 <= getattr(self, name) <= 1:
                    raise ValueError(f"{name} must lie between 0 and 1, not {getattr(self, name)}")

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
        def side(self) -> int:
            """Points a side of the grid over the frame."""
            return min(self.points_per_side, FAST_POINTS) if self.fast else self.points_per_side

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

        Raises:
            ValueError: the weights are another model's, or the prompts make no sense.
            FileNotFoundError: there is no such file of prompts.
        """
        config = self.config
        self._placement = placement
        self._net = Sam2(MODELS[config.model], weights.get(config.model), placement)
        self._file = PromptFile(Path(config.prompt_file), config.prompts) if config.prompt_file else None
        sides = [int(config.side / config.crop_n_points_downscale_factor**i) for i in range(config.crop_n_layers + 1)]
        self._grids = [centres(grid(max(1, side))) for side in sides]

    def __call__(self, batch: pa.Table) -> pa.Table:
        """The masks of each frame."""
        import torch

        sizes = list(zip(batch["height"].to_pylist(), batch["width"].to_pylist(), strict=True))
        asked = self._asked(batch)
        with torch.inference_mode():
            frames = [
                Frame(
                    size=size, views=self._views(image, size) if prompts else [], prompts=prompts, found=[self._none()]
                )
                for image, size, prompts in zip(views(batch[self.pixels]), sizes, asked, strict=True)
            ]
            for frame, crop, features in self._looks(frames):
                frame.found.append(self._proposed(frame, crop, features) if self._grid else self._best(frame, features))
            masks = [self._records(frame, self._kept(frame)) for frame in frames]
        counts = pa.array([len(one) for one in masks], pa.int32())
        return pa.table([pa.array(masks, pa.list_(MASK)), counts], schema=self.outputs)

    @property
    def _grid(self) -> bool:
        return self.config.prompts == "grid"

    def _asked(self, batch: pa.Table) -> list[list[Prompt]]:
        """The prompts of each row; of the grid, those over the whole frame."""
        if self._grid:
            return [self._grids[0]] * batch.num_rows
        if self._file is not None:
            keys = zip(batch["media_id"].to_pylist(), batch["frame_index"].to_pylist(), strict=True)
            return [list(self._file.of(*key)) for key in keys]
        return [prompts_of(rows or (), self.config.prompts) for rows in batch[self.config.prompt_column].to_pylist()]

    def _views(self, image: Image, size: tuple[int, int]) -> list[View]:
        """The frame and its crops."""
        found = []
        for layer, box in crops(*size, self.config.crop_n_layers, self.config.crop_overlap_ratio):
            x0, y0, x1, y1 = scaled(box, size, image.shape[:2])
            found.append(View(image=image[y0:y1, x0:x1], layer=layer, box=box))
        return found

    def _looks(self, frames: Sequence[Frame]) -> Iterator[tuple[Frame, int, list[torch.Tensor]]]:
        """Each view of each frame: its frame, its number and what the model sees in it.

        On a GPU as many views at once as there are frames. On a CPU one by one, which is as fast; no frame's masks can
        then depend on its neighbours by as much as a rounding.
        """
        device = self._placement.device
        everything = [(frame, number) for frame in frames for number in range(len(frame.views))]
        for part in self.chunks(everything, "views", default=1 if device == "cpu" else max(1, len(frames))):
            with self.phase("preprocess"):
                images = [frame.views[number].image for frame, number in part]
                pixels = prepare(images, PREPARATION, self._placement, self._net.dtype)
                wait(device)
            with self.phase("infer"):
                features = self._net.look(pixels)
                wait(device)
            for row, (frame, number) in enumerate(part):
                yield frame, number, [one[row : row + 1] for one in features]

    def _answers(
        self, prompts: Sequence[Prompt], features: list[torch.Tensor]
    ) -> Iterator[tuple[torch.Tensor, torch.Tensor, torch.Tensor]]:
        """Numbers of prompts (p), and their logits (p m 256 256) and expected IoUs (p m), some prompts at a time.

        Prompts of one call have equally many points.
        """
        import torch

        device, rows = self._placement.device, self.chunk_rows.get("prompts", PROMPTS)
        lengths = np.array([len(prompt.labels) for prompt in prompts])
        for length in np.unique(lengths):
            for part in self.chunks(np.flatnonzero(lengths == length).tolist(), "prompts", default=PROMPTS):
                with self.phase("infer"):
                    points = torch.from_numpy(np.stack([prompts[i].points for i in part])).to(device)
                    labels = torch.from_numpy(np.stack([prompts[i].labels for i in part])).to(device)
                    several = self.config.multimask_output
                    logits, iou = self._net.answer(features, points, labels, several=several, rows=rows)
                    wait(device)
                yield torch.tensor(part, device=device), logits, iou

    def _proposed(self, frame: Frame, crop: int, features: list[torch.Tensor]) -> Proposals:
        """What is kept of the grid over one view."""
        config, view, parts = self.config, frame.views[crop], [self._none()]
        for numbers, logits, iou in self._answers(self._grids[view.layer], features):
            with self.phase("postprocess"):
                prompts = numbers[:, None].expand_as(iou)
                sure = iou > (config.pred_iou_thresh or -1)
                found = self._judged(logits[sure], iou[sure], prompts[sure], crop, view.box)
                good = (found.boxes[:, 2] > found.boxes[:, 0]) & ~cut_off(found.boxes, view.box, frame.box)
                parts.append(found.taken(good & (found.stability >= config.stability_score_thresh)))
        with self.phase("postprocess"):
            found = Proposals.joined(parts)
            return found.taken(apart(found.boxes, found.iou, config.box_nms_thresh))

    def _best(self, frame: Frame, features: list[torch.Tensor]) -> Proposals:
        """The best mask of each prompt, in their order."""
        import torch

        parts = [self._none()]
        for numbers, logits, iou in self._answers(frame.prompts, features):
            best = iou.argmax(dim=1)
            each = torch.arange(len(best), device=best.device)
            parts.append(self._judged(logits[each, best], iou[each, best], numbers, 0, frame.box))
        found = Proposals.joined(parts)
        return found.taken(found.prompts.argsort())

    def _judged(self, logits: torch.Tensor, iou: torch.Tensor, prompts: torch.Tensor, crop: int, box: Box) -> Proposals:
        """Answers with their scores and boxes."""
        import torch

        config = self.config
        return Proposals(
            logits=logits,
            iou=iou,
            stability=stability(logits, config.mask_threshold, config.stability_score_offset),
            boxes=boxes_of(logits > config.mask_threshold, box),
            prompts=prompts,
            crops=torch.full_like(prompts, crop),
        )

    def _none(self) -> Proposals:
        import torch

        empty = torch.zeros(0, device=self._placement.device)
        return self._judged(empty.view(0, LOW, LOW), empty, empty.long(), 0, (0, 0, 1, 1))

    def _kept(self, frame: Frame) -> Proposals:
        """A frame's masks, of all its views, that are worth enlarging, in their final order."""
        found = Proposals.joined(frame.found)
        if not self._grid:
            return found
        with self.phase("postprocess"):
            if len(frame.views) > 1:
                sides = [(x1 - x0) * (y1 - y0) for x0, y0, x1, y1 in (view.box for view in frame.views)]
                scores = 1 / found.boxes.new_tensor(sides)[found.crops]
                found = found.taken(apart(found.boxes, scores, self.config.crop_nms_thresh).sort().values)
            order = found.iou.sort(descending=True, stable=True).indices
            return found.taken(order[: self.config.max_masks])

    def _records(self, frame: Frame, found: Proposals) -> list[dict[str, Any]]:
        """A frame's masks as values of `MASK`."""
        with self.phase("postprocess"):
            canvas = (LOW, LOW) if self.config.low else frame.size
            coded, changed = self._coded(frame, found, canvas)
            areas, boxes = measures(coded)
            chosen = np.arange(len(coded))
            if self._grid and any(changed):  # a mask that was cleaned may now repeat one that was clean
                most = max(self.config.box_nms_thresh, self.config.crop_nms_thresh)
                clean = found.boxes.new_tensor([not one for one in changed])
                chosen = np.sort(apart(found.boxes.new_tensor(boxes), clean, most).cpu().numpy())
            shares = (boxes / np.tile(canvas[::-1], 2)).tolist()
            scores = [one.tolist() for one in (found.crops, found.prompts, found.iou, found.stability)]
            return [
                {
                    "segmentation": coded[row],
                    "area": int(areas[row]),
                    "box": dict(zip(BOX.names, shares[row], strict=True)),
                    "predicted_iou": iou,
                    "stability_score": steady,
                    "point": self._point(frame, crop, prompt),
                }
                for row, crop, prompt, iou, steady in (
                    (row, *(column[row] for column in scores)) for row in chosen.tolist()
                )
            ]

    def _point(self, frame: Frame, crop: int, prompt: int) -> dict[str, float] | None:
        """Where a prompt asked, in shares of the frame; None where it was a box."""
        if not self._grid:
            point = frame.prompts[prompt].point
            return point and {"x": point[0], "y": point[1]}
        view, (height, width) = frame.views[crop], frame.size
        x, y = self._grids[view.layer][prompt].points[0].tolist()
        x0, y0, x1, y1 = view.box
        return {"x": (x0 + x * (x1 - x0)) / width, "y": (y0 + y * (y1 - y0)) / height}

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

    def preview(self, row: Mapping[str, Any]) -> Drawing | None:
        """Outlines of the largest masks; None without masks."""
        masks = row.get("masks")
        if not masks:
            return None
        lines = []
        for mask in sorted(masks, key=lambda one: -_share(one))[:DRAWN]:
            lines += _outline(decode(mask["segmentation"]))
        return Drawing(lines=lines, caption=f"{len(masks)} {'mask' if len(masks) == 1 else 'masks'}")


def _share(mask: Mapping[str, Any]) -> float:
    height, width = mask["segmentation"]["size"]
    return mask["area"] / (height * width)


def _outline(mask: NDArray[np.bool_]) -> list[tuple[float, float, float, float]]:
    """The outer edges of a mask (h w), off by up to 1/200 of its longer side, in shares."""
    height, width = mask.shape
    lines = []
    for contour in cv2.findContours(mask.astype(np.uint8), cv2.RETR_EXTERNAL, cv2.CHAIN_APPROX_SIMPLE)[0]:
        corners = cv2.approxPolyDP(contour, max(height, width) / 200, True)[:, 0] + 0.5
        ends = corners / (width, height)
        lines += [(*a, *b) for a, b in zip(ends.tolist(), np.roll(ends, -1, axis=0).tolist(), strict=True)]
    return lines
