"""LaMa's network in torch, which can be compiled, and keeps its Fourier transforms in fp32 beside fp16.

The published file is TorchScript, which allows neither. Modules have the original names, by which its weights are
loaded (advimman/lama, saicinpainting/training/modules/ffc.py; Suvorov et al., "Resolution-robust Large Mask Inpainting
with Fourier Convolutions", 2021).

    image, mask -> 7x7 -> 3 x (half the size) -> 18 residual blocks -> 3 x (twice the size) -> 7x7 -> painted image

Within the blocks a quarter of the channels is local, with a receptive field of 3x3 pixels. The rest is global: it
passes through a Fourier transform, so that every value depends on the whole image.

Shapes: n images, c channels, h height, w width; h and w multiples of 8, at least 16. A pair is (local, global), n c h w
each.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

import torch
from torch import Tensor, nn
from torch.nn.functional import relu

from framekiln.device import seeded
from framekiln_stages.nets.checkpoints import assign_state

Pair = tuple[Tensor, Tensor | None]
Widths = tuple[int, int]  # channels: local, global


@dataclass(frozen=True, kw_only=True)
class Sizes:
    """Sizes of a generator; the defaults are big-lama's (configs/training/big-lama.yaml in advimman/lama)."""

    width: int = 64  # channels after the first convolution
    downs: int = 3  # layers that halve the size and double the width
    blocks: int = 18
    max_width: int = 1024  # channels
    global_share: float = 0.75  # share of a block's channels


class FourierUnit(nn.Module):
    """A 1x1 convolution of the spectrum, whose real and imaginary parts are channels; always in fp32.

    In fp16, cuFFT supports powers of two only, and one value of the spectrum, the sum over the image, would use up the
    range.
    """

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.conv_layer = nn.Conv2d(2 * channels, 2 * channels, 1, bias=False)
        self.bn = nn.BatchNorm2d(2 * channels)

    def forward(self, x: Tensor) -> Tensor:
        spectrum = torch.view_as_real(torch.fft.rfft2(x.float(), norm="ortho"))  # n c h w/2+1 2
        parts = spectrum.permute(0, 1, 4, 2, 3).flatten(1, 2)
        parts = relu(self.bn(self.conv_layer(parts))).reshape(len(x), -1, 2, *spectrum.shape[2:4])
        result = torch.view_as_complex(parts.permute(0, 1, 3, 4, 2).contiguous())
        if result.is_cuda:  # the CPU's transform does this itself
            result = symmetrize(result, x.shape[-1])
        return torch.fft.irfft2(result, s=x.shape[-2:], norm="ortho").to(x.dtype)


