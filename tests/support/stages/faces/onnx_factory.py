"""ONNX graphs with random weights, with the architectures of networks without files in the tests, and their results."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnxruntime
import torch
from onnx import TensorProto, checker, helper, numpy_helper, save

R50 = (3, 4, 14, 3)  # blocks of each stage: insightface, recognition/arcface_torch/backbones/iresnet.py


def random(count, side=112, scale=1.0):
    """Return inputs of a network (count 3 side side)."""
    return (np.random.default_rng(count).standard_normal((count, 3, side, side)) * scale).astype(np.float32)


def by_onnxruntime(path, pictures):
    """Return onnxruntime's results, one image at a time, as some files are exported for one."""
    session = onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"])
    name = session.get_inputs()[0].name
    return np.concatenate([session.run(None, {name: picture[None]})[0] for picture in pictures])


def by_torch(module, pictures, dtype=torch.float32):
    with torch.inference_mode():
        return module.eval().to(dtype)(torch.from_numpy(pictures).to(dtype)).float().numpy()


def directions(values):
    return values / np.linalg.norm(values, axis=1, keepdims=True)


class Builder:
    """A chain of nodes; each call adds one and returns the name of its output."""

    def __init__(self, seed=0, batch="n", opset=11):
        self.rng, self.batch, self.opset = np.random.default_rng(seed), batch, opset
        self.nodes, self.weights = [], []

    def weight(self, value):
        name = f"w{len(self.weights)}"
        self.weights.append(numpy_helper.from_array(np.asarray(value), name))
        return name

    def add(self, kind, *inputs, **attributes):
        output = f"x{len(self.nodes)}"
        self.nodes.append(helper.make_node(kind, list(inputs), [output], **attributes))
        return output

    def normal(self, *shape, scale=1.0):
        return self.weight((self.rng.standard_normal(shape) * scale).astype(np.float32))

    def conv(self, x, inside, outside, kernel, stride=1, pads=None, bias=True, group=1):
        scale = (2 / (inside // group * kernel**2)) ** 0.5
        weights = [self.normal(outside, inside // group, kernel, kernel, scale=scale)]
        weights += [self.normal(outside, scale=0.1)] if bias else []
        pads = [kernel // 2] * 4 if pads is None else pads
        about = {"kernel_shape": [kernel] * 2, "strides": [stride] * 2, "pads": pads, "group": group}
        return self.add("Conv", x, *weights, **about)

    def norm(self, x, channels):
        numbers = [self.rng.uniform(0.5, 1.5, channels).astype(np.float32) for _ in range(4)]
        numbers[1] -= 1
        numbers[2] -= 1
        return self.add("BatchNormalization", x, *(self.weight(n) for n in numbers), epsilon=1e-5)

    def prelu(self, x, channels):
        return self.add("PRelu", x, self.weight(self.rng.uniform(0, 0.5, (channels, 1, 1)).astype(np.float32)))

    def save(self, path: Path, output, shape, side=112):
        """Save the graph with an input of (batch, 3, side, side)."""
        return self.save_all(path, [self.batch, 3, side, side], {output: [self.batch, *shape]})

    def save_all(self, path: Path, shape, outputs):
        """Save the graph with an input of a shape, and the shapes of its outputs by their names."""
        given, found = (
            [helper.make_tensor_value_info(name, TensorProto.FLOAT, sides) for name, sides in several.items()]
            for several in ({"input": shape}, outputs)
        )
        graph = helper.make_graph(self.nodes, "random", given, found, self.weights)
        model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", self.opset)], ir_version=8)
        checker.check_model(model)
        save(model, str(path))
        return path


def iresnet(path: Path, blocks=R50, widths=(64, 128, 256, 512), length=512, side=112) -> Path:
    """Save ArcFace's IResNet as insightface exports it: the norm after a convolution is folded into it, others stay."""
    b = Builder()
    x, inside = b.prelu(b.conv("input", 3, widths[0], 3), widths[0]), widths[0]
    for count, width in zip(blocks, widths, strict=True):
        for block in range(count):
            stride = 2 if block == 0 else 1
            inner = b.prelu(b.conv(b.norm(x, inside), inside, width, 3), width)
            inner = b.conv(inner, width, width, 3, stride)
            x = b.add("Add", inner, b.conv(x, inside, width, 1, stride) if block == 0 else x)
            inside = width
    last = (side // 16) ** 2 * widths[-1]
    x = b.add("Flatten", b.norm(x, inside), axis=1)
    x = b.add("Gemm", x, b.normal(length, last, scale=last**-0.5), b.normal(length), alpha=1.0, beta=1.0, transB=1)
    return b.save(path, b.norm(x, length), [length], side)


def mobilefacenet(path: Path, length=128) -> Path:
    """Save foamliu's MobileFaceNet as it is exported: norms are folded, and activations are Clip and Relu."""
    b = Builder()

    def relu6(x):
        return b.add("Clip", x, b.weight(np.float32(0)), b.weight(np.float32(6)))

    x = b.add("Relu", b.conv(relu6(b.conv("input", 3, 64, 3, 2)), 64, 64, 3, group=64))
    x, inside = b.add("Relu", b.conv(x, 64, 64, 1)), 64
    groups = ((64, 5, 2, 2), (128, 1, 4, 2), (128, 6, 2, 1), (128, 1, 4, 2), (128, 2, 2, 1))
    for width, count, expansion, first in groups:
        for stride in (first, *[1] * (count - 1)):
            wide = inside * expansion
            y = relu6(b.conv(relu6(b.conv(x, inside, wide, 1)), wide, wide, 3, stride, group=wide))
            y = b.conv(y, wide, width, 1)
            x, inside = b.add("Add", x, y) if stride == 1 and inside == width else y, width
    x = b.conv(relu6(b.conv(x, inside, 512, 1)), 512, 512, 7, pads=[0] * 4, group=512)
    return b.save(path, b.add("Flatten", b.conv(x, 512, length, 1), axis=1), [length])


def mixed(path: Path, opset=11) -> Path:
    """Save the other operators of SFace and similar exports, with asymmetric padding."""
    b = Builder(opset=opset)
    x = b.add("Sub", "input", b.weight(np.float32(127.5)))
    x = b.add("Mul", x, b.weight(np.float32(0.0078125)))
    x = b.prelu(b.conv(x, 3, 8, 3, 2, pads=[0, 1, 2, 1], bias=False), 8)
    x = b.add("Clip", b.conv(x, 8, 8, 3, group=8), b.weight(np.float32(-1)), b.weight(np.float32(2)))
    x = b.add("Clip", x, "", b.weight(np.float32(1.5)))
    x = b.add("Relu", b.norm(x, 8))
    x = b.add("Identity", b.add("Dropout", x))
    x = b.add("Mul", x, b.normal(8, 1, 1))
    x = b.add("Reshape", x, b.weight(np.array([-1, 512], np.int64)))
    x = b.add("Reshape", x, b.weight(np.array([0, 8, 8, 8], np.int64)))
    x = b.add("Flatten", x)
    return b.save(path, b.add("Gemm", x, b.normal(512, 5, scale=0.1), alpha=0.5), [5], 16)


def pyramid(path: Path) -> Path:
    """Save the other operators of detectors: a coarse grid upsampled and joined to a fine one, and a row per cell."""
    b = Builder()
    fine = b.conv("input", 3, 4, 3)
    coarse = b.add("MaxPool", fine, kernel_shape=[2, 2], strides=[2, 2], pads=[0, 0, 0, 0])
    how = {"mode": "nearest", "coordinate_transformation_mode": "asymmetric", "nearest_mode": "floor"}
    x = b.add("Resize", coarse, b.weight(np.array([], np.float32)), b.weight(np.array([1, 1, 2, 2], np.float32)), **how)
    x = b.add("Transpose", b.add("Concat", fine, x, axis=1), perm=[0, 2, 3, 1])
    count = b.add("Unsqueeze", b.add("Gather", b.add("Shape", x), b.weight(np.int64(0)), axis=0), axes=[0])
    shape = b.add("Concat", count, b.weight(np.array([-1], np.int64)), b.weight(np.array([8], np.int64)), axis=0)
    return b.save(path, b.add("Sigmoid", b.add("Reshape", x, shape)), [None, 8], 16)


def scrfd(path: Path, *, seed=0, leading=False, outputs=9) -> dict[tuple[int, int], tuple[np.ndarray, np.ndarray]]:
    """Save a detector with SCRFD's outputs, for images of any size, computed from the mean colour of each cell.

    Returns:
        By stride and values of an anchor (1 score, 4 box, 10 points), weights (2 anchors x values, 3) and biases.
    """
    b, heads, names = Builder(seed), {}, []
    for numbers in (1, 4, 10):
        for stride in (8, 16, 32):
            weight = b.rng.normal(0, 1 if numbers == 1 else 0.2, (2 * numbers, 3)).astype(np.float32)
            bias = b.rng.uniform(*{1: (-0.3, 0.1), 4: (1, 4), 10: (-2, 2)}[numbers], 2 * numbers).astype(np.float32)
            heads[stride, numbers] = weight, bias
            cells = b.add("AveragePool", "input", kernel_shape=[stride] * 2, strides=[stride] * 2)
            x = b.add("Conv", cells, b.weight(weight[:, :, None, None]), b.weight(bias))
            x = b.add("Transpose", x, perm=[0, 2, 3, 1])
            shape = [*([1] if leading else []), -1, numbers]
            names.append(b.add("Reshape", x, b.weight(np.array(shape, np.int64))))
    b.save_all(path, [1, 3, "h", "w"], {name: [*([1] if leading else []), None, None] for name in names[:outputs]})
    return heads
