"""Networks with example inputs for the model bench, by the names in `manifests/bench.yaml`.

Each function takes the file of weights, or None for random ones, and returns a module in float32 with a function of
example inputs. Random weights use the caller's seed.
"""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

Inputs = Callable[..., Any]
Model = tuple[nn.Module, Inputs]

IMAGENET_MEAN, IMAGENET_STD = 0.45, 0.225  # means of the three channels': noise in the range that a network expects


def clip(weights: Path | None, *, model: str) -> Model:
    """Return the image tower of CLIP or SigLIP2."""
    from framekiln_stages.nets.checkpoints import read_state
    from framekiln_stages.nets.clip.architectures import MODELS
    from framekiln_stages.nets.clip.towers import build_model

    architecture = MODELS[model]
    net = build_model(architecture, read_state(weights) if weights else None)
    side = architecture.preparation.side
    return net.vision_model, lambda batch=1: _make_noise(batch, 3, side, side)


def sam2(weights: Path | None, *, model: str) -> Model:
    """Return SAM 2.1 for images: the encoder, and the mask decoder for one point."""
    from framekiln_stages.nets.sam2.image import MODELS, SIDE, build_image_model

    def inputs(batch: int = 1) -> dict[str, Tensor]:
        point, labels = torch.full((batch, 1, 1, 2), SIDE / 2), torch.ones(batch, 1, 1, dtype=torch.long)
        return {"pixel_values": _make_noise(batch, 3, SIDE, SIDE), "input_points": point, "input_labels": labels}

    return build_image_model(MODELS[model], weights), inputs


def edgetam(weights: Path | None) -> Model:
    """Return EdgeTAM's image encoder: the least time of a video's frame."""
    from framekiln_stages.nets.sam2.image import SIDE
    from framekiln_stages.nets.sam2.video import EDGETAM, load_video_model

    net = load_video_model(EDGETAM, weights)
    return net.vision_encoder, lambda batch=1: _make_noise(batch, 3, SIDE, SIDE)


def vjepa2(weights: Path | None, *, sizes: Sequence[float], frames: int = 16, predictor: bool = False) -> Model:
    """Return V-JEPA 2; `sizes`: width, layers, heads and hidden-width ratio of its encoder.

    The encoder alone by default, as for features of clips; `predictor` adds the predictor over all patches.
    """
    from transformers import VJEPA2Config, VJEPA2Model

    from framekiln_stages.nets.checkpoints import load_model, read_state

    width, layers, heads, ratio = sizes
    config = VJEPA2Config(
        hidden_size=int(width), num_hidden_layers=int(layers), num_attention_heads=int(heads), mlp_ratio=float(ratio)
    )
    net = load_model(VJEPA2Model, config, read_state(weights) if weights else None, model="V-JEPA 2")

    def inputs(batch: int = 1, size: int = 256, frames: int = frames) -> dict[str, Any]:
        return {"pixel_values_videos": _make_noise(batch, frames, 3, size, size), "skip_predictor": not predictor}

    return net, inputs


def iresnet(weights: Path | None, *, blocks: Sequence[int]) -> Model:
    """Return ArcFace's network; without blocks MobileFaceNet."""
    from framekiln_stages.nets.faces.iresnet import IResNet, MobileFaceNet
    from framekiln_stages.nets.faces.onnx_module import OnnxGraph

    net = OnnxGraph(weights) if weights else IResNet(blocks) if blocks else MobileFaceNet(128)
    return net, lambda batch=1: torch.rand(batch, 3, 112, 112) * 2 - 1


def lama(weights: Path | None) -> Model:
    """Return LaMa's generator, on images with a tenth of their pixels masked."""
    from framekiln_stages.nets.lama.network import load_generator

    def inputs(batch: int = 1, size: int = 512) -> Tensor:
        image, mask = torch.rand(batch, 3, size, size), torch.zeros(batch, 1, size, size)
        part = int(size * 0.1**0.5)
        mask[..., :part, :part] = 1
        return torch.cat([image * (1 - mask), mask], dim=1)

    return load_generator(weights), inputs


def raft_small(weights: Path | None) -> Model:
    """Return RAFT's small network, on pairs of images."""
    from framekiln_stages.nets.raft import load

    def inputs(batch: int = 1, size: int = 360) -> tuple[Tensor, Tensor]:
        side = -(-size // 8) * 8
        first = torch.rand(batch, 3, side, side) * 2 - 1
        return first, first.roll((3, 5), (2, 3))

    return load(weights), inputs


def _make_noise(*shape: int) -> Tensor:
    """Return pixels like those of a normalised image: random levels, less ImageNet's mean, by its deviation."""
    return (torch.rand(*shape) - IMAGENET_MEAN) / IMAGENET_STD
