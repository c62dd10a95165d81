"""Stand-ins for big-lama.pt: another program's Fourier convolutions, combined as LaMa's authors describe.

The blocks are lama-cleaner's (`lama_cleaner.model.fcf`). They belong to another model without normalization; the
normalization is added here under the original's names.
"""

from __future__ import annotations

import importlib
import sys
import warnings
from unittest.mock import MagicMock, patch

import pytest
import torch
from torch import nn

pytest.importorskip("lama_cleaner", reason="lama-cleaner is not installed (pip install --no-deps)")


def _fcf():
    """Import that model's module; its package imports a library that the module does not need."""
    absent = MagicMock(__spec__=None)
    with warnings.catch_warnings(), patch.dict(sys.modules, {"diffusers": absent}):
        return importlib.import_module("lama_cleaner.model.fcf")


fcf = _fcf()


class Spectral(fcf.SpectralTransform):
    def __init__(self, *args, **kwargs):
        super().__init__(*args, **kwargs)
        conv, act = self.conv1
        self.conv1 = nn.Sequential(conv, nn.BatchNorm2d(conv.out_channels), act)
        self.fu = Unit(self.fu.conv_layer.in_channels // 2, self.fu.conv_layer.out_channels // 2)


class Unit(fcf.FourierUnit):
    def __init__(self, *args):
        super().__init__(*args)
        self.bn = nn.BatchNorm2d(self.conv_layer.out_channels)
        self.conv_layer.register_forward_hook(lambda _, __, answer: self.bn(answer))


class Normed(nn.Module):
    def __init__(self, inward, outward, kernel, *, gin=0.0, gout=0.0, stride=1, padding=0):
        super().__init__()
        self.ffc = fcf.FFC(inward, outward, kernel, gin, gout, stride, padding, enable_lfu=False)
        if gin and gout:
            self.ffc.convg2g = Spectral(int(inward * gin), int(outward * gout), enable_lfu=False)
        self.bn_l = nn.BatchNorm2d(outward - int(outward * gout))
        self.bn_g = nn.BatchNorm2d(int(outward * gout)) if gout else nn.Identity()

    def forward(self, x):
        near, far = self.ffc(x)
        return torch.relu(self.bn_l(near)), torch.relu(self.bn_g(far)) if torch.is_tensor(far) else 0


class Block(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.conv1 = Normed(width, width, 3, gin=0.75, gout=0.75, padding=1)
        self.conv2 = Normed(width, width, 3, gin=0.75, gout=0.75, padding=1)

    def forward(self, x):
        near, far = self.conv2(self.conv1(x))
        return x[0] + near, x[1] + far


class Reference(nn.Module):
    """The network of the exported file: image and mask to image."""

    def __init__(self, width=64, blocks=18):
        super().__init__()
        w = width
        self.generator = nn.Module()
        self.generator.model = nn.Sequential(
            nn.ReflectionPad2d(3),
            Normed(4, w, 7),
            Normed(w, 2 * w, 3, stride=2, padding=1),
            Normed(2 * w, 4 * w, 3, stride=2, padding=1),
            Normed(4 * w, 8 * w, 3, stride=2, padding=1, gout=0.75),
            *(Block(8 * w) for _ in range(blocks)),
            fcf.ConcatTupleLayer(),
            *(part for wide in (8 * w, 4 * w, 2 * w) for part in up(wide)),
            nn.ReflectionPad2d(3),
            nn.Conv2d(w, 3, 7),
            nn.Sigmoid(),
        )

    def forward(self, image, mask):
        painted = self.generator.model(torch.cat([image * (1 - mask), mask], dim=1))
        return mask * painted + (1 - mask) * image


def up(wide):
    yield nn.ConvTranspose2d(wide, wide // 2, 3, stride=2, padding=1, output_padding=1)
    yield nn.BatchNorm2d(wide // 2)
    yield nn.ReLU()


def save(module, path):
    """Save a TorchScript file like the published one."""
    wrapped = Wrapped(module)
    with warnings.catch_warnings(), torch.no_grad():
        warnings.simplefilter("ignore")
        traced = torch.jit.trace(
            wrapped.eval(), (torch.rand(1, 3, 120, 120), torch.rand(1, 1, 120, 120)), strict=False, check_trace=False
        )
        torch.jit.save(traced, str(path))
    return path


class Wrapped(nn.Module):
    """The exporter's own layer, which adds a prefix to the names."""

    def __init__(self, model):
        super().__init__()
        self.model = model

    def forward(self, image, mask):
        return self.model(image, mask)
