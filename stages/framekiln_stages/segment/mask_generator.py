"""Mask generation: encode a frame and its crops, decode prompts, and keep the good masks.

Without prompts a grid of points is decoded, and masks with good scores are kept (`mask_proposals`). Segment Anything's
automatic mask generator does the same; "amg" is sam2/automatic_mask_generator.py of Meta's sam2. With prompts, each
gets the mask of its highest predicted IoU.

Shapes: n masks of a frame, r views in a call of the model, p prompts of a view in it, m masks a prompt; logits
r p m s s on the device, s the side of the model's grid.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from framekiln.contract import Image, Placement, Stage
from framekiln.contract.limits import Count, Natural, NonNegative, Proportion
from framekiln.device import prepare, torch
from framekiln_stages.nets.sam2.image import Sam2
from framekiln_stages.segment import mask_proposals as amg
from framekiln_stages.segment.mask_proposals import Box, Proposals
from framekiln_stages.segment.prompt_calls import Decoding, grid_set, prompt_sets
from framekiln_stages.shared.point_prompts import Prompt

FAST_POINTS = 16  # points a side with `fast`: a quarter of the prompts


@dataclass(frozen=True, kw_only=True)
class Rules(Stage.Config):
    """Prompts of the grid, and thresholds for their masks."""

    multimask_output: bool = True  # three masks a prompt, as amg, since a point is ambiguous. False: one
    points_per_side: Count = 32  # amg
    # Grid only: least predicted IoU of a mask, as SAM 2's amg; SAM 1's has 0.88. 0: any
    pred_iou_thresh: Proportion = 0.8
    stability_score_thresh: Proportion = 0.95  # amg. 0: any
    stability_score_offset: NonNegative = 1.0  # amg; Meta's example for more masks has 0.7
    mask_threshold: float = 0.0  # amg; of logits
    box_nms_thresh: Proportion = 0.7  # amg; IoU of boxes above which one is a duplicate
    crop_n_layers: Natural = 0  # amg; 1 adds 4 crops, 2 adds 16 more
    crop_nms_thresh: Proportion = 0.7  # amg; between crops; the smaller crop's mask is kept
    crop_overlap_ratio: Proportion = 512 / 1500  # amg
    crop_n_points_downscale_factor: Count = 1  # amg; each layer divides the points a side by it
    min_mask_region_area: Natural = 0  # amg; px of the mask: smaller holes are filled, smaller islands dropped
    max_masks: Count | None = None  # grid only: the best masks of a frame; None: all
    fast: bool = False  # points_per_side at most 16, and mask_size low

    def grid_side(self, layer: int) -> int:
        """Return the points a side of the grid over the frame (layer 0) or over a crop."""
        side = min(self.points_per_side, FAST_POINTS) if self.fast else self.points_per_side
        return max(1, int(side / self.crop_n_points_downscale_factor**layer))


PROMPTS = 64  # prompts decoded at once unless the profile sets another number, as amg's points_per_batch


@dataclass(frozen=True, kw_only=True)
class FrameView:
    """A frame, or a crop of a frame."""

    image: Image  # h w 3, the pixels as read
    layer: int  # 0 for the frame, then the layer of crops
    box: Box  # px of the full frame


@dataclass(frozen=True, kw_only=True)
class PromptedFrame:
    """A frame with its views, prompts and proposals."""

    size: tuple[int, int]  # height and width of the full frame, px
    views: list[FrameView]  # empty without prompts
    prompts: Sequence[Prompt] | None  # None: the grid
    proposals: list[Proposals] = field(default_factory=list)  # proposals of each view

    @property
    def box(self) -> Box:
        return 0, 0, self.size[1], self.size[0]


class MaskGenerator:
    """One model with its rules, in the phases and chunks of a stage."""

    def __init__(self, stage: Stage, net: Sam2, rules: Rules, placement: Placement, *, made: bool) -> None:
        self._stage, self._net, self._rules, self._placement = stage, net, rules, placement
        self._made = made  # artificial masks take the place of a grid's if it keeps none
        layers = range(rules.crop_n_layers + 1)
        self._points = [amg.point_grid(rules.grid_side(layer)) for layer in layers]
        self._grids = [grid_set(points, placement.device) for points in self._points]

    def warm_up(self) -> None:
        """Compile what the placement says: the encoder, and the decoder for the prompts of the grid."""
        self._net.warm_up_encoder()
        most = self._stage.chunk_sizes.get("prompts", PROMPTS)
        grids = [Decoding(row=0, prompts=grid, start=0, count=1) for grid in self._grids]
        for size in dict.fromkeys(grid.size(most) for grid in grids):
            several, rows = self._rules.multimask_output, max(1, most // size)
            self._net.warm_up_decoder(size, several=several, rows=rows)

    def frame(self, image: Image, size: tuple[int, int], prompts: Sequence[Prompt] | None) -> PromptedFrame:
        """Return a frame with its views.

        `image`: h w 3, the pixels as read. `size`: height and width of the full frame. `prompts`: None for the grid.
        """
        views = []
        if prompts is None or len(prompts):
            for layer, box in amg.crop_boxes(*size, self._rules.crop_n_layers, self._rules.crop_overlap_ratio):
                x0, y0, x1, y1 = amg.scale_box(box, size, image.shape[:2])
                views.append(FrameView(image=image[y0:y1, x0:x1], layer=layer, box=box))
        return PromptedFrame(size=size, views=views, prompts=prompts)

    def propose(self, frames: Sequence[PromptedFrame]) -> list[Proposals]:
        """Return the masks of each frame that are worth upsampling, in their final order.

        Masks of the grid come in the order of their predicted IoU, others in the order of their prompts.
        """
        for views, features in self._encode(frames):
            parts: dict[tuple[int, int], list[Proposals]] = {}
            for own, logits, iou in self._decode(views, features):
                frame, number = views[own.row]
                with self._stage.phase("postprocess"):
                    if frame.prompts is None:
                        kept = self._select_good(frame, number, own.numbers, logits, iou)
                    else:
                        best = iou.argmax(dim=1)
                        rows = torch.arange(len(best), device=best.device)
                        kept = self._score(logits[rows, best], iou[rows, best], own.numbers, number, frame.box)
                    parts.setdefault((id(frame), number), []).append(kept)
            for frame, number in views:
                frame.proposals.append(self._join_parts(frame, number, parts.pop((id(frame), number), [])))
        return [self._join_views(frame) for frame in frames]

    def _encode(
        self, frames: Sequence[PromptedFrame]
    ) -> Iterator[tuple[Sequence[tuple[PromptedFrame, int]], torch.Tensor]]:
        """Yield frames with numbers of views, and the features of these views.

        On a GPU, as many views are encoded at once as there are frames. On a CPU they are encoded one by one, which is
        as fast, so that rounding does not make a frame's masks depend on its neighbours.
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
            yield chunk, features

    def _decode(
        self, views: Sequence[tuple[PromptedFrame, int]], features: torch.Tensor
    ) -> Iterator[tuple[Decoding, torch.Tensor, torch.Tensor]]:
        """Yield parts of the views' prompts with their logits (p m s s) and predicted IoUs (p m).

        Prompts of one part have equally many points. On a GPU parts of several views share a call. All calls have few
        shapes: prompts are padded to a power of two, and the padding is dropped from the result.
        """
        parts: list[Decoding] = []
        for row, (frame, number) in enumerate(views):
            grid, device = self._grids[frame.views[number].layer], self._placement.device
            for prompts in [grid] if frame.prompts is None else prompt_sets(frame.prompts, device):
                numbers = range(len(prompts.numbers))
                chunks = list(self._stage.chunks(numbers, "prompts", default=PROMPTS))
                parts += [Decoding(row=row, prompts=prompts, start=chunk[0], count=len(chunk)) for chunk in chunks]
        most = self._stage.chunk_sizes.get("prompts", PROMPTS)
        for call in Decoding.calls(parts, most, alone=self.alone):
            with self._stage.phase("infer"):
                inputs, several = call.inputs(features), self._rules.multimask_output
                logits, iou = self._net.decode(*inputs, several=several, rows=call.shape[1])
            for i, part in enumerate(call.parts):
                yield part, logits[i, : part.count], iou[i, : part.count]

    @property
    def alone(self) -> bool:
        """True on a CPU, where a call has no more prompts than one view needs."""
        return self._placement.device == "cpu" and not self._placement.compile

    def _select_good(
        self, frame: PromptedFrame, crop: int, numbers: torch.Tensor, logits: torch.Tensor, iou: torch.Tensor
    ) -> Proposals:
        """Return the masks of some of the grid's prompts that pass the thresholds."""
        rules, box = self._rules, frame.views[crop].box
        rows = (iou > (rules.pred_iou_thresh or -1)).flatten().nonzero()[:, 0]
        prompts = numbers[rows // iou.shape[1]]
        masks = self._score(logits.flatten(0, 1)[rows], iou.flatten()[rows], prompts, crop, box)
        kept = (masks.boxes[:, 2] > masks.boxes[:, 0]) & (masks.stability >= rules.stability_score_thresh)
        if box != frame.box:
            kept &= ~amg.is_near_crop_edge(masks.boxes, box, frame.box)
        return masks.select(kept)

    def _join_parts(self, frame: PromptedFrame, crop: int, parts: Sequence[Proposals]) -> Proposals:
        """Return the masks of one view: of the grid without duplicates, others in the order of their prompts."""
        with self._stage.phase("postprocess"):
            masks = Proposals.concatenate([self._make_no_masks(), *parts])
            if frame.prompts is not None:
                return masks.select(masks.prompts.argsort())
            masks = masks.select(amg.non_max_suppression(masks.boxes, masks.iou, self._rules.box_nms_thresh))
            if len(masks.iou) or not self._made:
                return masks
            # artificial masks of a network without weights, as if prompted by the first points of the grid
            logits = torch.from_numpy(amg.dummy_logits(self._net.architecture.low)).to(self._placement.device)
            iou = torch.full((len(logits),), amg.SCORE, device=logits.device)
            prompts = torch.arange(len(logits), device=logits.device) % len(self._points[0])
            return self._score(logits, iou, prompts, crop, frame.views[crop].box)

    def _score(self, logits: torch.Tensor, iou: torch.Tensor, prompts: torch.Tensor, crop: int, box: Box) -> Proposals:
        """Return masks with their scores and boxes, in float32."""
        rules, logits = self._rules, logits.float()
        return Proposals(
            logits=logits,
            iou=iou.float(),
            stability=amg.stability_score(logits, rules.mask_threshold, rules.stability_score_offset),
            boxes=amg.mask_boxes(logits > rules.mask_threshold, box),
            prompts=prompts,
            crops=torch.full_like(prompts, crop),
        )

    def _make_no_masks(self) -> Proposals:
        empty = torch.zeros(0, device=self._placement.device)
        return self._score(empty.view(0, *[self._net.architecture.low] * 2), empty, empty.long(), 0, (0, 0, 1, 1))

    def _join_views(self, frame: PromptedFrame) -> Proposals:
        """Return the masks of all views of a frame that are worth upsampling, in their final order."""
        masks = Proposals.concatenate([self._make_no_masks(), *frame.proposals])
        frame.proposals.clear()  # a grid's masks may take 800 MB
        if frame.prompts is not None:
            return masks
        with self._stage.phase("postprocess"):
            if len(frame.views) > 1:
                areas = [(x1 - x0) * (y1 - y0) for x0, y0, x1, y1 in (view.box for view in frame.views)]
                scores = 1 / masks.boxes.new_tensor(areas)[masks.crops]
                kept = amg.non_max_suppression(masks.boxes, scores, self._rules.crop_nms_thresh)
                masks = masks.select(kept.sort().values)
            order = masks.iou.sort(descending=True, stable=True).indices
            return masks.select(order[: self._rules.max_masks])

    def prompt_point(self, frame: PromptedFrame, crop: int, prompt: int) -> dict[str, float] | None:
        """Return the point of a prompt in shares of the frame; None for a box."""
        if frame.prompts is not None:
            point = frame.prompts[prompt].point
            return point and {"x": point[0], "y": point[1]}
        view, (height, width) = frame.views[crop], frame.size
        x, y = self._points[view.layer][prompt].tolist()
        x0, y0, x1, y1 = view.box
        return {"x": (x0 + x * (x1 - x0)) / width, "y": (y0 + y * (y1 - y0)) / height}
