"""Dense optical flow by the small RAFT network, without a dependency on torchvision.

Teed and Deng, "RAFT: Recurrent All-Pairs Field Transforms for Optical Flow", ECCV 2020 (arXiv 2003.12039), table of the
small model in the appendix. Modules are named as in torchvision's state dict, so both published files load as they are.

    pixels -> features of both, context of the first -> correlation of all pairs, at 4 scales
           -> 12 times: look up the correlation round where the flow points, and correct the flow -> flow x 8

Shapes: n pairs, h height, w width (multiples of 8, at least 128), H = h/8, W = w/8; images n 3 h w from -1 to 1; flow
n 2 h w in px, x right and y down. Values have the dtype of the weights. Correlations, places and flow stay float32,
since they decide where a pixel lies: at 500 px, bf16 resolves 2 px.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import cast

import numpy as np
import torch
import torch.nn.functional as F  # noqa: N812 - its usual name
from numpy.typing import NDArray
from torch import Tensor, nn

from framekiln.contract import Image, Placement
from framekiln.device import Batches, Phase, dtype_of, ready, seeded, untimed, upload
from framekiln_stages.nets.checkpoints import assign_state

FEATURES, HIDDEN, CONTEXT, MOTION = 128, 96, 64, 82  # channels
AT_ONCE = 2**15  # places sampled in one call: cuDNN's sampler rejects 65,536 images
LEVELS, RADIUS, UPDATES = 4, 3, 12  # the paper's; its accuracies of the small network are for 12 updates
SCALE = 8
LEAST = SCALE << LEVELS  # px: below it, the coarsest correlation would be one pixel wide


def _make_conv(
    inside: int, out: int, kernel: int, stride: int = 1, *, norm: bool = False, relu: bool = True
) -> nn.Sequential:
    layers: list[nn.Module] = [nn.Conv2d(inside, out, kernel, stride, kernel // 2)]
    layers += [nn.InstanceNorm2d(out)] if norm else []
    return nn.Sequential(*layers, *([nn.ReLU()] if relu else []))


class BottleneckBlock(nn.Module):
    """Three convolutions with a residual connection."""

    def __init__(self, inside: int, out: int, stride: int, *, norm: bool) -> None:
        super().__init__()
        self.convnormrelu1 = _make_conv(inside, out // 4, 1, norm=norm)
        self.convnormrelu2 = _make_conv(out // 4, out // 4, 3, stride, norm=norm)
        self.convnormrelu3 = _make_conv(out // 4, out, 1, norm=norm)
        self.downsample = _make_conv(inside, out, 1, stride, norm=norm, relu=False) if stride > 1 else nn.Identity()

    def forward(self, x: Tensor) -> Tensor:
        y = self.convnormrelu3(self.convnormrelu2(self.convnormrelu1(x)))
        return F.relu(self.downsample(x) + y)


class Encoder(nn.Module):
    """Encoder of images n 3 h w to features n `out` H W."""

    def __init__(self, out: int, *, norm: bool) -> None:
        super().__init__()
        self.convnormrelu = _make_conv(3, 32, 7, 2, norm=norm)
        self.layer1 = nn.Sequential(BottleneckBlock(32, 32, 1, norm=norm), BottleneckBlock(32, 32, 1, norm=norm))
        self.layer2 = nn.Sequential(BottleneckBlock(32, 64, 2, norm=norm), BottleneckBlock(64, 64, 1, norm=norm))
        self.layer3 = nn.Sequential(BottleneckBlock(64, 96, 2, norm=norm), BottleneckBlock(96, 96, 1, norm=norm))
        self.conv = nn.Conv2d(96, out, 1)

    def forward(self, x: Tensor) -> Tensor:
        """Return features at an eighth of the size."""
        return cast(Tensor, self.conv(self.layer3(self.layer2(self.layer1(self.convnormrelu(x))))))


class MotionEncoder(nn.Module):
    """Encoder of correlations and flow to n `MOTION` H W; the last two channels are the flow."""

    def __init__(self) -> None:
        super().__init__()
        self.convcorr1 = _make_conv(LEVELS * (2 * RADIUS + 1) ** 2, 96, 1)
        self.convflow1 = _make_conv(2, 64, 7)
        self.convflow2 = _make_conv(64, 32, 3)
        self.conv = _make_conv(96 + 32, MOTION - 2, 3)

    def forward(self, correlation: Tensor, flow: Tensor) -> Tensor:
        both = torch.cat([self.convcorr1(correlation), self.convflow2(self.convflow1(flow))], 1)
        return torch.cat([self.conv(both), flow], 1)


class GRU(nn.Module):
    """A convolutional gated recurrent unit."""

    def __init__(self) -> None:
        super().__init__()
        self.convz, self.convr, self.convq = (nn.Conv2d(HIDDEN + CONTEXT + MOTION, HIDDEN, 3, padding=1) for _ in "zrq")

    def forward(self, hidden: Tensor, x: Tensor) -> Tensor:
        both = torch.cat([hidden, x], 1)
        update, reset = torch.sigmoid(self.convz(both)), torch.sigmoid(self.convr(both))
        return (1 - update) * hidden + update * torch.tanh(self.convq(torch.cat([reset * hidden, x], 1)))


class FlowHead(nn.Module):
    """Head that maps the hidden state to a correction of the flow."""

    def __init__(self) -> None:
        super().__init__()
        self.conv1, self.conv2 = nn.Conv2d(HIDDEN, 128, 3, padding=1), nn.Conv2d(128, 2, 3, padding=1)

    def forward(self, hidden: Tensor) -> Tensor:
        """Return the change of the flow, n 2 H W, in features."""
        return cast(Tensor, self.conv2(F.relu(self.conv1(hidden))))


class UpdateBlock(nn.Module):
    """One update: the next hidden state and the change of the flow."""

    def __init__(self) -> None:
        super().__init__()
        self.motion_encoder = MotionEncoder()
        self.recurrent_block = nn.ModuleDict({"convgru1": GRU()})
        self.flow_head = FlowHead()

    def forward(self, hidden: Tensor, context: Tensor, correlation: Tensor, flow: Tensor) -> tuple[Tensor, Tensor]:
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
        """Return the flow (float32 n 2 h w) from one image to the other."""
        first, second = self.feature_encoder(torch.cat([now, then])).chunk(2)
        return self.follow(torch.cat([first, self.context_encoder(now)], 1), second)

    def encode(self, images: Tensor) -> Tensor:
        """Return all inputs of a flow from or to images: features, hidden state and context, n C H W."""
        return torch.cat([self.feature_encoder(images), self.context_encoder(images)], 1)

    def follow(self, now: Tensor, then: Tensor) -> Tensor:
        """Return the flow (float32 n 2 h w) from encoded images to others, which need only features (n C H W)."""
        dtype = now.dtype
        features, hidden, context = torch.split(now, [FEATURES, HIDDEN, CONTEXT], 1)
        pyramid = correlations(features.float(), then.float())
        hidden, context = torch.tanh(hidden), F.relu(context)
        lasts = ends(pyramid)
        start = places(hidden.shape[2], hidden.shape[3], now.device)
        flow = torch.zeros((len(now), 2, *hidden.shape[2:]), device=now.device)
        for _ in range(UPDATES):
            correlation = look_up(pyramid, lasts, start + flow)
            hidden, change = self.update_block(hidden, context, correlation.to(dtype), flow.to(dtype))
            flow = flow + change.float()
        return SCALE * F.interpolate(flow, scale_factor=SCALE, mode="bilinear", align_corners=True)


def correlations(now: Tensor, then: Tensor) -> list[Tensor]:
    """Return the correlations of all features (n C H W each): nHW 1 H W, and three halvings.

    Divided by the square root of the number of channels, equation 1 of the paper.
    """
    count, channels, height, width = now.shape
    products = torch.einsum("ncp,nchw->nphw", now.flatten(2), then) / channels**0.5
    pyramid = [products.reshape(count * height * width, 1, height, width)]
    for _ in range(LEVELS - 1):
        pyramid.append(F.avg_pool2d(pyramid[-1], 2))
    return pyramid


def look_up(pyramid: Sequence[Tensor], lasts: Sequence[Tensor], at: Tensor) -> Tensor:
    """Return correlations around positions (n 2 H W, in features): n 196 H W, coarser scales last, x before y.

    `lasts` are the `ends` of the pyramid.
    """
    count, _, height, width = at.shape
    steps = torch.arange(-RADIUS, RADIUS + 1, device=at.device, dtype=at.dtype)
    window = torch.stack(torch.meshgrid(steps, steps, indexing="ij"), -1)
    centre = at.permute(0, 2, 3, 1).reshape(-1, 1, 1, 2)
    parts = []
    for level, (values, last) in enumerate(zip(pyramid, lasts, strict=True)):
        grid = 2 * (centre / 2**level + window) / last - 1
        pairs = zip(torch.split(values, AT_ONCE), torch.split(grid, AT_ONCE), strict=True)
        sampled = torch.cat([F.grid_sample(*pair, align_corners=True) for pair in pairs])
        parts.append(sampled.reshape(count, height, width, -1))
    return torch.cat(parts, -1).permute(0, 3, 1, 2).contiguous()


def ends(pyramid: Sequence[Tensor]) -> list[Tensor]:
    """Return the last column and row of each map, 2 float32; filled in on the device, since an upload would wait."""
    lasts = [torch.full((2,), values.shape[3] - 1.0, device=values.device) for values in pyramid]
    for last, values in zip(lasts, pyramid, strict=True):
        last[1] = values.shape[2] - 1
    return lasts


def places(height: int, width: int, device: torch.device) -> Tensor:
    """Return the position of each feature: 1 2 H W, x and y."""
    y, x = torch.meshgrid(*(torch.arange(side, device=device) for side in (height, width)), indexing="ij")
    return torch.stack([x, y])[None].float()


def load(path: Path | None) -> Raft:
    """Return the network with a file's weights, or with seeded random ones.

    Raises ValueError: the file does not hold these weights.
    """
    if path is None:
        with seeded():
            return Raft().eval()
    with torch.device("meta"):
        net = Raft()
    state = torch.load(path, map_location="cpu", weights_only=True)
    return assign_state(net, state, model="RAFT small", file=path.name)


def padded(pixels: Tensor) -> tuple[Tensor, tuple[int, int]]:
    """Return images (n c h w) padded by their edges to valid sides, and the padding at the top and on the left."""
    height, width = pixels.shape[2:]
    down, right = (max(LEAST, -(-side // SCALE) * SCALE) - side for side in (height, width))
    more = (right // 2, right - right // 2, down // 2, down - down // 2)
    return (F.pad(pixels, more, mode="replicate") if down or right else pixels), (down // 2, right // 2)


class Flows:
    """Flow between consecutive images, each of which is encoded once.

    On the CPU images and pairs are computed one by one: batches are not faster, and change rounding.

    Args:
        path: the file of weights; None for seeded random ones.
        placement: device and arithmetic. fp16 where it is `auto` on a GPU: see docs/log.md.
        rows: images or pairs of a compiled call.

    Raises:
        ValueError: the file does not hold these weights.
    """

    def __init__(self, path: Path | None, placement: Placement, rows: int, phase: Phase = untimed) -> None:
        self._phase = phase
        self._placement, self._dtype = placement, dtype_of(placement, best="fp16")
        self._net = ready(load(path), placement, self._dtype)
        encoders = (self._net.feature_encoder, self._net.context_encoder)
        self._encoded = Batches(self._encode, placement, rows, regions=encoders)
        self._followed = Batches(self._net.follow, placement, rows, regions=(self._net.update_block,))
        self._at_once = 1 if placement.device == "cpu" else rows

    def __call__(self, images: Sequence[Image]) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
        """Return the flow (n - 1 h w 2, px) from each of n images (h w 3, of one size) to the next, and back."""
        device, pin = self._placement.device, self._placement.pin_memory
        encoded = []
        with torch.inference_mode():
            for start in range(0, len(images), self._at_once):
                with self._phase("upload"):
                    pixels = upload(images[start : start + self._at_once], device, pin=pin)
                encoded.append(self._encoded(pixels))
            every, sides = torch.cat(encoded), images[0].shape[:2]
            return self._follow(every[:-1], every[1:], sides), self._follow(every[1:], every[:-1], sides)

    def _encode(self, pixels: Tensor) -> Tensor:
        values, _ = padded(pixels.permute(0, 3, 1, 2).float() / 127.5 - 1)
        return self._net.encode(values.to(self._dtype))

    def _follow(self, now: Tensor, then: Tensor, sides: tuple[int, ...]) -> NDArray[np.float32]:
        flows = []
        pairs = (torch.split(encoded, self._at_once) for encoded in (now, then[:, :FEATURES]))
        for first, second in zip(*pairs, strict=True):
            flow = self._followed(first, second)
            top, left = ((whole - side) // 2 for whole, side in zip(flow.shape[2:], sides, strict=True))
            flow = flow[:, :, top : top + sides[0], left : left + sides[1]].permute(0, 2, 3, 1)
            with self._phase("download"):
                flows.append(flow.cpu().numpy())
        return np.ascontiguousarray(np.concatenate(flows))
