"""Random weights with which SAM returns many different masks; with its own initialization all are alike."""

from __future__ import annotations

import torch
from safetensors.torch import save_file

from framekiln_stages.nets.sam2.image import HieraArchitecture, image_config

# a small encoder with an input of 256 px and masks on a grid of 64; the decoder is the published one
TOY = HieraArchitecture(blocks=(1, 1, 2, 1), whole=(3, 3, 3), width=16, side=256)


def lively(architecture, path, gain=1.4):
    """Save weights with the published shapes; their values keep the scale of activations."""
    from transformers import Sam2Model

    torch.manual_seed(0)
    state = Sam2Model(image_config(architecture)).state_dict()
    for name, tensor in state.items():
        if name.endswith("positional_embedding"):
            tensor.copy_(state["prompt_encoder.shared_embedding.positional_embedding"])
        elif "token." in name or "tokens." in name or "point_embed." in name:
            tensor.normal_()
        elif tensor.dim() > 1 and "embed" not in name:
            tensor.normal_(0, gain / (tensor.shape[0] if "upscale_conv" in name else tensor[0].numel()) ** 0.5)
    save_file({name: tensor.clone().contiguous() for name, tensor in state.items()}, path, metadata={"format": "pt"})
    return path