def symmetrize(spectrum: Tensor, width: int) -> Tensor:
    """Make the self-conjugate columns of a half spectrum (... h w/2+1) of images of this width Hermitian.

    The spectrum of a real image is Hermitian, a network's result need not be. The CPU's transform ignores the rest,
    while cuFFT's result is undefined there (its documentation of C2R). After this, all transforms agree.
    """
    result = spectrum.clone()
    columns = result[..., :: width // 2] if width % 2 == 0 else result[..., :1]  # views: a list would be uploaded
    columns.copy_((columns + columns.flip(-2).roll(1, -2).conj()) / 2)
    return result


class SpectralTransform(nn.Module):
    """The path from global to global: half of the channels pass through the spectrum."""

    def __init__(self, inward: int, outward: int) -> None:
        super().__init__()
        half = outward // 2
        self.conv1 = nn.Sequential(nn.Conv2d(inward, half, 1, bias=False), nn.BatchNorm2d(half), nn.ReLU())
        self.fu = FourierUnit(half)
        self.conv2 = nn.Conv2d(half, outward, 1, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        x = self.conv1(x)
        return self.conv2(x + self.fu(x))


class FFC(nn.Module):
    """A fast Fourier convolution: four paths between local and global channels; one without channels is omitted."""

    def __init__(self, inward: Widths, outward: Widths, kernel: int, stride: int, padding: int) -> None:
        super().__init__()

        def conv(a: int, b: int) -> nn.Module | None:
            options = {"stride": stride, "padding": padding}
            return nn.Conv2d(a, b, kernel, **options, bias=False, padding_mode="reflect") if a and b else None

        self.convl2l = conv(inward[0], outward[0])
        self.convl2g = conv(inward[0], outward[1])
        self.convg2l = conv(inward[1], outward[0])
        self.convg2g = SpectralTransform(inward[1], outward[1]) if inward[1] and outward[1] else None

    def forward(self, pair: Pair) -> Pair:
        return _sum(pair, self.convl2l, self.convg2l), _sum(pair, self.convl2g, self.convg2g)  # type: ignore[return-value]


class NormedFFC(nn.Module):
    """A fast Fourier convolution, batch normalisation and ReLU."""

    def __init__(self, inward: Widths, outward: Widths, kernel: int, stride: int = 1, padding: int = 0) -> None:
        super().__init__()
        self.ffc = FFC(inward, outward, kernel, stride, padding)
        self.bn_l = nn.BatchNorm2d(outward[0])
        self.bn_g = nn.BatchNorm2d(outward[1]) if outward[1] else None

    def forward(self, pair: Pair) -> Pair:
        local, distant = self.ffc(pair)
        return relu(self.bn_l(local)), None if self.bn_g is None else relu(self.bn_g(distant))


class Residual(nn.Module):
    """Two normed convolutions, added to their input."""

    def __init__(self, widths: Widths) -> None:
        super().__init__()
        self.conv1 = NormedFFC(widths, widths, 3, padding=1)
        self.conv2 = NormedFFC(widths, widths, 3, padding=1)

    def forward(self, pair: Pair) -> Pair:
        local, distant = self.conv2(self.conv1(pair))
        return pair[0] + local, pair[1] + distant


class _Split(nn.ReflectionPad2d):
    """Reflection padding; returns a pair without a global half."""

    def forward(self, input: Tensor) -> Pair:  # type: ignore[override]
        return super().forward(input), None


class _Join(nn.Module):
    def forward(self, pair: Pair) -> Tensor:
        return torch.cat([part for part in pair if part is not None], dim=1)


class Generator(nn.Module):
    """The network.

    Its input is an image with masked pixels of 0, and the mask (n 4 h w, 0 to 1). Its output is n 3 h w, 0 to 1.
    """

    def __init__(self, sizes: Sizes | None = None) -> None:
        super().__init__()
        sizes = sizes or Sizes()
        widths = [min(sizes.max_width, sizes.width << step) for step in range(sizes.downs + 1)]
        pairs: list[Widths] = [(width, 0) for width in widths]
        distant = int(widths[-1] * sizes.global_share)
        pairs[-1] = (widths[-1] - distant, distant)
        layers: list[nn.Module] = [_Split(3), NormedFFC((4, 0), pairs[0], 7)]
        layers += [NormedFFC(a, b, 3, stride=2, padding=1) for a, b in pairwise(pairs)]
        layers += [Residual(pairs[-1]) for _ in range(sizes.blocks)]
        layers.append(_Join())
        for wide, narrow in pairwise(widths[::-1]):
            up = nn.ConvTranspose2d(wide, narrow, 3, stride=2, padding=1, output_padding=1)
            layers += [up, nn.BatchNorm2d(narrow), nn.ReLU()]
        layers += [nn.ReflectionPad2d(3), nn.Conv2d(widths[0], 3, 7), nn.Sigmoid()]
        self.model = nn.Sequential(*layers)
        blocks = [place for place, layer in enumerate(layers) if isinstance(layer, Residual)]
        first, last = blocks[0], blocks[-1] + 1
        self.regions = (self.model[:first], *layers[first:last], self.model[last:])  # a tuple adds no names of weights
        """Parts to compile separately: the reduction of the image, the equal blocks, and the enlargement."""

    def forward(self, x: Tensor) -> Tensor:
        for region in self.regions:
            x = region(x)
        return x


def paint(generator: nn.Module, image: Tensor, mask: Tensor, dtype: torch.dtype = torch.float32) -> Tensor:
    """Paint the masked pixels of an image, as the published file does.

    Args:
        generator: see `Generator`.
        image: n 3 h w float32, 0 to 1.
        mask: n 1 h w float32, 1 where a pixel is painted, else 0.
        dtype: of the generator's weights.
    """
    painted: Tensor = generator(torch.cat([image * (1 - mask), mask], dim=1).to(dtype))
    return mask * painted.to(image.dtype) + (1 - mask) * image


def cast(module: nn.Module, dtype: torch.dtype) -> None:
    """Cast a module's weights, except in Fourier units."""
    children = [child for child in module.children() if not isinstance(child, FourierUnit)]
    for child in children:
        cast(child, dtype)
    if next(module.children(), None) is None:
        module.to(dtype)


def _sum(pair: Pair, *paths: nn.Module | None) -> Tensor | None:
    """Return the sum of the given paths' outputs; None without any."""
    parts = [path(part) for path, part in zip(paths, pair, strict=True) if path is not None]
    return sum(parts[1:], parts[0]) if parts else None


COUNTERS = "num_batches_tracked"  # counters of training; if files lack them, torch sets them to 0


def load_generator(path: Path | None, sizes: Sizes | None = None) -> Generator:
    """Build the network with a file's weights, or with seeded random ones.

    Raises ValueError: the file is not TorchScript, or its weights are another network's.
    """
    if path is None:
        with seeded():
            return Generator(sizes).eval()
    with torch.device("meta"):
        net = Generator(sizes)
    return assign_weights(net, load_script(path).state_dict(), path.name)


def load_script(path: Path) -> torch.jit.ScriptModule:
    """Load a TorchScript file on the CPU. Raises ValueError: the file is not TorchScript."""
    try:
        return torch.jit.load(str(path), map_location="cpu")  # type: ignore[no-untyped-call]
    except RuntimeError as error:
        raise ValueError(f"{path.name} is not a TorchScript file: {str(error).splitlines()[0]}") from error


def assign_weights(net: Generator, state: Mapping[str, Tensor], file: str) -> Generator:
    """Assign a file's weights to the network; their names may share any prefix in the file.

    Raises ValueError: weights are missing, unexpected or of another shape.
    """
    first = next(iter(net.state_dict()))
    prefix = next((name.removesuffix(first) for name in state if f".{name}".endswith(f".{first}")), "")
    own = {name.removeprefix(prefix): tensor for name, tensor in state.items() if not name.endswith(COUNTERS)}
    return assign_state(net, {name: tensor.float() for name, tensor in own.items()}, model="big-lama", file=file)
