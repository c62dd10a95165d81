"""Face recognition networks: embeddings of one person lie close together by cosine.

All were trained with a margin loss of the ArcFace family on the same alignment. They differ in their file, the length
of an embedding, and the normalization of pixels.

Shapes: n aligned crops uint8 n 112 112 3 RGB; embeddings float32 n d of length 1.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from framekiln.contract import Placement
from framekiln.device import Batches, Phase, dtype_of, ready, seeded, torch, untimed, upload
from framekiln_stages.faces.alignment import SIDE
from framekiln_stages.nets.checkpoints import open_session

Crops = NDArray[np.uint8]  # n 112 112 3
Embeddings = NDArray[np.float32]  # n d
Run = Callable[[Crops], NDArray[np.floating]]
FACE_MB = 4.9  # MB of a call, for each crop, in fp16
ROWS = 64  # crops per call: 3,396 faces/s of IResNet-50 on an H200 in fp32, 4,750 at 1,024; 1.9 against 19.5 GB


@dataclass(frozen=True, kw_only=True)
class PublishedNetwork:
    """A published file."""

    weights: str  # entry in the weights lockfile
    length: int  # length of an embedding
    mean: tuple[float, float, float] = (127.5, 127.5, 127.5)  # mean of levels 0 to 255
    spread: tuple[float, float, float] = (127.5, 127.5, 127.5)
    weights_mb: float = 0.0  # in fp16; 0: not counted
    blocks: tuple[int, ...] | None = None  # blocks in each stage of an IResNet; empty: MobileFaceNet, None: unpublished

    @property
    def normalization(self) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
        """Mean and deviation of each channel."""
        return np.array(self.mean, np.float32), np.array(self.spread, np.float32)


NETWORKS = {
    "mobilefacenet": PublishedNetwork(  # foamliu/MobileFaceNet, data_gen.py: ImageNet's mean and deviation
        weights="mobilefacenet",
        length=128,
        weights_mb=2.0,
        mean=(123.675, 116.28, 103.53),
        spread=(58.395, 57.12, 57.375),
        blocks=(),
    ),
    # insightface, model_zoo/arcface_onnx.py, and recognition/arcface_torch/backbones/iresnet.py for the blocks
    "arcface-r50": PublishedNetwork(weights="arcface_w600k_r50", length=512, weights_mb=87.2, blocks=(3, 4, 14, 3)),
    # the same reader, by its model card
    "auraface": PublishedNetwork(weights="auraface", length=512, weights_mb=130.3, blocks=(3, 13, 30, 3)),
    # FaceRecognizerSF::feature
    "sface": PublishedNetwork(weights="sface_2021dec", length=128, mean=(0, 0, 0), spread=(1, 1, 1)),
}
"""Networks by their names in a pipeline file. Thresholds of `identities` were measured with mobilefacenet only."""


class Recognizer:
    """One network on one device.

    Args:
        network: its published file.
        path: the ONNX file; None for seeded random weights in torch.
        runtime: "onnxruntime" (CPU, one crop at a time) or "torch".
        placement: torch's device and arithmetic.
        rows: crops of a compiled call.
        phase: counts the time of a block: upload, infer and download.

    Raises:
        ValueError: the file's graph is not supported, its embeddings have another length, or the network cannot be
            built without its file.
    """

    def __init__(
        self,
        network: PublishedNetwork,
        path: Path | None,
        *,
        runtime: str,
        placement: Placement,
        rows: int = ROWS,
        phase: Phase = untimed,
    ) -> None:
        self.length = network.length
        self._net = None
        if path is not None and runtime != "torch":
            self._run = _make_onnx_runner(network, path, phase)
        else:
            self._net = _TorchNetwork(network, path, placement, rows, phase)
            self._run = self._net
        length = self(np.zeros((1, SIDE, SIDE, 3), np.uint8)).shape[1]
        if length != network.length:
            name = path.name if path else network.weights
            raise ValueError(f"{name} gives embeddings of length {length}, not {network.length}")

    def __call__(self, crops: Crops) -> Embeddings:
        return self.normalized(self.outputs(crops))

    def outputs(self, crops: Crops) -> NDArray[np.floating]:
        """Return the network's output for one or more crops, n d."""
        return self._run(crops)

    def raw(self, crops: torch.Tensor) -> torch.Tensor:
        """Return the network's output for crops on its device, n d float32, on the device; torch only."""
        assert self._net is not None
        return self._net.on_device(crops)

    @staticmethod
    def normalized(raw: NDArray[np.floating]) -> Embeddings:
        raw = raw.astype(np.float32)
        lengths = np.linalg.norm(raw, axis=1, keepdims=True)
        return raw / np.maximum(lengths, np.finfo(np.float32).tiny)


def _make_onnx_runner(network: PublishedNetwork, path: Path, phase: Phase) -> Run:
    """Run by onnxruntime on one thread, one crop a call: exports allow no more, and one core would gain nothing."""
    session = open_session(path)
    name, (mean, spread) = session.get_inputs()[0].name, network.normalization

    def embed(crop: NDArray[np.uint8]) -> Any:
        pixels = ((crop - mean) / spread).transpose(2, 0, 1)[None]
        return session.run(None, {name: np.ascontiguousarray(pixels)})[0].reshape(-1)

    def run(crops: Crops) -> NDArray[np.floating]:
        with phase("infer"):
            return np.stack([embed(crop) for crop in crops])

    return run


class _TorchNetwork:
    """Runs in torch, in batches; pixels are uploaded as bytes and normalized on the device."""

    def __init__(
        self, network: PublishedNetwork, path: Path | None, placement: Placement, rows: int, phase: Phase
    ) -> None:
        self._placement, self._phase, self._dtype = placement, phase, dtype_of(placement, best="fp16")
        self._net = ready(_build_module(network, path), placement, self._dtype)
        shift, scale = (torch.from_numpy(numbers).to(placement.device) for numbers in network.normalization)
        self._shift, self._scale = shift.view(1, 3, 1, 1), scale.view(1, 3, 1, 1)
        self._batches = Batches(self._embed, placement, rows)
        self._batches.warm_up(torch.zeros(1, SIDE, SIDE, 3, dtype=torch.uint8, device=placement.device))

    def __call__(self, crops: Crops) -> NDArray[np.float32]:
        with self._phase("upload"):
            levels = upload(list(crops), self._placement.device, pin=self._placement.pin_memory)
        with self._phase("infer"):
            embeddings = self.on_device(levels)
        with self._phase("download"):
            return embeddings.cpu().numpy()

    def on_device(self, levels: torch.Tensor) -> torch.Tensor:
        with torch.inference_mode():
            return self._batches(levels)

    def _embed(self, levels: torch.Tensor) -> torch.Tensor:
        pixels = ((levels.permute(0, 3, 1, 2) - self._shift) / self._scale).to(self._dtype)  # channels last
        embeddings: torch.Tensor = self._net(pixels if self._placement.channels_last else pixels.contiguous())
        return embeddings.flatten(1).float()


def _build_module(network: PublishedNetwork, path: Path | None) -> torch.nn.Module:
    """Build the network of a file, or one of the same architecture with seeded random weights."""
    from framekiln_stages.nets.faces.iresnet import IResNet, MobileFaceNet

    if path is not None:
        from framekiln_stages.nets.faces.onnx_module import OnnxGraph

        return OnnxGraph(path)
    if network.blocks is None:
        raise ValueError(f"{network.weights} has no random weights, as its architecture is unpublished: choose another")
    with seeded():
        return IResNet(network.blocks, network.length) if network.blocks else MobileFaceNet(network.length)
