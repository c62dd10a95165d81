"""Networks of the ceilings that `framekiln bench` does not have by name, as factories with example inputs."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from framekiln_stages.nets.factories import lama as generator
from framekiln_stages.nets.factories import sam2
from framekiln_stages.nets.lama.network import cast
from framekiln_stages.nets.sam2.image import CHANNELS, MODELS, SIDE, build_image_model

Model = tuple[nn.Module, Callable[..., Any]]


class SamDecoder(nn.Module):
    """Prompts on one image, by transformers' own mask decoder."""

    def __init__(self) -> None:
        super().__init__()
        model = build_image_model(MODELS["sam2.1-hiera-tiny"], None)  # all sizes have the same decoder
        model.vision_encoder = nn.Identity()
        self.model = model

    def forward(self, fine: Tensor, middle: Tensor, coarse: Tensor, points: Tensor) -> Tensor:
        """Return logits for points (p 2, px) on the features of one image."""
        labels = torch.ones(1, len(points), 1, dtype=torch.long, device=points.device)
        prompts = {"input_points": points[None, :, None], "input_labels": labels}
        masks: Tensor = self.model(image_embeddings=[fine, middle, coarse], **prompts).pred_masks
        return masks


class HalfLama(nn.Module):
    """LaMa in fp16 with its Fourier units in fp32, however it is converted; in fp32 on the CPU."""

    def __init__(self, net: nn.Module) -> None:
        super().__init__()
        self.net = net

    def forward(self, images: Tensor) -> Tensor:
        """Return n 3 h w for n 4 h w."""
        half = images.half() if images.is_cuda else images
        result: Tensor = self.net(half)
        return result

    def _apply(self, fn: Any, recurse: bool = True) -> nn.Module:
        super()._apply(fn, recurse)  # type: ignore[no-untyped-call]
        if next(self.parameters()).is_cuda:
            cast(self.net, torch.float16)
        return self


def sam_encoder(name: str = "sam2.1-hiera-large") -> Model:
    """Return SAM 2.1's image encoder."""
    model, inputs = sam2(None, model=name)
    return model.get_submodule("vision_encoder"), lambda batch=1: inputs(batch=batch)["pixel_values"]


def sam_encoder_tiny() -> Model:
    """Return the smallest one."""
    return sam_encoder("sam2.1-hiera-tiny")


def sam_decoder() -> Model:
    """Return SAM 2.1's mask decoder; its batch is the number of prompts."""
    sides = (SIDE // 4, SIDE // 8, SIDE // 16)

    def inputs(batch: int = 1) -> tuple[Tensor, ...]:
        levels = [torch.randn(1, channels, side, side) for channels, side in zip(CHANNELS, sides, strict=True)]
        return (*levels, torch.rand(batch, 2) * SIDE)

    return SamDecoder(), inputs


def lama() -> Model:
    """Return LaMa's generator."""
    net, inputs = generator(None)
    return HalfLama(net), inputs
