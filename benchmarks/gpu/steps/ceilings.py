"""The rate of each model alone, on its own terms: large batches on the GPU, weights in 16 bits, eager and compiled.

The networks and the timing loop are those of `framekiln bench`. SAM 2.1 is split into its encoder and its mask decoder
with 1,024 prompts, transformers' own, and LaMa keeps its Fourier units in fp32. cuDNN searches for the fastest
algorithms; networks of convolutions are also measured without that.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor, nn

from benchmarks.gpu.options import GpuOptions, Recorder, read_results
from benchmarks.gpu.stage_steps import measured
from framekiln.device import memory_gb
from framekiln.lab.measure.prepared import Prepared
from framekiln.lab.measure.timed import TimeLimits, timed
from framekiln.lab.models.factory import Factory
from framekiln.lab.models.registry import BenchModel, TorchModel, find_model
from framekiln.lab.output.cells import Cell
from framekiln.planning.manifest import read_pipeline
from framekiln_stages.nets.factories import lama as generator
from framekiln_stages.nets.factories import sam2
from framekiln_stages.nets.lama.network import cast
from framekiln_stages.nets.sam2.image import CHANNELS, MODELS, SIDE, build_image_model

Model = tuple[nn.Module, Callable[..., Any]]
PROMPTS = 1024  # of an image: the grid of 32 by 32 points
AREA = 512 * 512  # px of an image for LaMa
_CONVOLUTIONS = ("arcface", "lama")  # what their stages lose without cuDNN's search


class SamDecoder(nn.Module):
    """Prompts on one image, by transformers' own mask decoder."""

    def __init__(self) -> None:
        super().__init__()
        model = build_image_model(MODELS["sam2.1-hiera-tiny"], None)  # all sizes have the same decoder
        model.vision_encoder = nn.Identity()
        self.model = model

    def forward(self, fine: Tensor, middle: Tensor, coarse: Tensor, points: Tensor) -> Tensor:
        """Return logits for points (p 2, px) on the features of one image."""
        labels = torch.ones(1, len(points), 1, dtype=torch.long, device=points.device)
        prompts = {"input_points": points[None, :, None], "input_labels": labels}
        masks: Tensor = self.model(image_embeddings=[fine, middle, coarse], **prompts).pred_masks
        return masks


class HalfLama(nn.Module):
    """LaMa in fp16 with its Fourier units in fp32, however it is converted; in fp32 on the CPU."""

    def __init__(self, net: nn.Module) -> None:
        super().__init__()
        self.net = net

    def forward(self, images: Tensor) -> Tensor:
        """Return n 3 h w for n 4 h w."""
        half = images.half() if images.is_cuda else images
        result: Tensor = self.net(half)
        return result

    def _apply(self, fn: Any, recurse: bool = True) -> nn.Module:
        super()._apply(fn, recurse)  # type: ignore[no-untyped-call]
        if next(self.parameters()).is_cuda:
            cast(self.net, torch.float16)
        return self


def sam_encoder(name: str = "sam2.1-hiera-large") -> Model:
    """Return SAM 2.1's image encoder."""
    model, inputs = sam2(None, model=name)
    return model.get_submodule("vision_encoder"), lambda batch=1: inputs(batch=batch)["pixel_values"]


def sam_encoder_tiny() -> Model:
    """Return the smallest one."""
    return sam_encoder("sam2.1-hiera-tiny")


