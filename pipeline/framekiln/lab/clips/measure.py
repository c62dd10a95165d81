"""Clips through a model, by phase: a row for each format and scenario, with and without buffer pools.

Pixels are uploaded as decoded, then resized and normalised on the device. Each phase ends with a wait, so that nothing
overlaps. With buffer pools each array (staging, pixels, levels, outputs) is made once and reused.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import product
from pathlib import Path
from statistics import fmean
from typing import Any

import numpy as np

from framekiln.contract.columns import Image
from framekiln.contract.phases import PhaseClock
from framekiln.device import torch
from framekiln.lab.clips.formats import BenchClip, Load, Scenario
from framekiln.lab.measure.precision import UnsupportedError
from framekiln.lab.measure.prepared import Prepared
from framekiln.lab.models.factory import attempt, tensors_in
from framekiln.lab.models.registry import BenchModel
from framekiln.lab.output.cells import Cell
from framekiln.media.video.encoder import VideoEncoder
from framekiln.planning.sample import SampleOutcome, Statistics

PHASES = ("decode", "upload", "preprocess", "infer", "download", "postprocess", "encode")
MEAN, STD = 0.45, 0.225  # mean and deviation of all channels, in fractions of 255: ImageNet's averages
_LEAST_MAP = 8  # px: a smaller output is no map of the image
_HALF_TINT = np.array((20, 100, 45), np.uint8)  # half of a green, added to half of the frame


@dataclass(kw_only=True)
class FrameCall:
    """A prepared model called on frames; each eye of a frame is an item of the batch."""

    prepared: Prepared
    eyes: int = 1
    pooled: bool = True  # whether arrays are kept from batch to batch
    clock: PhaseClock = field(default_factory=PhaseClock)

    def __post_init__(self) -> None:
        found = [one for one in tensors_in(self.prepared.inputs) if one.dim() == 4 and one.shape[1] == 3]
        if not found:
            raise UnsupportedError("its inputs are no images (batch 3 height width), so frames of a clip do not fit")
        self._input, self._kept = found[0], dict[str, torch.Tensor]()

    def _take(self, name: str, shape: Sequence[int], dtype: torch.dtype, device: str, *, pin: bool = False) -> Any:
        """Return a tensor with undefined values."""
        kept = self._kept.get(name) if self.pooled else None
        if kept is None or tuple(kept.shape) != tuple(shape):
            kept = torch.empty(tuple(shape), dtype=dtype, device=device, pin_memory=pin and self.pooled)
            self._kept[name] = kept
        return kept

    @contextmanager
    def phase(self, name: str) -> Iterator[None]:
        """Time a phase until the device is idle."""
        self.clock.begin()
        try:
            yield
            self.prepared.wait()
        finally:
            self.clock.end(name)

    def __call__(self, frames: Sequence[Image]) -> list[Image]:
        """Return frames (h w 3) overlaid with the model's map of the image, if it has one."""
        with torch.inference_mode():
            with self.phase("upload"):
                pixels = self._upload(frames)
            with self.phase("preprocess"):
                self._preprocess(pixels)
            with self.phase("infer"):
                outputs = self.prepared.call()
            with self.phase("download"):
                arrays = []
                for i, tensor in enumerate(tensors_in(outputs)):
                    pin = tensor.device.type != "cpu"
                    kept = self._take(f"output {i}", tensor.shape, tensor.dtype, "cpu", pin=pin)
                    arrays.append(kept.copy_(tensor, non_blocking=True))
            with self.phase("postprocess"):
                area = next((array for array in arrays if _is_map(array, self._input)), None)
                if area is None:
                    return list(frames)
                maps = area.float().flatten(1, -3).mean(1) if area.dim() > 3 else area.float()
                return [self._draw(frame, maps[i * self.eyes : (i + 1) * self.eyes]) for i, frame in enumerate(frames)]

    def _upload(self, frames: Sequence[Image]) -> torch.Tensor:
        shape, device = (len(frames), *frames[0].shape), self.prepared.device
        staging = self._take("staging", shape, torch.uint8, "cpu", pin=device != "cpu")
        np.stack(frames, out=staging.numpy())
        if device == "cpu":
            return staging
        return self._take("pixels", shape, torch.uint8, device).copy_(staging, non_blocking=True)

    def _preprocess(self, pixels: torch.Tensor) -> None:
        """Write the eyes of frames (n h w 3) into the model's input; further items keep their content."""
        from torch.nn.functional import interpolate

        count, height, width, _ = pixels.shape
        views = pixels.view(count, height, self.eyes, width // self.eyes, 3).transpose(1, 2).flatten(0, 1)
        shape = len(views), 3, height, width // self.eyes
        levels = self._take("levels", shape, torch.float32, self.prepared.device)
        levels.copy_(views.permute(0, 3, 1, 2))
        small = interpolate(levels, self._input.shape[2:], mode="bilinear")
        self._input[: len(small)].copy_(small.div_(255).sub_(MEAN).div_(STD))

    def _draw(self, frame: Image, maps: torch.Tensor) -> Image:
        """Tint the half of a frame where each eye's map is above 0, the threshold of masks."""
        from torch.nn.functional import interpolate

        height, width = frame.shape[0], frame.shape[1] // self.eyes
        inside = interpolate(maps[:, None], (height, width), mode="nearest")[:, 0].numpy() > 0
        result = frame.copy()
        tinted = (frame >> 1) + _HALF_TINT  # whole arrays: picking pixels takes several times as long
        for eye, mask in enumerate(inside):
            place = np.s_[:, eye * width : (eye + 1) * width]
            np.copyto(result[place], tinted[place], where=mask[..., None])
        return result


def _is_map(array: torch.Tensor, images: torch.Tensor) -> bool:
    """Return whether an output has a value for each place of an image: its sides have the image's proportions."""
    if array.dim() < 3 or len(array) != len(images) or not array.is_floating_point():
        return False
    (rows, columns), (height, width) = array.shape[-2:], images.shape[-2:]
    return min(rows, columns) >= _LEAST_MAP and rows * width == columns * height


_WARM_UP = 2  # batches: they load kernels, and fill the buffer pools


@dataclass(frozen=True, kw_only=True)
class ClipSettings:
    """Settings of the measurement of clips."""

    scenarios: Sequence[Scenario] = ("single",)
    pools: Sequence[bool] = (True,)
    load: Load = field(default_factory=Load)
    cell: Cell = field(default_factory=Cell)  # size, precision and compilation of the model; the batch is set later
    device: str = "cpu"


@dataclass(frozen=True, kw_only=True)
class ClipRow:
    """One clip in one scenario."""

    model: str
    weights: str
    device: str
    clip: str
    height: int  # px
    width: int
    eyes: int
    scenario: Scenario
    pools: bool
    cell: Cell  # how the model was called
    outcome: SampleOutcome
    why: str = ""
    frames: int = 0
    batch: float | None = None  # mean frames of a batch
    latency_ms: Statistics | None = None  # time of a frame, from its arrival until it is encoded
    fps: float | None = None  # over the whole measurement
    phases_ms: Mapping[str, float] = field(default_factory=dict)  # means of a frame
    shares: Mapping[str, float] = field(default_factory=dict)  # shares of the phases' sum


def measure_clips(model: BenchModel, clips: Sequence[BenchClip], settings: ClipSettings) -> Iterator[ClipRow]:
    """Yield the rows of a model; failures are rows with the reason."""
    for clip, scenario, pooled in product(clips, settings.scenarios, settings.pools):
        item, frames = clip.format, 1 if scenario == "single" else settings.load.batch
        row = ClipRow(
            model=model.name,
            weights=model.weights,
            device=settings.device,
            clip=item.name,
            height=item.height,
            width=item.width,
            eyes=item.eyes,
            scenario=scenario,
            pools=pooled,
            cell=replace(settings.cell, batch=frames * item.eyes),
            outcome="ok",
        )
        yield attempt(row, partial(_measure, row, model, clip, settings.load))


def _measure(row: ClipRow, model: BenchModel, clip: BenchClip, load: Load) -> ClipRow:
    size = row.cell.batch // row.eyes
    prepared = model.prepare(row.cell, row.device)
    call = FrameCall(prepared=prepared, eyes=row.eyes, pooled=row.pools)
    streams = [clip.images() for _ in range(size if row.scenario == "multi" else 1)]  # each stream has its own
    height, width = row.height // 2 * 2, row.width // 2 * 2  # even sides, as the encoder needs
    with (
        tempfile.TemporaryDirectory() as name,
        VideoEncoder(Path(name) / "out.mp4", (height, width), clip.format.fps) as encoder,
    ):

        def handle(count: int) -> None:
            with call.phase("decode"):
                frames = [next(streams[i % len(streams)]) for i in range(count)]
            drawn = call(frames)
            with call.phase("encode"):
                for frame in drawn:
                    encoder.add(frame[:height, :width])

        for _ in range(_WARM_UP):
            handle(size)
        call.clock.take()
        done = replace(load, scenario=row.scenario).serve(handle)
        found = call.clock.take()
    phases_s = {name: found[name] for name in PHASES if name in found}
    whole = sum(phases_s.values())
    taken = [seconds for batch in done for seconds in batch.latencies]
    frames, span = len(taken), done[-1].end - min(done[0].arrivals)
    return replace(
        row,
        frames=frames,
        batch=fmean(len(batch.arrivals) for batch in done),
        latency_ms=Statistics.of(taken),
        fps=frames / span if span else None,
        phases_ms={name: 1000 * seconds / frames for name, seconds in phases_s.items()},
        shares={name: seconds / whole for name, seconds in phases_s.items() if whole},
    )
