"""Mask generation: encode a frame and its crops, decode prompts, and keep the good masks.

Without prompts a grid of points is decoded, and masks with good scores are kept, as in Segment Anything's automatic
mask generator (`stages.shared.mask_proposals`). With prompts, each gets the mask of its highest predicted IoU.

Shapes: n masks of a frame, p prompts, m masks a prompt; logits p m s s on the device, s the side of the model's grid.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

from pipeline.contract.columns import Image
from pipeline.contract.placement import Placement
from pipeline.contract.stage import Stage
from pipeline.device import prepare
from stages.nets.sam2.image import Sam2
from stages.segment.dummy_masks import SCORE, dummy_logits
from stages.segment.mask_rules import Rules
from stages.shared.mask_proposals import (
    Box,
    Proposals,
    crop_boxes,
    is_near_crop_edge,
    mask_boxes,
    non_max_suppression,
    point_grid,
    scale_box,
    stability_score,
)
from stages.shared.point_prompts import Prompt, single_points

if TYPE_CHECKING:
    import torch

    from stages.nets.sam2.image import Features

PROMPTS = 64  # decoded at once unless the profile sets another number, as amg's points_per_batch


@dataclass(frozen=True, kw_only=True)
class FrameView:
    """A frame, or a crop of one."""

    image: Image  # h w 3, the pixels as read
    layer: int  # 0 for the frame, then the layer of crops
    box: Box  # px of the full frame


@dataclass(frozen=True, kw_only=True)
class PromptedFrame:
    """A frame with its views, prompts and proposals."""

    size: tuple[int, int]  # height and width of the full frame, px
    views: list[FrameView]  # empty without prompts
    prompts: Sequence[Prompt] | None  # None: the grid
    proposals: list[Proposals] = field(default_factory=list)  # of each view

    @property
    def box(self) -> Box:
        """The whole frame."""
        return 0, 0, self.size[1], self.size[0]


class MaskGenerator:
    """One model with its rules, in the phases and chunks of a stage."""

    def __init__(self, stage: Stage, net: Sam2, rules: Rules, placement: Placement, *, made: bool = False) -> None:
        self._stage, self._net, self._rules, self._placement = stage, net, rules, placement
        self._made = made  # whether made masks stand in where the grid keeps none
        layers = range(rules.crop_n_layers + 1)
        self._grids = [single_points(point_grid(rules.grid_side(layer))) for layer in layers]

    def frame(self, image: Image, size: tuple[int, int], prompts: Sequence[Prompt] | None) -> PromptedFrame:
        """Return a frame with its views.

        Args:
            image: h w 3, the pixels as read.
            size: height and width of the full frame.
            prompts: None for the grid.
        """
        views = []
        if prompts is None or len(prompts):
            for layer, box in crop_boxes(*size, self._rules.crop_n_layers, self._rules.crop_overlap_ratio):
                x0, y0, x1, y1 = scale_box(box, size, image.shape[:2])
                views.append(FrameView(image=image[y0:y1, x0:x1], layer=layer, box=box))
        return PromptedFrame(size=size, views=views, prompts=prompts)

    def propose(self, frames: Sequence[PromptedFrame]) -> list[Proposals]:
        """Return the masks of each frame that are worth upsampling, in their final order.

        Masks of the grid come in the order of their predicted IoU, others in the order of their prompts.
        """
        for frame, number, features in self._encode(frames):
            if frame.prompts is None:
                frame.proposals.append(self._grid_masks(frame, number, features))
            else:
                frame.proposals.append(self._best_masks(frame.prompts, features, frame.box))
        return [self._join_views(frame) for frame in frames]

    def _encode(self, frames: Sequence[PromptedFrame]) -> Iterator[tuple[PromptedFrame, int, Features]]:
        """Yield the frame, number and features of each view.

        On a GPU, as many views are encoded at once as there are frames. On a CPU one at a time, which is as fast, so
        that a frame's masks do not depend on its neighbours through rounding.
        """
        at_once = 1 if self._placement.device == "cpu" else max(1, len(frames))
        views = [(frame, number) for frame in frames for number in range(len(frame.views))]
        for chunk in self._stage.chunks(views, "views", default=at_once):
            with self._stage.phase("preprocess"):
                images = [frame.views[number].image for frame, number in chunk]
                preparation = self._net.architecture.preparation
                pixels = prepare(images, preparation, self._placement, self._net.dtype, self._stage.phase)
            with self._stage.phase("infer"):
                features = self._net.encode(pixels)
            for row, (frame, number) in enumerate(chunk):
                yield frame, number, [level[row : row + 1] for level in features]

    def _decode(
        self, prompts: Sequence[Prompt], features: Features
    ) -> Iterator[tuple[torch.Tensor, torch.Tensor, torch.Tensor]]:
        """Yield numbers of prompts (p) with their logits (p m s s) and predicted IoUs (p m), a chunk at a time.

        Prompts of one chunk have equally many points.
        """
        import torch

        device, rows = self._placement.device, self._stage.chunk_sizes.get("prompts", PROMPTS)
        lengths = np.array([len(prompt.labels) for prompt in prompts])
        for length in np.unique(lengths):
            for chunk in self._stage.chunks(np.flatnonzero(lengths == length).tolist(), "prompts", default=PROMPTS):
                with self._stage.phase("infer"):
                    points = torch.from_numpy(np.stack([prompts[i].points for i in chunk])).to(device)
                    labels = torch.from_numpy(np.stack([prompts[i].labels for i in chunk])).to(device)
                    several = self._rules.multimask_output
                    logits, iou = self._net.decode(features, points, labels, several=several, rows=rows)
                yield torch.tensor(chunk, device=device), logits, iou

    def _grid_masks(self, frame: PromptedFrame, crop: int, features: Features) -> Proposals:
        """Return the kept masks of the grid over one view."""
        rules, view, parts = self._rules, frame.views[crop], [self._no_masks()]
        for numbers, logits, iou in self._decode(self._grids[view.layer], features):
            with self._stage.phase("postprocess"):
                prompts = numbers[:, None].expand_as(iou)
                confident = iou > (rules.pred_iou_thresh or -1)
                masks = self._score(logits[confident], iou[confident], prompts[confident], crop, view.box)
                filled = masks.boxes[:, 2] > masks.boxes[:, 0]
                whole = filled & ~is_near_crop_edge(masks.boxes, view.box, frame.box)
                parts.append(masks.select(whole & (masks.stability >= rules.stability_score_thresh)))
        with self._stage.phase("postprocess"):
            masks = Proposals.concatenate(parts)
            masks = masks.select(non_max_suppression(masks.boxes, masks.iou, rules.box_nms_thresh))
            return self._made_masks(crop, view.box) if self._made and not len(masks.iou) else masks

    def _made_masks(self, crop: int, box: Box) -> Proposals:
        """Return the stand-ins for masks of a network without weights, as prompted by the first points of the grid."""
        import torch

        logits = torch.from_numpy(dummy_logits(self._net.architecture.low)).to(self._placement.device)
        iou = torch.full((len(logits),), SCORE, device=logits.device)
        prompts = torch.arange(len(logits), device=logits.device) % len(self._grids[0])
        return self._score(logits, iou, prompts, crop, box)

    def _best_masks(self, prompts: Sequence[Prompt], features: Features, box: Box) -> Proposals:
        """Return the best mask of each prompt, in their order."""
        import torch

        parts = [self._no_masks()]
        for numbers, logits, iou in self._decode(prompts, features):
            best = iou.argmax(dim=1)
            rows = torch.arange(len(best), device=best.device)
            parts.append(self._score(logits[rows, best], iou[rows, best], numbers, 0, box))
        masks = Proposals.concatenate(parts)
        return masks.select(masks.prompts.argsort())

    def _score(self, logits: torch.Tensor, iou: torch.Tensor, prompts: torch.Tensor, crop: int, box: Box) -> Proposals:
        """Return masks with their scores and boxes."""
        import torch

        rules = self._rules
        return Proposals(
            logits=logits,
            iou=iou,
            stability=stability_score(logits, rules.mask_threshold, rules.stability_score_offset),
            boxes=mask_boxes(logits > rules.mask_threshold, box),
            prompts=prompts,
            crops=torch.full_like(prompts, crop),
        )

    def _no_masks(self) -> Proposals:
        import torch

        empty = torch.zeros(0, device=self._placement.device)
        return self._score(empty.view(0, *[self._net.architecture.low] * 2), empty, empty.long(), 0, (0, 0, 1, 1))

    def _join_views(self, frame: PromptedFrame) -> Proposals:
        """Return the masks of all views of a frame that are worth upsampling, in their final order."""
        masks = Proposals.concatenate([self._no_masks(), *frame.proposals])
        if frame.prompts is not None:
            return masks
        with self._stage.phase("postprocess"):
            if len(frame.views) > 1:
                areas = [(x1 - x0) * (y1 - y0) for x0, y0, x1, y1 in (view.box for view in frame.views)]
                scores = 1 / masks.boxes.new_tensor(areas)[masks.crops]
                kept = non_max_suppression(masks.boxes, scores, self._rules.crop_nms_thresh)
                masks = masks.select(kept.sort().values)
            order = masks.iou.sort(descending=True, stable=True).indices
            return masks.select(order[: self._rules.max_masks])

    def prompt_point(self, frame: PromptedFrame, crop: int, prompt: int) -> dict[str, float] | None:
        """Return the point of a prompt in shares of the frame; None where it is a box."""
        if frame.prompts is not None:
            point = frame.prompts[prompt].point
            return point and {"x": point[0], "y": point[1]}
        view, (height, width) = frame.views[crop], frame.size
        x, y = self._grids[view.layer][prompt].points[0].tolist()
        x0, y0, x1, y1 = view.box
        return {"x": (x0 + x * (x1 - x0)) / width, "y": (y0 + y * (y1 - y0)) / height}
