"""An ONNX graph as a torch module, for any batch size, device and floating-point type; files fix one of each.

It supports the operators of convolutional face networks. A graph with any other operator is rejected on reading.

Shapes: n images, c channels, h height, w width; the graph's one input is n c h w, each output has n as its first axis.
"""

import itertools
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import torch
from torch import Tensor, nn
from torch.nn import functional

Attributes = dict[str, Any]


class OnnxGraph(nn.Module):
    """The network in an ONNX file; its weights are parameters without gradients, which `.to()` moves and casts.

    `path`: the file. `outputs`: required number of outputs.
    Raises ValueError: the file is not ONNX, has other inputs or outputs, or uses an unsupported operator.
    """

    def __init__(self, path: Path, outputs: int = 1) -> None:
        super().__init__()
        try:
            model = onnx.load(str(path))
            onnx.checker.check_model(model)
        except Exception as error:  # protobuf, onnx and the checker raise unrelated types
            raise ValueError(f"{path.name} cannot be read as an ONNX graph: {error}") from error
        graph = model.graph
        self._constants: dict[str, Any] = {}
        for tensor in graph.initializer:
            self._keep(tensor.name, onnx.numpy_helper.to_array(tensor))
        inputs = [item.name for item in graph.input if item.name not in self._constants]
        self.outputs = [item.name for item in graph.output]
        if len(inputs) != 1 or len(self.outputs) != outputs:
            counts = f"{len(inputs)} inputs and {len(self.outputs)} outputs"
            raise ValueError(f"{path.name} has {counts}, but must have 1 and {outputs}")
        self.input = inputs[0]
        self.operators = tuple(node.op_type for node in graph.node)
        if unknown := set(self.operators) - {*OPERATORS, "Constant"}:
            raise ValueError(f"{path.name} uses unsupported operators: {', '.join(sorted(unknown))}")
        self._nodes: list[tuple[str, list[str], str, Attributes]] = []
        for node in graph.node:
            self._add(node)
        self._last = {name: step for step, (_, names, _, _) in enumerate(self._nodes) for name in names}
        self._last |= dict.fromkeys(self.outputs, len(self._nodes))

    def _keep(self, name: str, value: np.ndarray[Any, Any]) -> None:
        """Store whole numbers and scalars as parameters of operators, other values as weights."""
        if value.ndim == 0 or not np.issubdtype(value.dtype, np.floating):
            self._constants[name] = value.tolist()
            return
        self._constants[name] = weight = f"weight_{len(self._constants)}"
        self.register_parameter(weight, nn.Parameter(torch.from_numpy(value.copy()), requires_grad=False))

    def _add(self, node: Any) -> None:
        attributes = {item.name: onnx.helper.get_attribute_value(item) for item in node.attribute}
        if node.op_type == "Resize" and isinstance(weight := self._constants.get(node.input[2]), str):
            # plain numbers: an operator's form must not depend on values on the device
            self._constants[node.input[2]] = getattr(self, weight).tolist()
            delattr(self, weight)
        if node.op_type == "Constant":
            self._keep(node.output[0], onnx.numpy_helper.to_array(attributes["value"]))
        else:
            self._nodes.append((node.op_type, list(node.input), node.output[0], attributes))

    def forward(self, images: Tensor) -> Tensor:
        """Return the graph's first output for images n c h w of the module's own type and device."""
        return self.all_outputs(images)[0]

    def all_outputs(self, images: Tensor) -> list[Tensor]:
        values: dict[str, Any] = {self.input: images}
        for step, (kind, names, output, attributes) in enumerate(self._nodes):
            arguments = [values[name] if name in values else self._get_constant(name) for name in names]
            values[output] = OPERATORS[kind](attributes, *arguments)
            for name in names:  # frees a batch's intermediate results after their last use
                if self._last[name] == step:
                    values.pop(name, None)
        return [values[name] for name in self.outputs]

    def _get_constant(self, name: str) -> Any:
        if not name:  # an omitted optional input
            return None
        value = self._constants[name]
        return getattr(self, value) if isinstance(value, str) else value


def _require(condition: bool, form: str) -> None:
    if not condition:
        raise ValueError(f"only {form} is supported")


