"""Weights of a small LaMa without the published file, a scene for it to paint, and the distance of two paintings."""

from __future__ import annotations

import numpy as np
import torch
from torch import nn

from tests.support.media.photos import photo


def blossom():
    image = photo("flower.jpg").copy()
    mask = image[:, :, 0].astype(int) - image[:, :, 2] > 60  # the orange of the blossom
    return image, mask


def tensors(image, mask):
    pixels = torch.from_numpy(image).permute(2, 0, 1)[None].float() / 255
    return pixels, torch.from_numpy(mask)[None, None].float()


def psnr(one, other):
    return 10 * np.log10(255**2 / max(np.mean((one - other) ** 2), 1e-9))  # equal ones have no distance


def scene():
    """The edge of the blossom, and its mask: 160x144 px."""
    image, mask = blossom()
    return np.ascontiguousarray(image[220:380, 200:344]), np.ascontiguousarray(mask[220:380, 200:344])


def randomize(module, pixels):
    """Set random weights with activations as in a trained network, by the statistics of real pixels.

    Args:
        module: of (image, mask), with batch normalisation.
        pixels: n 3 h w, 0 to 1.
    """
    torch.manual_seed(0)
    norms = [part for part in module.modules() if isinstance(part, nn.BatchNorm2d)]
    for norm in norms:
        norm.momentum = 1.0
        nn.init.uniform_(norm.weight, 0.3, 1.0)
        nn.init.normal_(norm.bias, 0, 0.3)
    mask = torch.zeros_like(pixels[:, :1])
    mask[:, :, 10:30, 8:40] = 1
    with torch.no_grad():
        module.train()(pixels, mask)
        last = [part for part in module.modules() if isinstance(part, nn.Conv2d)][-1]
        last.weight *= 3
    return module.eval().requires_grad_(False)
