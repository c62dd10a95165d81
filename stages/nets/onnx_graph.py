"""An ONNX graph as a torch module, since such files are exported for one picture at a time and one number format.

A module takes any batch on any device in any floating type. It covers the operators of convolutional face networks;
what else a graph needs is refused by name when it is read, never guessed.

Shapes: n pictures, c channels, h height, w width; the graph's one input is n c h w, its one output n and whatever
follows.
"""

from __future__ import annotations

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
    """The network in an ONNX file; its weights are buffers, so that `.to()` moves and casts them.

    Args:
        path: the file.

    Raises:
        ValueError: it is no ONNX file, has several inputs or outputs, or uses an operator that is not covered.
    """

    def __init__(self, path: Path) -> None:
        super().__init__()
        graph = _read(path)
        self._constants: dict[str, Any] = {}
        for tensor in graph.initializer:
            self._keep(tensor.name, onnx.numpy_helper.to_array(tensor))
        inputs = [item.name for item in graph.input if item.name not in self._constants]
        outputs = [item.name for item in graph.output]
        if len(inputs) != 1 or len(outputs) != 1:
            raise ValueError(f"{path.name} has {len(inputs)} inputs and {len(outputs)} outputs; one of each is covered")
        self.input, self.output = inputs[0], outputs[0]
        self.operators = tuple(node.op_type for node in graph.node)
        if unknown := set(self.operators) - {*OPERATORS, "Constant"}:
            raise ValueError(f"{path.name} uses operators that are not covered: {', '.join(sorted(unknown))}")
        self._nodes: list[tuple[str, list[str], str, Attributes]] = []
        for node in graph.node:
            self._add(node)
        self._last = {name: step for step, (_, names, _, _) in enumerate(self._nodes) for name in names}

    def _keep(self, name: str, value: np.ndarray[Any, Any]) -> None:
        """Whole numbers and scalars are parameters of operators; the rest are weights."""
        if value.ndim == 0 or not np.issubdtype(value.dtype, np.floating):
            self._constants[name] = value.tolist()
            return
        self._constants[name] = buffer = f"weight_{len(self._constants)}"
        self.register_buffer(buffer, torch.from_numpy(value.copy()))

    def _add(self, node: Any) -> None:
        attributes = {item.name: onnx.helper.get_attribute_value(item) for item in node.attribute}
        if node.op_type == "Constant":
            self._keep(node.output[0], onnx.numpy_helper.to_array(attributes["value"]))
        else:
            self._nodes.append((node.op_type, list(node.input), node.output[0], attributes))

    def forward(self, pictures: Tensor) -> Tensor:
        """The graph's output for n c h w pictures of the module's own type and device."""
        values: dict[str, Any] = {self.input: pictures}
        for step, (kind, names, output, attributes) in enumerate(self._nodes):
            arguments = [values[name] if name in values else self._constant(name) for name in names]
            values[output] = OPERATORS[kind](attributes, *arguments)
            for name in names:  # a batch's intermediate results would else pile up on the card
                if self._last[name] == step:
                    values.pop(name, None)
        result: Tensor = values[self.output]
        return result

    def _constant(self, name: str) -> Any:
        if not name:  # ONNX's way to leave an optional input out
            return None
        value = self._constants[name]
        return getattr(self, value) if isinstance(value, str) else value


def _read(path: Path) -> Any:
    try:
        model = onnx.load(str(path))
        onnx.checker.check_model(model)
    except Exception as error:  # protobuf, onnx and the checker each have errors of their own
        raise ValueError(f"{path.name} cannot be read as an ONNX graph: {error}") from error
    return model.graph


def _conv(given: Attributes, x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    pads = given.get("pads", [0, 0, 0, 0])
    if weight.ndim != 4 or given.get("auto_pad", b"NOTSET") != b"NOTSET":
        raise ValueError("only two-dimensional convolutions with explicit padding are covered")
    if pads[:2] != pads[2:]:
        x, pads = functional.pad(x, (pads[1], pads[3], pads[0], pads[2])), [0, 0]
    strides, dilations = given.get("strides", [1, 1]), given.get("dilations", [1, 1])
    return functional.conv2d(x, weight, bias, strides, pads[:2], dilations, given.get("group", 1))


def _batch_norm(given: Attributes, x: Tensor, scale: Tensor, bias: Tensor, mean: Tensor, var: Tensor) -> Tensor:
    return functional.batch_norm(x, mean, var, scale, bias, training=False, eps=given.get("epsilon", 1e-5))


def _prelu(_: Attributes, x: Tensor, slope: Tensor) -> Tensor:
    if slope.numel() > 1 and slope.numel() != slope.shape[0]:  # one for each channel is c 1 1
        raise ValueError(f"PRelu is covered with one slope a channel, not of shape {tuple(slope.shape)}")
    return functional.prelu(x, slope.flatten())


def _clip(_: Attributes, x: Tensor, low: float | None = None, high: float | None = None) -> Tensor:
    return x.clamp(low, high)


def _gemm(given: Attributes, a: Tensor, b: Tensor, c: Tensor | None = None) -> Tensor:
    left = a.T if given.get("transA", 0) else a
    product = given.get("alpha", 1.0) * (left @ (b.T if given.get("transB", 0) else b))
    return product if c is None else product + given.get("beta", 1.0) * c


def _reshape(_: Attributes, x: Tensor, shape: Sequence[int]) -> Tensor:
    """The first number is the batch that the graph was exported with: the batch at hand takes its place."""
    if shape[0] not in (-1, 0, 1):
        raise ValueError(f"Reshape to {list(shape)} does not keep pictures apart")
    return x.reshape(x.shape[0], *(side or x.shape[axis] for axis, side in enumerate(shape[1:], 1)))


OPERATORS: dict[str, Callable[..., Tensor]] = {
    "Add": lambda _, a, b: a + b,
    "BatchNormalization": _batch_norm,
    "Clip": _clip,
    "Conv": _conv,
    "Dropout": lambda _, x, *_rest: x,  # does nothing outside training
    "Flatten": lambda given, x: x.flatten(given.get("axis", 1)),
    "Gemm": _gemm,
    "Identity": lambda _, x: x,
    "Mul": lambda _, a, b: a * b,
    "PRelu": _prelu,
    "Relu": lambda _, x: functional.relu(x),
    "Reshape": _reshape,
    "Sub": lambda _, a, b: a - b,
}
"""What each operator does, given its attributes and inputs; by the operator specification of ONNX, opset 8 to 18."""
