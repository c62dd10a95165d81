"""SAM 2.1 for images: an image is encoded once, then any number of prompts are decoded on it.

The network is transformers' own. Architectures are defined here, so that no configuration has to be downloaded with the
weights. The prompt encoder stays in float32, since in bfloat16 a point would be off by up to 2 px of 1,024. Masks leave
the decoder in the weights' type.

Shapes: n images, f values of an image's features, p prompts of an image, of k points each, m masks a prompt (3, or 1);
logits n p m s s, where s is a quarter of the input's side: 256 for all published models.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from threading import Lock
from typing import Any

from framekiln.contract import Placement
from framekiln.device import Batches, Preparation, dtype_of, ready, torch
from framekiln_stages.nets.checkpoints import load_model

SIDE = 1024  # px, of the published models' square input
CHANNELS = (32, 64, 256)  # channels of features, from fine to coarse

# facebookresearch/sam2, sam2/utils/transforms.py: Resize to a square, whatever the image's shape, bilinear and
# antialiased; then ImageNet's mean and standard deviation
PREPARATION = Preparation(
    side=SIDE, mean=(0.485, 0.456, 0.406), std=(0.229, 0.224, 0.225), method="bilinear", crop=False
)


@dataclass(frozen=True, kw_only=True)
class HieraArchitecture:
    """The image encoder, Hiera, in four stages; its sizes are not in the files."""

    blocks: tuple[int, int, int, int]
    whole: tuple[int, int, int]  # numbers of the blocks with global attention
    width: int = 96  # channels of the first stage, doubled in each next one
    heads: int = 1  # heads of the first stage, doubled in each next one
    windows: tuple[int, int, int, int] = (8, 4, 14, 7)  # sides of the attention windows
    background: int = 7  # side of the position embedding that is resized to the image
    side: int = SIDE  # px, of the input

    @property
    def preparation(self) -> Preparation:
        return replace(PREPARATION, side=self.side)

    @property
    def low(self) -> int:
        """Side of the grid of masks."""
        return self.side // 4

    @property
    def sides(self) -> tuple[int, int, int]:
        """Sides of the features, from fine to coarse."""
        return self.side // 4, self.side // 8, self.side // 16


MODELS = {
    "sam2.1-hiera-tiny": HieraArchitecture(blocks=(1, 2, 7, 2), whole=(5, 7, 9)),
    "sam2.1-hiera-small": HieraArchitecture(blocks=(1, 2, 11, 2), whole=(7, 10, 13)),
    "sam2.1-hiera-base-plus": HieraArchitecture(
        blocks=(2, 3, 16, 3), whole=(12, 16, 20), width=112, heads=2, background=14
    ),
    "sam2.1-hiera-large": HieraArchitecture(
        blocks=(2, 6, 36, 4), whole=(23, 33, 43), width=144, heads=2, windows=(8, 4, 16, 8)
    ),
}
"""Architectures by the weights' name in the lockfile, from sam2/configs/sam2.1 of facebookresearch/sam2. J&F on the
SA-V test set: 76.5, 76.6, 78.2, 79.5."""

MEMORY_MB = {
    "sam2.1-hiera-tiny": (62.9, 164.0),
    "sam2.1-hiera-small": (77.1, 164.0),
    "sam2.1-hiera-base-plus": (146.7, 189.0),
    "sam2.1-hiera-large": (433.8, 240.0),
}
"""Memory of weights in 16 bits, and of one image during encoding."""
PROMPT_MB = 10.6
"""Memory of a prompt during decoding."""

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
"""Weights in the published files that only serve the tracking of masks through videos."""


class Sam2:
    """The model on a device: `encode` images, then `decode` prompts on them. Calls keep no state."""

    def __init__(self, architecture: HieraArchitecture, weights: Path | None, placement: Placement) -> None:
        """Load a file of safetensors; None for seeded random weights.

        Raises ValueError: weights are missing from the file, or unexpected; RuntimeError: a weight has another shape.
        """
        from framekiln_stages.nets.sam2.decoder import SharedDecoder

        self._placement, self.dtype, self.architecture = placement, dtype_of(placement), architecture
        model = build_image_model(architecture, weights)
        with torch.inference_mode():
            positions = model.get_image_wide_positional_embeddings()
        prompts, model.prompt_encoder = ready(model.prompt_encoder, placement, torch.float32), None
        self._model = ready(model, placement, self.dtype)
        positions = positions.to(self.dtype).to(placement.device)
        self._decoder = SharedDecoder(prompts, self._model.mask_decoder, positions, architecture.side)
        self._encoder = Batches(self._encode_flat, placement, regions=self._model.vision_encoder.backbone.blocks)
        self._decoders: dict[tuple[int, bool], Batches] = {}
        self._adding = Lock()

    def encode(self, pixels: torch.Tensor) -> torch.Tensor:
        """Return the features of preprocessed images of the model's `dtype`: n f, see `levels`."""
        with torch.inference_mode():
            return self._encoder(pixels)

    def levels(self, features: torch.Tensor) -> list[torch.Tensor]:
        """Return views of features by level, from fine to coarse: n 32 s s, n 64 s/2 s/2, n 256 s/4 s/4."""
        shapes = [(channels, side, side) for channels, side in zip(CHANNELS, self.architecture.sides, strict=True)]
        parts = torch.split(features, [channels * side * side for channels, side, _ in shapes], dim=1)
        return [part.view(-1, *shape) for part, shape in zip(parts, shapes, strict=True)]

    def decode(
        self, features: torch.Tensor, points: torch.Tensor, labels: torch.Tensor, *, several: bool, rows: int
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Return masks for prompts on images.

        Args:
            features: n f.
            points: n p k 2 float32, shares of width and height.
            labels: n p k int64: 1 a point of the object, 0 of the background, 2 and 3 the corners of a box.
            several: three masks a prompt; else one.
            rows: images of a compiled call.

        Returns:
            Logits, n p m s s, and the predicted IoU of each mask, n p m; of the model's `dtype`, on the device.
        """
        with self._adding:
            key = (rows, several)
            if key not in self._decoders:  # no warmed-up shape: numbers of prompts differ from image to image
                uncompiled = replace(self._placement, compile=False)
                self._decoders[key] = self._make_decoder(uncompiled, rows, several=several)
            decoder = self._decoders[key]
        with torch.inference_mode():
            flat = decoder(features, points, labels)
        low = self.architecture.low
        return flat[..., :-1].view(*flat.shape[:3], low, low), flat[..., -1]

    def warm_up_encoder(self) -> None:
        """Compile `encode`, if the placement says so."""
        side, device = self.architecture.side, self._placement.device
        self._encoder.warm_up(torch.zeros(1, 3, side, side, dtype=self.dtype, device=device))

    def warm_up_decoder(self, prompts: int, *, several: bool, rows: int) -> None:
        """Compile `decode` for prompts of one point, if the placement says so.

        `prompts`: p; an image with fewer is padded to it. `several`: three masks a prompt; else one. `rows`: images of
        a call.
        """
        device = self._placement.device
        values = sum(channels * side * side for channels, side in zip(CHANNELS, self.architecture.sides, strict=True))
        decoder = self._decoders.setdefault((rows, several), self._make_decoder(self._placement, rows, several=several))
        decoder.warm_up(
            torch.zeros(1, values, dtype=self.dtype, device=device),
            torch.zeros(1, prompts, 1, 2, device=device),
            torch.ones(1, prompts, 1, dtype=torch.int64, device=device),
        )

    def _make_decoder(self, placement: Placement, rows: int, *, several: bool) -> Batches:
        return Batches(partial(self._decode_flat, several=several), placement, rows)

    def _encode_flat(self, pixels: torch.Tensor) -> torch.Tensor:
        return torch.cat([level.flatten(1) for level in self._model.get_image_embeddings(pixels)], dim=1)

    def _decode_flat(
        self, features: torch.Tensor, points: torch.Tensor, labels: torch.Tensor, *, several: bool
    ) -> torch.Tensor:
        """Return logits and predicted IoU in one tensor: n p m s*s+1."""
        logits, iou = self._decoder(*self.levels(features), points, labels, several=several)
        return torch.cat([logits.flatten(3), iou[..., None]], dim=3)


def image_config(architecture: HieraArchitecture) -> Any:
    """Return transformers' configuration of the model for images."""
    from transformers import Sam2Config, Sam2PromptEncoderConfig

    return Sam2Config(
        vision_config=encoder_config(architecture),
        prompt_encoder_config=Sam2PromptEncoderConfig(image_size=architecture.side),
    )


def encoder_config(architecture: HieraArchitecture) -> Any:
    """Return transformers' configuration of the image encoder."""
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


def build_image_model(architecture: HieraArchitecture, path: Path | None) -> Any:
    """Build the model with the weights of a file, or with seeded random ones, in float32.

    Raises ValueError: weights are missing, or unexpected; RuntimeError: a weight has another shape.
    """
    from safetensors.torch import load_file
    from transformers import Sam2Model

    config, tensors = image_config(architecture), load_file(path) if path else None
    state = tensors and {name: tensor for name, tensor in tensors.items() if not name.startswith(VIDEO_ONLY)}
    model = load_model(
        Sam2Model, config, state, file=path.name if path else "", model="SAM 2.1", attn_implementation="sdpa"
    )
    trim_attention(model)
    return model


def trim_attention(model: Any) -> None:
    """Remove unused work from transformers' image encoder: it computes weights of attention that nothing reads.

    That is a fifth of the launches of an uncompiled encoding.
    """
    for block in model.vision_encoder.backbone.blocks:
        block.attn.forward = partial(_attend, block.attn)


def _attend(attention: Any, hidden_states: torch.Tensor, **_: Any) -> torch.Tensor:
    """Return what transformers' `Sam2MultiScaleAttention` returns, from tokens n h w c."""
    count, height, width = hidden_states.shape[:3]
    parts = attention.qkv(hidden_states).reshape(count, height * width, 3, attention.num_attention_heads, -1)
    query, key, value = (part.transpose(1, 2) for part in parts.unbind(2))
    if attention.query_stride:  # the first block between two stages
        grid = query.transpose(1, 2).reshape(count, height, width, -1).permute(0, 3, 1, 2)
        grid = torch.nn.functional.max_pool2d(grid, attention.query_stride, attention.query_stride)
        height, width = grid.shape[2:]
        flat = grid.permute(0, 2, 3, 1).reshape(count, height * width, attention.num_attention_heads, -1)
        query = flat.transpose(1, 2)
    mixed = torch.nn.functional.scaled_dot_product_attention(query, key, value, scale=attention.scale)
    return attention.proj(mixed.transpose(1, 2).reshape(count, height, width, -1))
