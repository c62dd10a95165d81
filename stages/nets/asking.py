"""Asking about frames: the frame and its crops are looked at, prompts are answered, and answers worth keeping kept.

Without prompts a grid of points is asked about, and what the model is sure of is kept, as Segment Anything's automatic
mask generator does (`stages.nets.proposals`). With prompts, each gets the one mask that the model thinks best.

Shapes: n masks of a frame, p prompts, m masks a prompt; logits p m s s on the device, s the side of the model's grid.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

from pipeline.columns import Image
from pipeline.device import prepare
from pipeline.stage import Placement, Stage
from stages.nets.prompts import Prompt, centres
from stages.nets.proposals import Box, Proposals, apart, boxes_of, crops, cut_off, grid, scaled, stability
from stages.nets.sam2 import Sam2

if TYPE_CHECKING:
    import torch

    from stages.nets.sam2 import Features

FAST_POINTS = 16  # a side; a quarter of the prompts
PROMPTS = 64  # asked at once where a profile says nothing, as amg's points_per_batch
LEAST = {
    "points_per_side": 1,
    "stability_score_offset": 0,
    "crop_n_layers": 0,
    "crop_n_points_downscale_factor": 1,
    "min_mask_region_area": 0,
    "max_masks": 1,
}
SHARES = ("pred_iou_thresh", "stability_score_thresh", "box_nms_thresh", "crop_nms_thresh", "crop_overlap_ratio")


@dataclass(frozen=True, kw_only=True)
class Rules(Stage.Config):
    """What is asked, and what is kept. "amg" is sam2/automatic_mask_generator.py of Meta's sam2.

    Raises:
        ValueError: a number that makes no sense.
    """

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
    max_masks: int | None = None  # of the grid's masks of one frame, the best; None: all
    fast: bool = False  # points_per_side at most 16, mask_size low, and nothing else

    def __post_init__(self) -> None:
        for name, value in LEAST.items():
            if getattr(self, name) is not None and getattr(self, name) < value:
                raise ValueError(f"{name} must be at least {value}, not {getattr(self, name)}")
        for name in SHARES:
            if not 0 <= getattr(self, name) <= 1:
                raise ValueError(f"{name} must lie between 0 and 1, not {getattr(self, name)}")

    def side(self, layer: int) -> int:
        """Points a side of the grid over the frame (layer 0) or over a crop."""
        side = min(self.points_per_side, FAST_POINTS) if self.fast else self.points_per_side
        return max(1, int(side / self.crop_n_points_downscale_factor**layer))


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
    prompts: Sequence[Prompt] | None  # None: the grid
    found: list[Proposals] = field(default_factory=list)  # some for each view

    @property
    def box(self) -> Box:
        """All of it."""
        return 0, 0, self.size[1], self.size[0]


class Asking:
    """Asks one model, as the rules say, in the time and in the parts that the stage keeps count of."""

    def __init__(self, stage: Stage, net: Sam2, rules: Rules, placement: Placement) -> None:
        self._stage, self._net, self._rules, self._placement = stage, net, rules, placement
        self._grids = [centres(grid(rules.side(layer))) for layer in range(rules.crop_n_layers + 1)]

    def frame(self, image: Image, size: tuple[int, int], prompts: Sequence[Prompt] | None) -> Frame:
        """A frame to ask about.

        Args:
            image: h w 3, its pixels as they were read.
            size: its full height and width.
            prompts: None for the grid.
        """
        some = prompts is None or len(prompts) > 0
        return Frame(size=size, views=self._views(image, size) if some else [], prompts=prompts)

    def ask(self, frames: Sequence[Frame]) -> list[Proposals]:
        """The masks of each frame that are worth enlarging, in their final order.

        Those of the grid highest predicted IoU first, others in the order of their prompts.
        """
        for frame, crop, features in self._looks(frames):
            if frame.prompts is None:
                frame.found.append(self._proposed(frame, crop, features))
            else:
                frame.found.append(self._best(frame.prompts, features, frame.box))
        return [self._kept(frame) for frame in frames]

    def _views(self, image: Image, size: tuple[int, int]) -> list[View]:
        """The frame and its crops."""
        found = []
        for layer, box in crops(*size, self._rules.crop_n_layers, self._rules.crop_overlap_ratio):
            x0, y0, x1, y1 = scaled(box, size, image.shape[:2])
            found.append(View(image=image[y0:y1, x0:x1], layer=layer, box=box))
        return found

    def _looks(self, frames: Sequence[Frame]) -> Iterator[tuple[Frame, int, Features]]:
        """Each view of each frame: its frame, its number and what the model sees in it.

        On a GPU as many views at once as there are frames. On a CPU one by one, which is as fast; no frame's masks can
        then depend on its neighbours by as much as a rounding.
        """
        device = self._placement.device
        everything = [(frame, number) for frame in frames for number in range(len(frame.views))]
        for part in self._stage.chunks(everything, "views", default=1 if device == "cpu" else max(1, len(frames))):
            with self._stage.phase("preprocess"):
                images = [frame.views[number].image for frame, number in part]
                how = self._net.architecture.preparation
                pixels = prepare(images, how, self._placement, self._net.dtype, self._stage.phase)
            with self._stage.phase("infer"):
                features = self._net.look(pixels)
            for row, (frame, number) in enumerate(part):
                yield frame, number, [one[row : row + 1] for one in features]

    def _answers(
        self, prompts: Sequence[Prompt], features: Features
    ) -> Iterator[tuple[torch.Tensor, torch.Tensor, torch.Tensor]]:
        """Numbers of prompts (p), and their logits (p m 256 256) and expected IoUs (p m), some prompts at a time.

        Prompts of one call have equally many points.
        """
        import torch

        device, rows = self._placement.device, self._stage.chunk_rows.get("prompts", PROMPTS)
        lengths = np.array([len(prompt.labels) for prompt in prompts])
        for length in np.unique(lengths):
            for part in self._stage.chunks(np.flatnonzero(lengths == length).tolist(), "prompts", default=PROMPTS):
                with self._stage.phase("infer"):
                    points = torch.from_numpy(np.stack([prompts[i].points for i in part])).to(device)
                    labels = torch.from_numpy(np.stack([prompts[i].labels for i in part])).to(device)
                    several = self._rules.multimask_output
                    logits, iou = self._net.answer(features, points, labels, several=several, rows=rows)
                yield torch.tensor(part, device=device), logits, iou

    def _proposed(self, frame: Frame, crop: int, features: Features) -> Proposals:
        """What is kept of the grid over one view."""
        rules, view, parts = self._rules, frame.views[crop], [self._none()]
        for numbers, logits, iou in self._answers(self._grids[view.layer], features):
            with self._stage.phase("postprocess"):
                prompts = numbers[:, None].expand_as(iou)
                sure = iou > (rules.pred_iou_thresh or -1)
                found = self._judged(logits[sure], iou[sure], prompts[sure], crop, view.box)
                good = (found.boxes[:, 2] > found.boxes[:, 0]) & ~cut_off(found.boxes, view.box, frame.box)
                parts.append(found.taken(good & (found.stability >= rules.stability_score_thresh)))
        with self._stage.phase("postprocess"):
            found = Proposals.joined(parts)
            return found.taken(apart(found.boxes, found.iou, rules.box_nms_thresh))

    def _best(self, prompts: Sequence[Prompt], features: Features, box: Box) -> Proposals:
        """The best mask of each prompt, in their order."""
        import torch

        parts = [self._none()]
        for numbers, logits, iou in self._answers(prompts, features):
            best = iou.argmax(dim=1)
            each = torch.arange(len(best), device=best.device)
            parts.append(self._judged(logits[each, best], iou[each, best], numbers, 0, box))
        found = Proposals.joined(parts)
        return found.taken(found.prompts.argsort())

    def _judged(self, logits: torch.Tensor, iou: torch.Tensor, prompts: torch.Tensor, crop: int, box: Box) -> Proposals:
        """Answers with their scores and boxes."""
        import torch

        rules = self._rules
        return Proposals(
            logits=logits,
            iou=iou,
            stability=stability(logits, rules.mask_threshold, rules.stability_score_offset),
            boxes=boxes_of(logits > rules.mask_threshold, box),
            prompts=prompts,
            crops=torch.full_like(prompts, crop),
        )

    def _none(self) -> Proposals:
        import torch

        empty = torch.zeros(0, device=self._placement.device)
        return self._judged(empty.view(0, *[self._net.architecture.low] * 2), empty, empty.long(), 0, (0, 0, 1, 1))

    def _kept(self, frame: Frame) -> Proposals:
        """A frame's masks, of all its views, that are worth enlarging, in their final order."""
        found = Proposals.joined([self._none(), *frame.found])
        if frame.prompts is not None:
            return found
        with self._stage.phase("postprocess"):
            if len(frame.views) > 1:
                sides = [(x1 - x0) * (y1 - y0) for x0, y0, x1, y1 in (view.box for view in frame.views)]
                scores = 1 / found.boxes.new_tensor(sides)[found.crops]
                found = found.taken(apart(found.boxes, scores, self._rules.crop_nms_thresh).sort().values)
            order = found.iou.sort(descending=True, stable=True).indices
            return found.taken(order[: self._rules.max_masks])

    def point(self, frame: Frame, crop: int, prompt: int) -> dict[str, float] | None:
        """Where a prompt asked, in shares of the frame; None where it was a box."""
        if frame.prompts is not None:
            point = frame.prompts[prompt].point
            return point and {"x": point[0], "y": point[1]}
        view, (height, width) = frame.views[crop], frame.size
        x, y = self._grids[view.layer][prompt].points[0].tolist()
        x0, y0, x1, y1 = view.box
        return {"x": (x0 + x * (x1 - x0)) / width, "y": (y0 + y * (y1 - y0)) / height}
