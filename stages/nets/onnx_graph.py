"""An ONNX graph as a torch module, since such files are exported for one picture at a time and one number format.

A module takes any batch on any device in any floating type. It covers the operators of convolutional face networks;
what else a graph needs is refused by name when it is read, never guessed.

Shapes: n pictures, c channels, h height, w width; the graph's one input is n c h w, each output n and whatever follows.
"""

from __future__ import annotations

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
    """The network in an ONNX file; its weights are buffers, so that `.to()` moves and casts them.

    Args:
        path: the file.
        answers: outputs that it must have.

    Raises:
        ValueError: it is no ONNX file, has other inputs or outputs, or uses an operator that is not covered.
    """

    def __init__(self, path: Path, answers: int = 1) -> None:
        super().__init__()
        graph = _read(path)
        self._constants: dict[str, Any] = {}
        for tensor in graph.initializer:
            self._keep(tensor.name, onnx.numpy_helper.to_array(tensor))
        inputs = [item.name for item in graph.input if item.name not in self._constants]
        outputs = [item.name for item in graph.output]
        if len(inputs) != 1 or len(outputs) != answers:
            told = f"{path.name} has {len(inputs)} inputs and {len(outputs)} outputs"
            raise ValueError(f"{told}; {'one of each' if answers == 1 else f'1 and {answers}'} is covered")
        self.input, self.outputs = inputs[0], outputs
        self.operators = tuple(node.op_type for node in graph.node)
        if unknown := set(self.operators) - {*OPERATORS, "Constant"}:
            raise ValueError(f"{path.name} uses operators that are not covered: {', '.join(sorted(unknown))}")
        self._nodes: list[tuple[str, list[str], str, Attributes]] = []
        for node in graph.node:
            self._add(node)
        self._last = {name: step for step, (_, names, _, _) in enumerate(self._nodes) for name in names}
        self._last |= dict.fromkeys(outputs, len(self._nodes))

    def _keep(self, name: str, value: np.ndarray[Any, Any]) -> None:
        """Whole numbers and scalars are parameters of operators; the rest are weights."""
        if value.ndim == 0 or not np.issubdtype(value.dtype, np.floating):
            self._constants[name] = value.tolist()
            return
        self._constants[name] = buffer = f"weight_{len(self._constants)}"
        self.register_buffer(buffer, torch.from_numpy(value.copy()))

    def _add(self, node: Any) -> None:
        attributes = {item.name: onnx.helper.get_attribute_value(item) for item in node.attribute}
        if node.op_type == "Resize":
            self._plain(node.input[2])
        if node.op_type == "Constant":
            self._keep(node.output[0], onnx.numpy_helper.to_array(attributes["value"]))
        else:
            self._nodes.append((node.op_type, list(node.input), node.output[0], attributes))

    def _plain(self, name: str) -> None:
        """Have a weight as numbers: what an operator's form depends on must not lie on the device."""
        if isinstance(buffer := self._constants.get(name), str):
            self._constants[name] = getattr(self, buffer).tolist()
            delattr(self, buffer)

    def forward(self, pictures: Tensor) -> Tensor:
        """The graph's first output for n c h w pictures of the module's own type and device."""
        return self.answers(pictures)[0]

    def answers(self, pictures: Tensor) -> list[Tensor]:
        """All outputs, in the graph's order."""
        values: dict[str, Any] = {self.input: pictures}
        for step, (kind, names, output, attributes) in enumerate(self._nodes):
            arguments = [values[name] if name in values else self._constant(name) for name in names]
            values[output] = OPERATORS[kind](attributes, *arguments)
            for name in names:  # a batch's intermediate results would else pile up on the card
                if self._last[name] == step:
                    values.pop(name, None)
        return [values[name] for name in self.outputs]

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
    """The first number is the batch that the graph was exported with, for which the one at hand stands, or is that."""
    if shape[0] not in (-1, 0, 1, x.shape[0]):
        raise ValueError(f"Reshape to {list(shape)} does not keep pictures apart")
    return x.reshape(x.shape[0], *(side or x.shape[axis] for axis, side in enumerate(shape[1:], 1)))


def _max_pool(given: Attributes, x: Tensor) -> Tensor:
    pads = given.get("pads", [0, 0, 0, 0])
    if pads[:2] != pads[2:] or given.get("auto_pad", b"NOTSET") != b"NOTSET" or len(given["kernel_shape"]) != 2:
        raise ValueError("MaxPool is covered in two dimensions, with equal padding on both sides")
    dilations, rounds_up = given.get("dilations", [1, 1]), bool(given.get("ceil_mode", 0))
    strides = given.get("strides", [1, 1])
    return functional.max_pool2d(x, given["kernel_shape"], strides, pads[:2], dilations, rounds_up)


def _resize(given: Attributes, x: Tensor, _: Any, scales: Sequence[float], *sizes: Any) -> Tensor:
    how = (given.get("mode"), given.get("coordinate_transformation_mode"), given.get("nearest_mode"))
    whole = len(scales) == 4 and list(scales[:2]) == [1, 1] and all(scale == int(scale) for scale in scales)
    if how != (b"nearest", b"asymmetric", b"floor") or not whole or any(sizes):
        raise ValueError("Resize is covered to whole multiples, each value repeated")
    return x.repeat_interleave(int(scales[2]), 2).repeat_interleave(int(scales[3]), 3)


def _concat(given: Attributes, *parts: Any) -> Any:
    """Of tensors, or of the numbers that a shape is put together from."""
    return [*itertools.chain(*parts)] if isinstance(parts[0], list) else torch.cat(parts, given["axis"])


def _gather(_: Attributes, x: Any, index: Any) -> int:
    if not isinstance(x, list) or not isinstance(index, int):
        raise ValueError("Gather is covered for one number of a shape")
    return int(x[index])


def _unsqueeze(_: Attributes, x: Any, *__: Any) -> list[int]:
    if not isinstance(x, int):
        raise ValueError("Unsqueeze is covered for one number of a shape")
    return [x]


OPERATORS: dict[str, Callable[..., Any]] = {
    "Add": lambda _, a, b: a + b,
    "BatchNormalization": _batch_norm,
    "Clip": _clip,
    "Concat": _concat,
    "Conv": _conv,
    "Dropout": lambda _, x, *_rest: x,  # does nothing outside training
    "Flatten": lambda given, x: x.flatten(given.get("axis", 1)),
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
    "Transpose": lambda given, x: x.permute(given["perm"]),
    "Unsqueeze": _unsqueeze,
}
"""What each operator does, given its attributes and inputs; by the operator specification of ONNX, opset 8 to 18."""
