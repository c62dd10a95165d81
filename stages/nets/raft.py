"""Dense optical flow by RAFT, the small network, written out: the library that has it drags torchvision in.

Teed and Deng, "RAFT: Recurrent All-Pairs Field Transforms for Optical Flow", ECCV 2020 (arXiv 2003.12039), table of the
small model in the appendix. Modules are named as in torchvision's state dict, so both published files load as they are.

    pixels -> features of both, context of the first -> correlation of all pairs, at 4 scales
           -> 12 times: look up the correlation round where the flow points, and correct the flow -> flow x 8

Shapes: n pairs, h height, w width (multiples of 8, at least 128), H = h/8, W = w/8; pictures n 3 h w from -1 to 1; flow
n 2 h w in px, x right and y down. Values are of the dtype of the weights, but what decides where a pixel lies
(correlations, places, flow) stays float32: at 500 px, bf16 knows places to 2 px.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import cast

import numpy as np
import torch
import torch.nn.functional as F  # noqa: N812 - its usual name
from numpy.typing import NDArray
from torch import Tensor, nn

from pipeline.columns import Image
from pipeline.device import Batches, Phase, dtype_of, ready, seeded, untimed, upload
from pipeline.stage import Placement

FEATURES, HIDDEN, CONTEXT, MOTION = 128, 96, 64, 82  # channels
AT_ONCE = 2**15  # places whose surroundings are looked up at once: cuDNN's sampler does not take 65,536 pictures
LEVELS, RADIUS, UPDATES = 4, 3, 12  # the paper's; 12 is what the published accuracies of the small network are at
SCALE = 8
LEAST = SCALE << LEVELS  # px: below it, the coarsest correlation would be one pixel wide


def _conv(
    inside: int, out: int, kernel: int, stride: int = 1, *, norm: bool = False, relu: bool = True
) -> nn.Sequential:
    layers: list[nn.Module] = [nn.Conv2d(inside, out, kernel, stride, kernel // 2)]
    layers += [nn.InstanceNorm2d(out)] if norm else []
    return nn.Sequential(*layers, *([nn.ReLU()] if relu else []))


class Bottleneck(nn.Module):
    """Three convolutions past which the input is led."""

    def __init__(self, inside: int, out: int, stride: int, *, norm: bool) -> None:
        super().__init__()
        self.convnormrelu1 = _conv(inside, out // 4, 1, norm=norm)
        self.convnormrelu2 = _conv(out // 4, out // 4, 3, stride, norm=norm)
        self.convnormrelu3 = _conv(out // 4, out, 1, norm=norm)
        self.downsample = _conv(inside, out, 1, stride, norm=norm, relu=False) if stride > 1 else nn.Identity()

    def forward(self, x: Tensor) -> Tensor:
        """Features n c H W to features."""
        y = self.convnormrelu3(self.convnormrelu2(self.convnormrelu1(x)))
        return F.relu(self.downsample(x) + y)


class Encoder(nn.Module):
    """Pictures n 3 h w to n `out` H W."""

    def __init__(self, out: int, *, norm: bool) -> None:
        super().__init__()
        self.convnormrelu = _conv(3, 32, 7, 2, norm=norm)
        self.layer1 = nn.Sequential(Bottleneck(32, 32, 1, norm=norm), Bottleneck(32, 32, 1, norm=norm))
        self.layer2 = nn.Sequential(Bottleneck(32, 64, 2, norm=norm), Bottleneck(64, 64, 1, norm=norm))
        self.layer3 = nn.Sequential(Bottleneck(64, 96, 2, norm=norm), Bottleneck(96, 96, 1, norm=norm))
        self.conv = nn.Conv2d(96, out, 1)

    def forward(self, x: Tensor) -> Tensor:
        """Features at an eighth of the size."""
        return cast(Tensor, self.conv(self.layer3(self.layer2(self.layer1(self.convnormrelu(x))))))


class MotionEncoder(nn.Module):
    """Correlations and flow to n `MOTION` H W, the last two of which are the flow."""

    def __init__(self) -> None:
        super().__init__()
        self.convcorr1 = _conv(LEVELS * (2 * RADIUS + 1) ** 2, 96, 1)
        self.convflow1 = _conv(2, 64, 7)
        self.convflow2 = _conv(64, 32, 3)
        self.conv = _conv(96 + 32, MOTION - 2, 3)

    def forward(self, correlation: Tensor, flow: Tensor) -> Tensor:
        """What the motion looks like."""
        both = torch.cat([self.convcorr1(correlation), self.convflow2(self.convflow1(flow))], 1)
        return torch.cat([self.conv(both), flow], 1)


class GRU(nn.Module):
    """A gated recurrent unit of convolutions."""

    def __init__(self) -> None:
        super().__init__()
        self.convz, self.convr, self.convq = (nn.Conv2d(HIDDEN + CONTEXT + MOTION, HIDDEN, 3, padding=1) for _ in "zrq")

    def forward(self, hidden: Tensor, x: Tensor) -> Tensor:
        """The next hidden state."""
        both = torch.cat([hidden, x], 1)
        update, reset = torch.sigmoid(self.convz(both)), torch.sigmoid(self.convr(both))
        return (1 - update) * hidden + update * torch.tanh(self.convq(torch.cat([reset * hidden, x], 1)))


class FlowHead(nn.Module):
    """The hidden state to a correction of the flow."""

    def __init__(self) -> None:
        super().__init__()
        self.conv1, self.conv2 = nn.Conv2d(HIDDEN, 128, 3, padding=1), nn.Conv2d(128, 2, 3, padding=1)

    def forward(self, hidden: Tensor) -> Tensor:
        """By how much the flow changes, n 2 H W, in features."""
        return cast(Tensor, self.conv2(F.relu(self.conv1(hidden))))


class UpdateBlock(nn.Module):
    """One correction: the next hidden state, and by how much the flow changes."""

    def __init__(self) -> None:
        super().__init__()
        self.motion_encoder = MotionEncoder()
        self.recurrent_block = nn.ModuleDict({"convgru1": GRU()})
        self.flow_head = FlowHead()

    def forward(self, hidden: Tensor, context: Tensor, correlation: Tensor, flow: Tensor) -> tuple[Tensor, Tensor]:
        """The next hidden state, and the change of the flow."""
        x = torch.cat([context, self.motion_encoder(correlation, flow)], 1)
        hidden = self.recurrent_block["convgru1"](hidden, x)
        return hidden, self.flow_head(hidden)


class Raft(nn.Module):
    """The small network: 990,162 parameters."""

    def __init__(self) -> None:
        super().__init__()
        self.feature_encoder = Encoder(FEATURES, norm=True)
        self.context_encoder = Encoder(HIDDEN + CONTEXT, norm=False)
        self.update_block = UpdateBlock()

    def forward(self, now: Tensor, then: Tensor) -> Tensor:
        """The flow (float32 n 2 h w) from one picture to the other."""
        dtype = now.dtype
        pyramid = correlations(*self.feature_encoder(torch.cat([now, then])).float().chunk(2))
        hidden, context = self.context_encoder(now).split([HIDDEN, CONTEXT], 1)
        hidden, context = torch.tanh(hidden), F.relu(context)
        start = places(hidden.shape[2], hidden.shape[3], now.device)
        flow = torch.zeros((len(now), 2, *hidden.shape[2:]), device=now.device)
        for _ in range(UPDATES):
            found = look_up(pyramid, start + flow)
            hidden, change = self.update_block(hidden, context, found.to(dtype), flow.to(dtype))
            flow = flow + change.float()
        return SCALE * F.interpolate(flow, scale_factor=SCALE, mode="bilinear", align_corners=True)


def correlations(now: Tensor, then: Tensor) -> list[Tensor]:
    """Products of all features with all others (n C H W each): nHW 1 H W, and halved three times.

    Divided by the square root of the number of channels, equation 1 of the paper.
    """
    count, channels, height, width = now.shape
    products = torch.einsum("ncp,nchw->nphw", now.flatten(2), then) / channels**0.5
    pyramid = [products.reshape(count * height * width, 1, height, width)]
    for _ in range(LEVELS - 1):
        pyramid.append(F.avg_pool2d(pyramid[-1], 2))
    return pyramid


def look_up(pyramid: list[Tensor], at: Tensor) -> Tensor:
    """Correlations round places (n 2 H W, in features): n 196 H W, coarser scales last, in each x before y."""
    count, _, height, width = at.shape
    steps = torch.arange(-RADIUS, RADIUS + 1, device=at.device, dtype=at.dtype)
    window = torch.stack(torch.meshgrid(steps, steps, indexing="ij"), -1)
    centre = at.permute(0, 2, 3, 1).reshape(-1, 1, 1, 2)
    found = []
    for level, values in enumerate(pyramid):
        last = torch.tensor([values.shape[3] - 1, values.shape[2] - 1], device=at.device, dtype=at.dtype)
        grid = 2 * (centre / 2**level + window) / last - 1
        parts = zip(torch.split(values, AT_ONCE), torch.split(grid, AT_ONCE), strict=True)
        looked = torch.cat([F.grid_sample(*part, align_corners=True) for part in parts])
        found.append(looked.reshape(count, height, width, -1))
    return torch.cat(found, -1).permute(0, 3, 1, 2).contiguous()


def places(height: int, width: int, device: torch.device) -> Tensor:
    """Where each feature lies: 1 2 H W, x and y."""
    y, x = torch.meshgrid(*(torch.arange(side, device=device) for side in (height, width)), indexing="ij")
    return torch.stack([x, y])[None].float()


def load(path: Path | None) -> Raft:
    """The network with a file's weights, or with seeded random ones.

    Raises:
        ValueError: the file does not hold these weights.
    """
    if path is None:
        with seeded():
            return Raft().eval()
    with torch.device("meta"):
        net = Raft()
    try:
        net.load_state_dict(torch.load(path, map_location="cpu", weights_only=True), assign=True)
    except (RuntimeError, TypeError) as error:
        raise ValueError(f"{path.name} is not RAFT small: {' '.join(str(error).split())[:200]}") from error
    return net.eval()


def padded(pixels: Tensor) -> tuple[Tensor, tuple[int, int]]:
    """Pictures (n c h w) continued by their edges to sides the network takes, alike on both ends; and by how much
    at the top and on the left."""
    height, width = pixels.shape[2:]
    down, right = (max(LEAST, -(-side // SCALE) * SCALE) - side for side in (height, width))
    more = (right // 2, right - right // 2, down // 2, down - down // 2)
    return (F.pad(pixels, more, mode="replicate") if down or right else pixels), (down // 2, right // 2)


class Flows:
    """Flow between pictures. On the CPU pairs go one by one: more at once gain nothing there, and change rounding.

    Args:
        path: the file of weights; None for seeded random ones.
        placement: device and arithmetic. fp16 where it is `mixed` on a GPU: see docs/log.md.
        rows: pairs of a compiled call.

    Raises:
        ValueError: the file does not hold these weights.
    """

    def __init__(self, path: Path | None, placement: Placement, rows: int, phase: Phase = untimed) -> None:
        self._phase = phase
        self._placement, self._dtype = placement, dtype_of(placement, best="fp16")
        self._net = ready(load(path), placement, self._dtype)
        self._batches = Batches(self._flow, placement, rows)
        self._at_once = 1 if placement.device == "cpu" else rows

    def __call__(self, now: Sequence[Image], then: Sequence[Image]) -> NDArray[np.float32]:
        """Flow (n h w 2, px) from pictures (h w 3 each, of one size) to others."""
        device, pin = self._placement.device, self._placement.pin_memory
        found = []
        for start in range(0, len(now), self._at_once):
            part = slice(start, start + self._at_once)
            with torch.inference_mode():
                with self._phase("upload"):
                    pixels = [upload(images[part], device, pin=pin) for images in (now, then)]
                made = self._batches(*pixels)
                with self._phase("download"):
                    found.append(made.cpu().numpy())
        return np.concatenate(found)

    def ceiling(self, rows: int, side: int) -> Callable[[], object]:
        """The network on so many pairs of noise, 16:9 with this short side, that lie on the device."""
        shape = (rows, side, -(-side * 16 // 9), 3)
        pair = [torch.randint(256, shape, dtype=torch.uint8, device=self._placement.device) for _ in "ab"]

        def call() -> Tensor:
            with torch.inference_mode():
                return self._batches(*pair)

        return call

    def _flow(self, now: Tensor, then: Tensor) -> Tensor:
        height, width = now.shape[1:3]
        (one, (top, left)), (other, _) = (padded(self._values(pixels)) for pixels in (now, then))
        flow: Tensor = self._net(one.to(self._dtype), other.to(self._dtype))
        return flow[:, :, top : top + height, left : left + width].permute(0, 2, 3, 1).contiguous()

    @staticmethod
    def _values(pixels: Tensor) -> Tensor:
        return pixels.permute(0, 3, 1, 2).float() / 127.5 - 1
