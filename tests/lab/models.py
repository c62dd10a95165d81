"""Small models for tests of the bench, each with a property that a measurement must show."""

from __future__ import annotations

import time

import torch
from torch import nn


def plain():
    """A network of two linear layers: 12 x 8 + 8 and 8 x 4 + 4 parameters."""
    return nn.Sequential(nn.Linear(12, 8), nn.ReLU(), nn.Linear(8, 4)), lambda batch=1, size=12: torch.rand(batch, size)


def own_batch():
    """A factory with a batch of its own: 16."""
    return nn.Linear(12, 4), lambda batch=16, size=12: torch.rand(batch, size)


def alone():
    """A module without example inputs, which is called on images."""
    return nn.Conv2d(3, 2, 3)


def tensors():
    """A module with a tensor as its example input."""
    return nn.Linear(3, 2), torch.arange(6.0).reshape(2, 3)


class Keeper(nn.Module):
    """A module that keeps a million float32 a call: 4,000,000 bytes."""

    def __init__(self):
        super().__init__()
        self.kept = []

    def forward(self, x):
        self.kept.append(torch.zeros(1_000_000))
        return x + 1


class Losses(nn.Module):
    """A module that keeps the mean of its input in a list: 4 bytes a call."""

    def __init__(self):
        super().__init__()
        self.losses = []

    def forward(self, x):
        self.losses.append(x.mean())
        return x + 1


class Cache(nn.Module):
    """A module that fills a cache in its first five calls, and then no more."""

    def __init__(self):
        super().__init__()
        self.kept = []

    def forward(self, x):
        if len(self.kept) < 5:
            self.kept.append(torch.zeros(1_000_000))
        return x + 1


class Sleep(nn.Module):
    """A layer that takes a known time at least."""

    def __init__(self, ms):
        super().__init__()
        self.ms = ms

    def forward(self, x):
        time.sleep(self.ms / 1000)
        return x + 1


class Raises(nn.Module):
    """A module in which one layer raises, where its input says so."""

    def __init__(self):
        super().__init__()
        self.first, self.second = nn.Linear(3, 3), Stops()

    def forward(self, x):
        return self.second(self.first(x))


class Stops(nn.Module):
    def forward(self, x):
        raise RuntimeError("this layer stops")


class Overflow(nn.Module):
    """A module with values beyond the largest float16 (65504) on the way."""

    def __init__(self):
        super().__init__()
        self.scale = nn.Parameter(torch.tensor(1000.0))

    def forward(self, x):
        return (x * self.scale * self.scale) / (self.scale * self.scale)


class Cancels(nn.Module):
    """A module that loses its input in float16's eleven bits, and stays finite."""

    def __init__(self):
        super().__init__()
        self.shift = nn.Parameter(torch.tensor(2048.0))

    def forward(self, x):
        return (x + self.shift) - self.shift


class Labels(nn.Module):
    """A module that returns the number of the largest value: integers."""

    def forward(self, x):
        return x.argmax(-1)


class Attention(nn.Module):
    """One attention over 64 positions of 2 heads with 16 channels."""

    def forward(self, x):
        return nn.functional.scaled_dot_product_attention(x, x, x)


class Large(nn.Module):
    """A module that needs 4 GB for a moment where the batch is above 1."""

    def forward(self, x):
        return x + torch.empty(1_000_000_000 if len(x) > 1 else 10, dtype=torch.float32).numel()


def on_vectors(module, width=3):
    """A module with vectors as inputs."""
    return lambda: (module(), lambda batch=1: torch.rand(batch, width))


keeper, losses, cache, overflow, cancels, large, labels = (
    on_vectors(kind) for kind in (Keeper, Losses, Cache, Overflow, Cancels, Large, Labels)
)


def not_a_module():
    """A factory that returns something else."""
    return 3


def raises_two_lines():
    """A factory that raises."""
    raise RuntimeError("first\nsecond")


class Reads(nn.Module):
    """A module in which the CPU reads three results."""

    def forward(self, x):
        if x.sum().item() > 100:
            return x
        return x * x.mean().item() + x.nonzero().sum()


reads = on_vectors(Reads)