def sam_decoder() -> Model:
    """Return SAM 2.1's mask decoder; its batch is the number of prompts."""
    sides = (SIDE // 4, SIDE // 8, SIDE // 16)

    def inputs(batch: int = 1) -> tuple[Tensor, ...]:
        levels = [torch.randn(1, channels, side, side) for channels, side in zip(CHANNELS, sides, strict=True)]
        return (*levels, torch.rand(batch, 2) * SIDE)

    return SamDecoder(), inputs


def lama() -> Model:
    """Return LaMa's generator."""
    net, inputs = generator(None)
    return HalfLama(net), inputs


@dataclass(frozen=True, kw_only=True)
class Ceiling:
    """A model, and the batch at which its rate is level on an H200."""

    model: str  # of the registry, or a factory of this module
    batch: int
    precision: str
    items: float = 1.0  # of a row of the batch
    channels_last: bool = False
    size: int | None = None

    def recipe(self) -> BenchModel:
        """Return the model, with random weights."""
        if ":" not in self.model:
            return replace(find_model(self.model, read_pipeline(None)), factory=self._factory())
        return TorchModel(name=self.model, factory=Factory(use=self.model, settings={}), weights="random")

    def _factory(self) -> Factory:
        return replace(find_model(self.model, read_pipeline(None)).factory, weights=None)


_OWN = "benchmarks.gpu.steps.ceilings"
FULL = {
    "clip": Ceiling(model="clip-vit-l14", batch=256, precision="bf16"),
    "arcface": Ceiling(model="arcface-r50", batch=1024, precision="fp16", channels_last=True),
    "sam_encoder": Ceiling(model=f"{_OWN}:sam_encoder", batch=8, precision="bf16"),
    "sam_decoder": Ceiling(model=f"{_OWN}:sam_decoder", batch=256, precision="bf16", items=1 / PROMPTS),
    "lama": Ceiling(model=f"{_OWN}:lama", batch=16, precision="fp32", size=512),
    "lama, channels last": Ceiling(model=f"{_OWN}:lama", batch=16, precision="fp32", size=512, channels_last=True),
}
SMALL = {
    "clip": Ceiling(model="clip-vit-b32", batch=2, precision="fp32"),
    "arcface": Ceiling(model="mobilefacenet", batch=2, precision="fp32"),
    "sam_encoder": Ceiling(model=f"{_OWN}:sam_encoder_tiny", batch=1, precision="fp32"),
    "sam_decoder": Ceiling(model=f"{_OWN}:sam_decoder", batch=4, precision="fp32", items=1 / PROMPTS),
    "lama": Ceiling(model=f"{_OWN}:lama", batch=1, precision="fp32", size=64, items=64 * 64 / AREA),
}


@dataclass
class Alone:
    """One model in its process, eager or compiled."""

    ceiling: Ceiling
    device: str
    mode: str  # of torch.compile; "off" for none
    searched: bool  # whether cuDNN tries its algorithms for each shape, which stages do not let it
    seconds: float
    threads: int
    parts = ("",)

    def prepare(self) -> None:
        """Build it and call it once, which compiles it."""
        import torch

        torch.set_num_threads(self.threads)
        torch.backends.cudnn.benchmark = self.searched
        ceiling = self.ceiling
        axes: dict[str, Any] = {"channels_last": ceiling.channels_last, "size": ceiling.size}
        cell = Cell(batch=ceiling.batch, precision=ceiling.precision, compile=self.mode, **axes)
        self._model: Prepared = ceiling.recipe().prepare(cell, self.device)
        self._model.call()
        self._model.wait()

    def measure(self, _part: str) -> Mapping[str, Any]:
        """Return items a second, and the peak of allocated memory."""
        limits = TimeLimits(warmup=2, seconds=self.seconds)
        samples = timed(self._model.call, self._model.wait, limits)
        memory = memory_gb(self.device)
        rate = samples.rate(self.ceiling.batch) * self.ceiling.items
        return {"per_s": rate, "calls": samples.calls, "peak_gb": memory[2] if memory else None}


def measure(options: GpuOptions, record: Recorder) -> None:
    """Record each model's rate in images, faces or images of 1,024 prompts a second, eager and compiled."""
    ways = [("off", True), *([("default", True), ("default", False)] if options.compile else [])]
    held = {}
    for mode, searched in ways:  # compiled ones are set up last, as they take longest
        for name, ceiling in (SMALL if options.small else FULL).items():
            if searched or name in _CONVOLUTIONS:
                alone = Alone(ceiling, options.device, mode, searched, options.seconds, options.threads)
                held[f"{name}, {mode}, {searched}"] = alone
    for title, _, answer in measured(options.wanted(held), options.at_once):
        alone = held[title]
        case = {"model": title.split(", ")[0], "batch": alone.ceiling.batch, "compiled": alone.mode != "off"}
        case |= {"cudnn_benchmark": alone.searched, "channels_last": alone.ceiling.channels_last}
        record(**case, **answer)


def ceilings(options: GpuOptions) -> dict[str, float]:
    """Return the best rate by model from the step's results, with `segment`; empty where it did not run."""
    best: dict[str, float] = {}
    for line in read_results(options.folder, "ceilings"):
        if line.get("per_s"):
            best[line["model"]] = max(line["per_s"], best.get(line["model"], 0.0))
    if {"sam_encoder", "sam_decoder"} <= best.keys():
        best["segment"] = 1 / (1 / best["sam_encoder"] + 1 / best["sam_decoder"])
    return best