def _conv(attributes: Attributes, x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    explicit = attributes.get("auto_pad", b"NOTSET") == b"NOTSET"
    _require(weight.ndim == 4 and explicit, "Conv in two dimensions with explicit padding")
    pads = attributes.get("pads", [0, 0, 0, 0])
    if pads[:2] != pads[2:]:
        x, pads = functional.pad(x, (pads[1], pads[3], pads[0], pads[2])), [0, 0]
    strides, dilations = attributes.get("strides", [1, 1]), attributes.get("dilations", [1, 1])
    return functional.conv2d(x, weight, bias, strides, pads[:2], dilations, attributes.get("group", 1))


def _batch_norm(attributes: Attributes, x: Tensor, scale: Tensor, bias: Tensor, mean: Tensor, var: Tensor) -> Tensor:
    return functional.batch_norm(x, mean, var, scale, bias, training=False, eps=attributes.get("epsilon", 1e-5))


def _prelu(_: Attributes, x: Tensor, slope: Tensor) -> Tensor:
    _require(slope.numel() in (1, slope.shape[0]), "PRelu with one slope a channel, c 1 1,")
    return functional.prelu(x, slope.flatten())


def _gemm(attributes: Attributes, a: Tensor, b: Tensor, c: Tensor | None = None) -> Tensor:
    left = a.T if attributes.get("transA", 0) else a
    product = attributes.get("alpha", 1.0) * (left @ (b.T if attributes.get("transB", 0) else b))
    return product if c is None else product + attributes.get("beta", 1.0) * c


def _reshape(_: Attributes, x: Tensor, shape: Sequence[int]) -> Tensor:
    """Reshape all axes except the first (the batch size of the export), and keep the actual batch size."""
    _require(shape[0] in (-1, 0, 1, x.shape[0]), f"Reshape within an image, not to {list(shape)},")
    return x.reshape(x.shape[0], *(side or x.shape[axis] for axis, side in enumerate(shape[1:], 1)))


def _max_pool(attributes: Attributes, x: Tensor) -> Tensor:
    kernel, pads = attributes["kernel_shape"], attributes.get("pads", [0, 0, 0, 0])
    symmetric = pads[:2] == pads[2:] and attributes.get("auto_pad", b"NOTSET") == b"NOTSET"
    _require(symmetric and len(kernel) == 2, "MaxPool in two dimensions with equal padding on both sides")
    dilations, rounds_up = attributes.get("dilations", [1, 1]), bool(attributes.get("ceil_mode", 0))
    strides = attributes.get("strides", [1, 1])
    return functional.max_pool2d(x, kernel, strides, pads[:2], dilations, rounds_up)


def _resize(attributes: Attributes, x: Tensor, _: Any, scales: Sequence[float], *sizes: Any) -> Tensor:
    modes = (attributes.get("mode"), attributes.get("coordinate_transformation_mode"), attributes.get("nearest_mode"))
    whole = len(scales) == 4 and list(scales[:2]) == [1, 1] and all(scale == int(scale) for scale in scales)
    nearest = modes == (b"nearest", b"asymmetric", b"floor")
    _require(nearest and whole and not any(sizes), "Resize by whole factors to the nearest value")
    return x.repeat_interleave(int(scales[2]), 2).repeat_interleave(int(scales[3]), 3)


def _concat(attributes: Attributes, *parts: Any) -> Any:
    return [*itertools.chain(*parts)] if isinstance(parts[0], list) else torch.cat(parts, attributes["axis"])


def _gather(_: Attributes, x: Any, index: Any) -> int:
    _require(isinstance(x, list) and isinstance(index, int), "Gather of one number of a shape")
    return int(x[index])


def _unsqueeze(_: Attributes, x: Any, *__: Any) -> list[int]:
    _require(isinstance(x, int), "Unsqueeze of one number of a shape")
    return [x]


OPERATORS: dict[str, Callable[..., Any]] = {
    "Add": lambda _, a, b: a + b,
    "BatchNormalization": _batch_norm,
    "Clip": lambda _, x, low=None, high=None: x.clamp(low, high),
    "Concat": _concat,
    "Conv": _conv,
    "Dropout": lambda _, x, *_rest: x,  # identity in inference
    "Flatten": lambda attributes, x: x.flatten(attributes.get("axis", 1)),
    "Gather": _gather,
    "Gemm": _gemm,
    "Identity": lambda _, x: x,
    "MaxPool": _max_pool,
    "Mul": lambda _, a, b: a * b,
    "PRelu": _prelu,
    "Relu": lambda _, x: functional.relu(x),
    "Reshape": _reshape,
    "Resize": _resize,
    "Shape": lambda _, x: list(x.shape),
    "Sigmoid": lambda _, x: x.sigmoid(),
    "Sub": lambda _, a, b: a - b,
    "Transpose": lambda attributes, x: x.permute(attributes["perm"]),
    "Unsqueeze": _unsqueeze,
}
"""Operators as functions of their attributes and inputs, by ONNX's operator specification, opset 8 to 18."""
