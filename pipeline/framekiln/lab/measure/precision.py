"""Precisions of a model: TF32, 16-bit types by casting or autocast, and 8-bit integers.

By default cuDNN's TF32 is on and matrix products' TF32 is off. Both are set for each measurement and restored after it.
"""

from __future__ import annotations

import importlib.util
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

from framekiln.contract.placement import WEIGHT_TYPES
from framekiln.device import summed, torch, type_of
from framekiln.lab.modules import UnsupportedError

FP32 = "fp32"
PRECISIONS = (
    FP32,
    "tf32",
    "fp16",
    "fp16-sums",
    "bf16",
    "fp16-autocast",
    "bf16-autocast",
    "int8-dynamic",
    "int8-static",
    "int8-torch",
)
"""fp16 and bf16 cast weights and inputs; fp16-sums also sums matrix products in fp16. int8-dynamic and int8-static
are torchao's; int8-torch is `quantize_dynamic`, deprecated, and for CPUs only."""

_PLAIN = (FP32, "tf32", "fp16", "bf16")
STAGE = "a stage"
_CASTS = {"onnxruntime": (FP32, "fp16"), "torchscript": _PLAIN, "tensorrt": _PLAIN, STAGE: WEIGHT_TYPES}
"""Precisions of another runtime's graph, and of stages; numpy, which binds ONNX Runtime's tensors, has no bf16."""


def check(precision: str, device: str) -> None:
    """Check that a precision exists on a device. Raises UnsupportedError."""
    if precision == "tf32" and device == "cpu":
        raise UnsupportedError("TF32 is a format of NVIDIA GPUs")
    if precision == "fp16-sums" and device == "cpu":
        raise UnsupportedError("sums in fp16 are a setting of cuBLAS")
    if precision == "int8-torch" and device != "cpu":
        raise UnsupportedError("torch.ao's quantize_dynamic has no kernels for GPUs")
    if precision in ("int8-dynamic", "int8-static") and importlib.util.find_spec("torchao") is None:
        raise UnsupportedError("torchao is not installed: pip install 'framekiln[bench]'")


def check_cast(precision: str, runtime: str) -> None:
    """Check that a runtime, or a stage, runs in a precision. Raises UnsupportedError."""
    if precision not in _CASTS[runtime]:
        raise UnsupportedError(f"{runtime} is measured in {', '.join(_CASTS[runtime])}, not in {precision}")


def is_full(precision: str) -> bool:
    """Return whether a precision is the one that others are compared with."""
    return precision == FP32


def layer_precision(precision: str) -> str | None:
    """Return the precision of a linear layer alone; None for 8-bit integers."""
    return None if precision.startswith("int8") else precision.removesuffix("-autocast")


def converted(module: Any, precision: str, calibrate: Callable[[Any], object]) -> Any:
    """Return a module (float32, on its device) with its weights in a precision; it may be the same one, changed.

    `calibrate` calls a module on the example inputs, which sets the ranges of static INT8. Raises UnsupportedError:
    nothing in it has INT8 here, so its figures would equal those in fp32.
    """
    if precision.startswith("int8") and not _find_linear(module):
        raise UnsupportedError("the model has no linear layers, the only ones that are quantised")
    if precision == "int8-dynamic":
        from torchao.quantization import Int8DynamicActivationInt8WeightConfig, quantize_

        quantize_(module, Int8DynamicActivationInt8WeightConfig())
        return module
    if precision == "int8-static":
        return _quantise_static(module, calibrate)
    if precision != "int8-torch":
        return module.to(type_of(precision))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # deprecated, as the documentation says
        quantize: Any = torch.ao.quantization.quantize_dynamic
        return quantize(module, {torch.nn.Linear}, dtype=torch.qint8)


@contextmanager
def arithmetic(precision: str, device: str) -> Iterator[None]:
    """Set TF32, sums in fp16 and autocast for a precision within this block."""
    before = torch.backends.cuda.matmul.allow_tf32, torch.backends.cudnn.allow_tf32
    wanted = precision == "tf32"
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = wanted
    name = precision.removesuffix("-autocast")
    try:
        autocast = torch.autocast(torch.device(device).type, type_of(name), enabled=precision.endswith("-autocast"))
        with autocast, summed(in_fp16=precision == "fp16-sums"):
            yield
    finally:
        torch.backends.cuda.matmul.allow_tf32, torch.backends.cudnn.allow_tf32 = before


def _find_linear(module: Any) -> dict[str, Any]:
    return {name: layer for name, layer in module.named_modules() if type(layer) is torch.nn.Linear}


def _quantise_static(module: Any, calibrate: Callable[[Any], object]) -> Any:
    """Quantise linear layers by each one's largest input on the example inputs."""
    from torchao.quantization import Int8StaticActivationInt8WeightConfig, PerRow, PerTensor, quantize_

    layers = _find_linear(module)
    largest: dict[str, torch.Tensor] = {}

    def watch(name: str, _: Any, arguments: tuple[torch.Tensor, ...]) -> None:
        value = arguments[0].detach().abs().amax().reshape([1] * arguments[0].dim())
        largest[name] = torch.maximum(largest[name], value) if name in largest else value

    handles = [layer.register_forward_pre_hook(partial(watch, name)) for name, layer in layers.items()]
    calibrate(module)
    for handle in handles:
        handle.remove()
    for name, value in largest.items():
        scale = (value.float() / 127).clamp_min(torch.finfo(torch.float32).tiny)
        config = Int8StaticActivationInt8WeightConfig(act_quant_scale=scale, granularity=[PerTensor(), PerRow()])
        quantize_(module, config, filter_fn=lambda _, path, wanted=name: path == wanted)
    return module
