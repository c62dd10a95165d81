"""Linear layers in 8-bit integers: a quarter of fp32's memory; the cosine of their results with fp32 is tested.

Weights are rounded once to 8 bits with a scale per output, inputs at each call with a scale per row, both symmetric.
Products are summed exactly in 32 bits (LLM.int8(), Dettmers and others 2022, without its outliers). A row's result
depends on that row alone, so that batches change nothing. It runs where `torch._int_mm` does: on CPUs, and on CUDA GPUs
from compute capability 7.5. The alternative, torch.ao.quantization, supports CPUs only and is deprecated.

Shapes: m rows, i inputs, o outputs.
"""

import torch
from torch import nn

LEVELS = 127  # of 8 bits, symmetric around 0
MIN_ROWS = 32  # cuBLAS needs more than 16 (torch, aten/src/ATen/native/cuda/Blas.cpp `_int_mm_out_cuda`)
MULTIPLE = 8  # and inputs and outputs in multiples of 8


class Int8Linear(nn.Module):
    """A linear layer by products of 8-bit integers."""

    weight: torch.Tensor  # o i int8
    scale: torch.Tensor  # o float32
    bias: torch.Tensor | None  # o float32

    def __init__(self, linear: nn.Linear) -> None:
        super().__init__()
        weight, scale = quantize_rows(linear.weight.detach().float())
        self.register_buffer("weight", weight)
        self.register_buffer("scale", scale[:, 0])
        self.register_buffer("bias", None if linear.bias is None else linear.bias.detach().float().clone())

    def forward(self, values: torch.Tensor) -> torch.Tensor:
        """Return ... o for values ... i, in the same floating dtype."""
        rows, scale = quantize_rows(values.reshape(-1, values.shape[-1]).float())
        missing = max(0, MIN_ROWS - len(rows))
        sums = torch._int_mm(nn.functional.pad(rows, (0, 0, 0, missing)), self.weight.t())[: len(rows)]
        result = sums.float() * scale * self.scale
        if self.bias is not None:
            result = result + self.bias
        return result.to(values.dtype).reshape(*values.shape[:-1], len(self.weight))


def quantize_rows(values: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Return values m i float32 as int8 with a scale per row, m 1; tiny for a row of zeros."""
    scale = values.abs().amax(dim=1, keepdim=True).clamp_min(torch.finfo(torch.float32).tiny * LEVELS) / LEVELS
    return (values / scale).round().to(torch.int8), scale


def int8_layers(module: nn.Module) -> dict[str, Int8Linear]:
    """Return replacements of a module's linear layers, by name.

    Call this while weights are in fp32, and insert the layers with `set_submodule` after the module is cast, so that
    scales keep their precision. Subclasses of `nn.Linear` stay, as their owners read their weights directly.
    """
    return {
        name: Int8Linear(layer)
        for name, layer in module.named_modules()
        if type(layer) is nn.Linear and not (layer.in_features % MULTIPLE or layer.out_features % MULTIPLE)
    }
