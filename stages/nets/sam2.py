"""SAM 2.1's image half: one look at a picture, then as many prompts as one likes.

The network is transformers' own; architectures stand here, so that no configuration has to be downloaded with the
weights. Its parts do not share one precision: positions of prompts stay in float32, since in bfloat16 a point would be
off by up to 2 px of 1,024, and masks leave the decoder as float32.

Shapes: n pictures, p prompts of k points each, m masks a prompt (3, or 1); logits p m s s, where s is a quarter of the
side of the square that it looks at: 256 for all published models.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pipeline.device import Batches, Preparation, dtype_of, ready, seeded
from pipeline.stage import Placement

if TYPE_CHECKING:
    import torch

    Features = list[torch.Tensor]
    """Of n pictures, from fine to coarse: n 32 s s, n 64 s/2 s/2, n 256 s/4 s/4."""

SIDE = 1024  # px, of the square that the published models look at
CHANNELS = (32, 64, 256)  # of features, from fine to coarse

POINT, BACKGROUND = 1, 0  # labels of points
CORNERS = (2, 3)  # a box is two points: its upper left and its lower right corner

# facebookresearch/sam2, sam2/utils/transforms.py: Resize to a square, whatever the picture's shape, bilinear and
# antialiased; then ImageNet's mean and standard deviation
PREPARATION = Preparation(
    side=SIDE, mean=(0.485, 0.456, 0.406), std=(0.229, 0.224, 0.225), method="bilinear", crop=False
)


@dataclass(frozen=True, kw_only=True)
class Architecture:
    """What the files do not say of the image encoder, Hiera; four stages each."""

    blocks: tuple[int, int, int, int]
    whole: tuple[int, int, int]  # numbers of the blocks that look at the whole picture
    width: int = 96  # of the first stage; each next has twice as many channels
    heads: int = 1  # of the first stage; each next has twice as many
    windows: tuple[int, int, int, int] = (8, 4, 14, 7)  # sides
    background: int = 7  # side of the position embedding that is enlarged to the picture
    side: int = SIDE

    @property
    def preparation(self) -> Preparation:
        """What it wants done to a picture."""
        return replace(PREPARATION, side=self.side)

    @property
    def low(self) -> int:
        """Side of the grid on which it says its masks."""
        return self.side // 4

    @property
    def sides(self) -> tuple[int, int, int]:
        """Of features, from fine to coarse."""
        return self.side // 4, self.side // 8, self.side // 16


MODELS = {
    "sam2.1-hiera-tiny": Architecture(blocks=(1, 2, 7, 2), whole=(5, 7, 9)),
    "sam2.1-hiera-small": Architecture(blocks=(1, 2, 11, 2), whole=(7, 10, 13)),
    "sam2.1-hiera-base-plus": Architecture(blocks=(2, 3, 16, 3), whole=(12, 16, 20), width=112, heads=2, background=14),
    "sam2.1-hiera-large": Architecture(
        blocks=(2, 6, 36, 4), whole=(23, 33, 43), width=144, heads=2, windows=(8, 4, 16, 8)
    ),
}
"""By the weights' name in the lockfile, as facebookresearch/sam2 has them in sam2/configs/sam2.1. J&F on the SA-V test
set: 76.5, 76.6, 78.2, 79.5."""

VIDEO_ONLY = (
    "mask_downsample.",
    "memory_attention.",
    "memory_encoder.",
    "memory_temporal_positional_encoding",
    "no_memory_positional_encoding",
    "no_object_pointer",
    "object_pointer_proj.",
    "occlusion_spatial_embedding_parameter",
    "temporal_positional_encoding_projection_layer.",
)
"""What the published files hold for the tracking of masks through videos, and pictures do not need."""


class Sam2:
    """The model on a device: `look` at pictures, then `answer` prompts on one of them."""

    def __init__(self, architecture: Architecture, weights: Path | None, placement: Placement) -> None:
        """Load a file of safetensors; None for seeded random weights.

        Raises:
            ValueError: the file lacks weights, or holds some that no SAM 2.1 has.
            RuntimeError: a weight has another shape.
        """
        import torch

        self._placement, self.dtype, self.architecture = placement, dtype_of(placement), architecture
        model = filled(architecture, weights) if weights else drawn(architecture)
        with torch.inference_mode():
            positions = model.get_image_wide_positional_embeddings()
        self._prompts, model.prompt_encoder = ready(model.prompt_encoder, placement, torch.float32), None
        self._positions = positions.to(self.dtype).to(placement.device)
        self._model = ready(model, placement, self.dtype)
        self._encode = Batches(self._flat_features, placement)
        self._decoders: dict[tuple[int, bool], Batches] = {}
        self._features: Features = []  # of the picture that is asked about

    def look(self, pixels: torch.Tensor) -> Features:
        """What the model sees in pictures that were prepared as its architecture says, of `dtype`."""
        import torch

        shapes = [(channels, side, side) for channels, side in zip(CHANNELS, self.architecture.sides, strict=True)]
        with torch.inference_mode():
            flat = self._encode(pixels)
        parts = torch.split(flat, [channels * side * side for channels, side, _ in shapes], dim=1)
        return [part.view(-1, *shape) for part, shape in zip(parts, shapes, strict=True)]

    def answer(
        self, features: Features, points: torch.Tensor, labels: torch.Tensor, *, several: bool, rows: int
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Masks for prompts on one picture.

        Args:
            features: of one picture.
            points: p k 2 float32, shares of width and height.
            labels: p k int64: 1 a point of the thing, 0 of what surrounds it, 2 and 3 the corners of a box.
            several: three masks a prompt; else one.
            rows: prompts of a compiled call.

        Returns:
            Logits, p m s s, and the IoU that the model expects of each mask, p m; both float32 on the device.
        """
        import torch

        key = (rows, several)
        if key not in self._decoders:
            decode = self._several if several else self._single
            self._decoders[key] = Batches(decode, self._placement, rows)
        self._features = features
        with torch.inference_mode():
            flat = self._decoders[key](points, labels)
        low = self.architecture.low
        return flat[..., :-1].view(*flat.shape[:2], low, low), flat[..., -1]

    def _flat_features(self, pixels: torch.Tensor) -> torch.Tensor:
        import torch

        return torch.cat([one.flatten(1) for one in self._model.get_image_embeddings(pixels)], dim=1)

    def _several(self, points: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        return self._decoded(points, labels, several=True)

    def _single(self, points: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        return self._decoded(points, labels, several=False)

    def _decoded(self, points: torch.Tensor, labels: torch.Tensor, *, several: bool) -> torch.Tensor:
        """Logits and the expected IoU in one: p m s*s+1."""
        import torch

        sparse, dense = self._prompts(
            input_points=points[None] * self.architecture.side,
            input_labels=labels[None],
            input_boxes=None,
            input_masks=None,
        )
        fine, middle, coarse = self._features
        logits, iou = self._model.mask_decoder(
            image_embeddings=coarse,
            image_positional_embeddings=self._positions,
            sparse_prompt_embeddings=sparse.to(self.dtype),
            dense_prompt_embeddings=dense.to(self.dtype),
            multimask_output=several,
            high_resolution_features=[fine, middle],
        )[:2]
        return torch.cat([logits[0].flatten(2), iou[0, :, :, None]], dim=2).float()


def configured(architecture: Architecture) -> Any:
    """Transformers' configuration of the image half."""
    from transformers import Sam2Config, Sam2PromptEncoderConfig

    return Sam2Config(
        vision_config=vision(architecture), prompt_encoder_config=Sam2PromptEncoderConfig(image_size=architecture.side)
    )


def vision(architecture: Architecture) -> Any:
    """Transformers' configuration of the image encoder."""
    from transformers import Sam2HieraDetConfig, Sam2VisionConfig

    widths = [architecture.width * 2**stage for stage in range(4)]
    backbone = Sam2HieraDetConfig(
        hidden_size=architecture.width,
        image_size=[architecture.side] * 2,
        num_attention_heads=architecture.heads,
        blocks_per_stage=list(architecture.blocks),
        embed_dim_per_stage=widths,
        num_attention_heads_per_stage=[architecture.heads * 2**stage for stage in range(4)],
        window_size_per_stage=list(architecture.windows),
        global_attention_blocks=list(architecture.whole),
        window_positional_embedding_background_size=[architecture.background] * 2,
    )
    return Sam2VisionConfig(
        backbone_config=backbone,
        backbone_channel_list=widths[::-1],
        backbone_feature_sizes=[[side, side] for side in architecture.sides],
    )


def drawn(architecture: Architecture) -> Any:
    """The model with seeded random weights."""
    from transformers import Sam2Model

    with seeded():
        return Sam2Model(configured(architecture))


def filled(architecture: Architecture, path: Path) -> Any:
    """The model with the weights of a file, in float32.

    Raises:
        ValueError: weights are missing, or there are some that no SAM 2.1 has.
        RuntimeError: a weight has another shape.
    """
    import torch
    from safetensors.torch import load_file
    from transformers import Sam2Model
    from transformers.utils import logging

    logging.disable_progress_bar()  # type: ignore[no-untyped-call]
    state = {name: tensor for name, tensor in load_file(path).items() if not name.startswith(VIDEO_ONLY)}
    build: Any = Sam2Model.from_pretrained
    model, report = build(
        None,
        config=configured(architecture),
        state_dict=state,
        dtype=torch.float32,
        attn_implementation="sdpa",
        output_loading_info=True,
    )
    for kind, trouble in (("missing_keys", "lacks"), ("unexpected_keys", "holds, as no SAM 2.1 does,")):
        if report[kind]:
            raise ValueError(f"{path.name} {trouble} {', '.join(sorted(report[kind])[:3])}")
    return model
