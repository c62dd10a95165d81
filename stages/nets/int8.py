"""Linear layers in whole numbers: a quarter of fp32's memory, at a cosine with it that is measured.

Weights are rounded once to 8 bits with a scale for each output, inputs at each call with a scale for each row, both
symmetric; products are summed exactly in 32 bits (LLM.int8(), Dettmers and others 2022, without its outliers). A row's
answer depends on that row alone, so batches change nothing. It runs where `torch._int_mm` does: on CPUs and CUDA GPUs
from compute capability 7.5 on. torch.ao.quantization, which would do it on CPUs only, is deprecated.

Shapes: m rows, i inputs, o outputs.
"""

from __future__ import annotations

import torch
from torch import nn

LEVELS = 127  # of 8 bits, the same on both sides of 0
LEAST_ROWS = 32  # cuBLAS wants more than 16 (torch, aten/src/ATen/native/cuda/Blas.cpp `_int_mm_out_cuda`)
MULTIPLE = 8  # and inputs and outputs by eights


class Int8Linear(nn.Module):
    """What a linear layer computes, by products of 8-bit numbers."""

    weight: torch.Tensor  # o i int8
    scale: torch.Tensor  # o float32
    bias: torch.Tensor | None  # o float32

    def __init__(self, linear: nn.Linear) -> None:
        super().__init__()
        weight, scale = rounded(linear.weight.detach().float())
        self.register_buffer("weight", weight)
        self.register_buffer("scale", scale[:, 0])
        self.register_buffer("bias", None if linear.bias is None else linear.bias.detach().float().clone())

    def forward(self, values: torch.Tensor) -> torch.Tensor:
        """Values ... i of any floating dtype, to ... o of the same."""
        rows, scale = rounded(values.reshape(-1, values.shape[-1]).float())
        missing = max(0, LEAST_ROWS - len(rows))
        sums = torch._int_mm(nn.functional.pad(rows, (0, 0, 0, missing)), self.weight.t())[: len(rows)]
        result = sums.float() * scale * self.scale
        if self.bias is not None:
            result = result + self.bias
        return result.to(values.dtype).reshape(*values.shape[:-1], len(self.weight))


def rounded(values: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Values m i float32 as int8, and what a step is worth, m 1; of a row of zeros almost nothing."""
    scale = values.abs().amax(dim=1, keepdim=True).clamp_min(torch.finfo(torch.float32).tiny * LEVELS) / LEVELS
    return (values / scale).round().to(torch.int8), scale


def counterparts(module: nn.Module) -> dict[str, Int8Linear]:
    """By name, what may take the place of a module's linear layers.

    Made from weights in fp32, before they are cast: hand them over by `set_submodule` afterwards, so that scales keep
    their precision. Subclasses of `nn.Linear` stay, as their owners read their weights directly.
    """
    return {
        name: Int8Linear(layer)
        for name, layer in module.named_modules()
        if type(layer) is nn.Linear and not (layer.in_features % MULTIPLE or layer.out_features % MULTIPLE)
    }
