"""Recognition networks in torch, so that benchmarks can run them at full size without weights.

They have the form of the published files: a norm after a convolution is folded into it, a norm before one stays. Their
tensors come in the order of an export and have the sizes of the files' tensors.

Shapes: n crops, c channels; input n 3 112 112, output n d, not scaled to length 1.
"""

from collections.abc import Sequence

from torch import Tensor, nn

WIDTHS = (64, 128, 256, 512)  # widths of the four stages; insightface, recognition/arcface_torch/backbones/iresnet.py

_INVERTED = ((64, 5, 2, 2), (128, 1, 4, 2), (128, 6, 2, 1), (128, 1, 4, 2), (128, 2, 2, 1))
"""MobileFaceNet's bottlenecks: width, count, expansion, stride of the first (Chen and others 2018, table 1)."""


class IResNet(nn.Module):
    """ArcFace's network of residual blocks that start with a norm.

    Args:
        blocks: number in each stage, 3 4 14 3 in IResNet-50.
        length: of an embedding.
        widths: channels of each stage.
        side: of a crop in px; a multiple of 16.
    """

    def __init__(
        self, blocks: Sequence[int], length: int = 512, widths: Sequence[int] = WIDTHS, side: int = 112
    ) -> None:
        super().__init__()
        layers: list[nn.Module] = [nn.Conv2d(3, widths[0], 3, padding=1), nn.PReLU(widths[0])]
        inside = widths[0]
        for count, width in zip(blocks, widths, strict=True):
            for block in range(count):
                layers.append(_Residual(inside, width, first=block == 0))
                inside = width
        self.layers = nn.Sequential(*layers)
        self.norm = nn.BatchNorm2d(inside)
        self.embed = nn.Linear(inside * (side // 16) ** 2, length)
        self.embedding_norm = nn.BatchNorm1d(length)

    def forward(self, crops: Tensor) -> Tensor:
        return self.embedding_norm(self.embed(self.norm(self.layers(crops)).flatten(1)))


class _Residual(nn.Module):
    """Norm, two convolutions and a shortcut; the first of a stage halves height and width."""

    def __init__(self, inside: int, width: int, *, first: bool) -> None:
        super().__init__()
        stride = 2 if first else 1
        self.inner = nn.Sequential(
            nn.BatchNorm2d(inside),
            nn.Conv2d(inside, width, 3, padding=1),
            nn.PReLU(width),
            nn.Conv2d(width, width, 3, stride, padding=1),
        )
        self.shortcut = nn.Conv2d(inside, width, 1, stride) if first else nn.Identity()

    def forward(self, x: Tensor) -> Tensor:
        return self.inner(x) + self.shortcut(x)


class MobileFaceNet(nn.Module):
    """The network of foamliu/MobileFaceNet (mobilefacenet.py): the paper's, with ReLU and ReLU6 for PReLU."""

    def __init__(self, length: int = 128) -> None:
        super().__init__()
        layers: list[nn.Module] = [
            *(nn.Conv2d(3, 64, 3, 2, 1), nn.ReLU6()),
            *(nn.Conv2d(64, 64, 3, padding=1, groups=64), nn.ReLU()),
            *(nn.Conv2d(64, 64, 1), nn.ReLU()),
        ]
        inside = 64
        for width, count, expansion, stride in _INVERTED:
            for block in range(count):
                layers.append(_Bottleneck(inside, width, expansion, stride if block == 0 else 1))
                inside = width
        layers += [nn.Conv2d(inside, 512, 1), nn.ReLU6(), nn.Conv2d(512, 512, 7, groups=512)]
        self.layers = nn.Sequential(*layers, nn.Conv2d(512, length, 1), nn.Flatten())

    def forward(self, crops: Tensor) -> Tensor:
        return self.layers(crops)


class _Bottleneck(nn.Module):
    """Inverted bottleneck, with a shortcut where input and output have one shape."""

    def __init__(self, inside: int, width: int, expansion: int, stride: int) -> None:
        super().__init__()
        wide = inside * expansion
        self.inner = nn.Sequential(
            *(nn.Conv2d(inside, wide, 1), nn.ReLU6()),
            *(nn.Conv2d(wide, wide, 3, stride, 1, groups=wide), nn.ReLU6()),
            nn.Conv2d(wide, width, 1),
        )
        self._has_shortcut = stride == 1 and inside == width

    def forward(self, x: Tensor) -> Tensor:
        inner: Tensor = self.inner(x)
        return x + inner if self._has_shortcut else inner
