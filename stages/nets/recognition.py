"""Faces as directions: networks whose embeddings of one person lie close together, whoever published them.

All were trained with a margin loss of the ArcFace family on the same alignment, so that they differ here in a file, a
length and how pixels become numbers.

Shapes: n aligned crops uint8 n 112 112 3 RGB; embeddings float32 n d of length 1.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pipeline.device import dtype_of, ready
from pipeline.stage import Placement
from stages.nets.align import SIDE

Crops = NDArray[np.uint8]  # n 112 112 3
Embeddings = NDArray[np.float32]  # n d


@dataclass(frozen=True, kw_only=True)
class Network:
    """What is known of one file."""

    weights: str  # its name in the weights lockfile
    length: int  # of an embedding
    mean: tuple[float, float, float] = (127.5, 127.5, 127.5)  # of the colours, 0 to 255
    spread: tuple[float, float, float] = (127.5, 127.5, 127.5)


NETWORKS = {
    "mobilefacenet": Network(  # foamliu/MobileFaceNet, data_gen.py: ImageNet's mean and deviation
        weights="mobilefacenet", length=128, mean=(123.675, 116.28, 103.53), spread=(58.395, 57.12, 57.375)
    ),
    "arcface-r50": Network(weights="arcface_w600k_r50", length=512),  # insightface, model_zoo/arcface_onnx.py
    "auraface": Network(weights="auraface", length=512),  # the same reader, by its model card
    "sface": Network(
        weights="sface_2021dec", length=128, mean=(0, 0, 0), spread=(1, 1, 1)
    ),  # FaceRecognizerSF::feature
}
"""By the name that a pipeline file uses."""


class Recogniser:
    """One network on one device.

    Args:
        network: which.
        path: its ONNX file.
        runtime: "onnxruntime" (CPU, one crop at a time) or "torch".
        placement: torch's device and arithmetic.

    Raises:
        ValueError: the file is no graph that is covered, or its embeddings have another length.
    """

    def __init__(self, network: Network, path: Path, *, runtime: str, placement: Placement) -> None:
        self._network = network
        mean, spread = (np.array(numbers, np.float32) for numbers in (network.mean, network.spread))
        self._run = _by_torch(path, mean, spread, placement) if runtime == "torch" else _by_onnx(path, mean, spread)
        found = self(np.zeros((1, SIDE, SIDE, 3), np.uint8)).shape[1]
        if found != network.length:
            raise ValueError(f"{path.name} gives embeddings of length {found}, not {network.length}")

    def __call__(self, crops: Crops) -> Embeddings:
        """Embeddings of at least one crop."""
        raw = self._run(crops).astype(np.float32)
        lengths = np.linalg.norm(raw, axis=1, keepdims=True)
        return raw / np.maximum(lengths, np.finfo(np.float32).tiny)


def _by_onnx(
    path: Path, mean: NDArray[np.float32], spread: NDArray[np.float32]
) -> Callable[[Crops], NDArray[np.floating[Any]]]:
    """By onnxruntime on one thread, one by one: the files are exported so, and on one core a batch gains nothing."""
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    try:
        session = onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
    except Exception as error:  # its errors share no base of their own
        raise ValueError(f"onnxruntime cannot use {path.name}: {error}") from error
    name = session.get_inputs()[0].name

    def one(crop: NDArray[np.uint8]) -> Any:
        pixels = ((crop - mean) / spread).transpose(2, 0, 1)[None]
        return session.run(None, {name: np.ascontiguousarray(pixels)})[0].reshape(-1)

    return lambda crops: np.stack([one(crop) for crop in crops])


def _by_torch(
    path: Path, mean: NDArray[np.float32], spread: NDArray[np.float32], placement: Placement
) -> Callable[[Crops], NDArray[np.floating[Any]]]:
    """By torch in batches, channels last; pixels travel to the device as bytes and become numbers there."""
    import torch

    from stages.nets.onnx_graph import OnnxGraph

    dtype, device = dtype_of(placement, best="fp16"), placement.device
    net = ready(OnnxGraph(path), placement, dtype)
    shift, scale = (torch.from_numpy(numbers).to(device).view(1, 3, 1, 1) for numbers in (mean, spread))

    def batch(crops: Crops) -> NDArray[np.float32]:
        with torch.inference_mode():
            pixels = torch.from_numpy(crops).to(device).permute(0, 3, 1, 2)  # channels last as they lie
            return net(((pixels - shift) / scale).to(dtype)).flatten(1).float().cpu().numpy()

    return batch


def stacked(crops: Sequence[NDArray[np.uint8]]) -> Crops:
    """A sequence of crops as one array."""
    return np.stack(crops) if len(crops) else np.empty((0, SIDE, SIDE, 3), np.uint8)
