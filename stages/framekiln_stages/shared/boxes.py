"""Arithmetic of boxes on a device."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import torch


def pair_product(pairs: torch.Tensor) -> torch.Tensor:
    """Return the product of each pair, ... of ... 2, such as areas of sides.

    On a GPU, torch's `prod` is compiled at run time in each process's first call.
    """
    return pairs[..., 0] * pairs[..., 1]
