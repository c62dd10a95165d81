"""Random weights under which SAM says many different masks: its own initialisation makes all of them alike."""

from __future__ import annotations

import torch
from safetensors.torch import save_file

from stages.nets.sam2 import Architecture, configured

# a cheap encoder that looks at 256 px and says masks on a grid of 64; the decoder is the published one
TOY = Architecture(blocks=(1, 1, 2, 1), whole=(3, 3, 3), width=16, side=256)


def lively(architecture, path, gain=1.4):
    """A file of weights, as published but for their values: matrices so large that what goes through keeps its size."""
    from transformers import Sam2Model

    torch.manual_seed(0)
    state = Sam2Model(configured(architecture)).state_dict()
    for name, tensor in state.items():
        if name.endswith("positional_embedding"):
            tensor.copy_(state["prompt_encoder.shared_embedding.positional_embedding"])
        elif "token." in name or "tokens." in name or "point_embed." in name:
            tensor.normal_()
        elif tensor.dim() > 1 and "embed" not in name:
            tensor.normal_(0, gain / (tensor.shape[0] if "upscale_conv" in name else tensor[0].numel()) ** 0.5)
    save_file({name: tensor.clone().contiguous() for name, tensor in state.items()}, path, metadata={"format": "pt"})
    return path
