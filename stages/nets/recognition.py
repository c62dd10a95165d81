"""Faces as directions: networks whose embeddings of one person lie close together, whoever published them.

All were trained with a margin loss of the ArcFace family on the same alignment, so that they differ here in a file, a
length and how pixels become numbers.

Shapes: n aligned crops uint8 n 112 112 3 RGB; embeddings float32 n d of length 1.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from pipeline.device import Batches, Phase, dtype_of, ready, seeded, untimed, upload
from pipeline.stage import Placement
from stages.nets.align import SIDE

if TYPE_CHECKING:
    from torch import Tensor, nn

Crops = NDArray[np.uint8]  # n 112 112 3
Embeddings = NDArray[np.float32]  # n d
ROWS = 64  # crops at a time: 3,396 faces/s of IResNet-50 on an H200 in fp32, 4,750 at 1,024; 1.9 against 19.5 GB


@dataclass(frozen=True, kw_only=True)
class Network:
    """What is known of one file."""

    weights: str  # its name in the weights lockfile
    length: int  # of an embedding
    mean: tuple[float, float, float] = (127.5, 127.5, 127.5)  # of the colours, 0 to 255
    spread: tuple[float, float, float] = (127.5, 127.5, 127.5)
    blocks: tuple[int, ...] | None = None  # of an IResNet's stages; empty for MobileFaceNet, None where nobody says


NETWORKS = {
    "mobilefacenet": Network(  # foamliu/MobileFaceNet, data_gen.py: ImageNet's mean and deviation
        weights="mobilefacenet", length=128, mean=(123.675, 116.28, 103.53), spread=(58.395, 57.12, 57.375), blocks=()
    ),
    # insightface, model_zoo/arcface_onnx.py, and recognition/arcface_torch/backbones/iresnet.py for the blocks
    "arcface-r50": Network(weights="arcface_w600k_r50", length=512, blocks=(3, 4, 14, 3)),
    "auraface": Network(weights="auraface", length=512, blocks=(3, 13, 30, 3)),  # the same reader, by its model card
    # FaceRecognizerSF::feature
    "sface": Network(weights="sface_2021dec", length=128, mean=(0, 0, 0), spread=(1, 1, 1)),
}
"""By the name that a pipeline file uses."""


class Recogniser:
    """One network on one device.

    Args:
        network: which.
        path: its ONNX file; None for seeded random weights, which torch runs.
        runtime: "onnxruntime" (CPU, one crop at a time) or "torch".
        placement: torch's device and arithmetic.
        rows: crops of a call that is compiled.
        phase: counts the time of a block: upload, infer and download.

    Raises:
        ValueError: the file is no graph that is covered, or its embeddings have another length; or the network cannot
            be built without its file.
    """

    def __init__(
        self,
        network: Network,
        path: Path | None,
        *,
        runtime: str,
        placement: Placement,
        rows: int = ROWS,
        phase: Phase = untimed,
    ) -> None:
        mean, spread = (np.array(numbers, np.float32) for numbers in (network.mean, network.spread))
        if path is not None and runtime != "torch":
            self._run = _by_onnx(path, mean, spread, phase)
        else:
            self._run = _by_torch(_module(network, path), mean, spread, placement, rows, phase)
        found = self(np.zeros((1, SIDE, SIDE, 3), np.uint8)).shape[1]  # compiles, where that is asked for
        if found != network.length:
            name = path.name if path else network.weights
            raise ValueError(f"{name} gives embeddings of length {found}, not {network.length}")

    def __call__(self, crops: Crops) -> Embeddings:
        """Embeddings of at least one crop."""
        raw = self._run(crops).astype(np.float32)
        lengths = np.linalg.norm(raw, axis=1, keepdims=True)
        return raw / np.maximum(lengths, np.finfo(np.float32).tiny)


def _by_onnx(
    path: Path, mean: NDArray[np.float32], spread: NDArray[np.float32], phase: Phase
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

    def batch(crops: Crops) -> NDArray[np.floating[Any]]:
        with phase("infer"):
            return np.stack([one(crop) for crop in crops])

    return batch


def _by_torch(
    module: nn.Module,
    mean: NDArray[np.float32],
    spread: NDArray[np.float32],
    placement: Placement,
    rows: int,
    phase: Phase,
) -> Callable[[Crops], NDArray[np.floating[Any]]]:
    """By torch in batches; pixels travel to the device as bytes and become numbers there."""
    import torch

    dtype, device = dtype_of(placement, best="fp16"), placement.device
    net = ready(module, placement, dtype)
    shift, scale = (torch.from_numpy(numbers).to(device).view(1, 3, 1, 1) for numbers in (mean, spread))

    def embed(levels: Tensor) -> Tensor:
        pixels = ((levels.permute(0, 3, 1, 2) - shift) / scale).to(dtype)  # channels last as they lie
        embeddings: Tensor = net(pixels if placement.channels_last else pixels.contiguous()).flatten(1).float()
        return embeddings

    run = Batches(embed, placement, rows)

    def batch(crops: Crops) -> NDArray[np.float32]:
        with torch.inference_mode():
            with phase("upload"):
                levels = upload(list(crops), device, pin=placement.pin_memory)
            with phase("infer"):
                embeddings = run(levels)
            with phase("download"):
                return embeddings.cpu().numpy()

    return batch


def _module(network: Network, path: Path | None) -> nn.Module:
    """The network of a file, or one of the same architecture with seeded random weights."""
    from stages.nets.iresnet import IResNet, MobileFaceNet

    if path is not None:
        from stages.nets.onnx_graph import OnnxGraph

        return OnnxGraph(path)
    if network.blocks is None:
        raise ValueError(f"no architecture of {network.weights} is known, so it has no random weights: choose another")
    with seeded():
        return IResNet(network.blocks, network.length) if network.blocks else MobileFaceNet(network.length)


def stacked(crops: Sequence[NDArray[np.uint8]]) -> Crops:
    """A sequence of crops as one array."""
    return np.stack(crops) if len(crops) else np.empty((0, SIDE, SIDE, 3), np.uint8)
