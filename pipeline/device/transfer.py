"""Uploads of pixels to a device, optionally through page-locked memory.

Shapes: n images of one size, h height, w width; pixels RGB uint8 n h w 3.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import TYPE_CHECKING

import numpy as np

from pipeline.contract.columns import Image

if TYPE_CHECKING:
    import torch

Phase = Callable[[str], AbstractContextManager[None]]
"""The type of `Stage.phase`."""


def untimed(name: str) -> AbstractContextManager[None]:  # noqa: ARG001
    """Return a phase that is not timed."""
    return nullcontext()


def upload(images: Sequence[Image], device: str, *, pin: bool = False) -> torch.Tensor:
    """Return images of one size as a tensor on a device (n h w 3 uint8).

    Args:
        images: h w 3 each.
        device: destination.
        pin: use page-locked staging buffers, which a GPU copies two to three times as fast; ignored on the CPU.
    """
    import torch

    shape = (len(images), *images[0].shape)
    if device == "cpu" or not pin:
        staging = torch.empty(shape, dtype=torch.uint8)
        np.stack(images, out=staging.numpy())
        return staging.to(device)
    return _staging(device).send(images, shape)


class _Staging:
    """Two page-locked buffers used in turn: one is filled while the other is copied.

    Locking memory takes longer than copying it. Buffers are therefore kept, and grow to the largest copy so far.
    """

    def __init__(self, device: str) -> None:
        import torch

        self._device, self._turn = device, 0
        # copies run beside the kernels of the stream that computes
        self._stream = torch.cuda.Stream(device)  # type: ignore[no-untyped-call]
        self._buffers = [torch.empty(0, dtype=torch.uint8) for _ in range(2)]
        self._copied = [torch.cuda.Event() for _ in range(2)]  # type: ignore[no-untyped-call]

    def send(self, images: Sequence[Image], shape: tuple[int, ...]) -> torch.Tensor:
        """Return the images on the device; the computing stream waits for the copy, the CPU does not."""
        import torch

        self._turn = 1 - self._turn
        copied, count = self._copied[self._turn], int(np.prod(shape))
        copied.synchronize()  # until this buffer's last copy is complete
        if self._buffers[self._turn].numel() < count:
            self._buffers[self._turn] = torch.empty(count, dtype=torch.uint8, pin_memory=True)
        staging = self._buffers[self._turn][:count].view(shape)
        np.stack(images, out=staging.numpy())
        with torch.cuda.stream(self._stream):
            result = staging.to(self._device, non_blocking=True)
            copied.record(self._stream)
        computing = torch.cuda.current_stream(self._device)
        computing.wait_event(copied)
        result.record_stream(computing)  # no reuse before the computing stream is done
        return result


@functools.cache
def _staging(device: str) -> _Staging:
    """Return this process's buffers for a device."""
    return _Staging(device)
