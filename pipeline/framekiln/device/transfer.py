"""Uploads of pixels to a device, optionally through page-locked memory.

Shapes: n images of one size, h height, w width; pixels RGB uint8 n h w 3.
"""

from __future__ import annotations

import functools
import threading
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import numpy as np
from numpy.typing import NDArray

from framekiln.contract.columns import Image
from framekiln.device.lazy import torch

Phase = Callable[[str], AbstractContextManager[None]]
"""The type of `Stage.phase`."""


_threads = threading.local()  # with buffers of each thread's own


def untimed(name: str) -> AbstractContextManager[None]:  # noqa: ARG001
    """Return a phase that is not timed."""
    return nullcontext()


def upload(images: Sequence[Image], device: str, *, pin: bool = False) -> torch.Tensor:
    """Return images of one size (h w 3 each) as a tensor on a device (n h w 3 uint8).

    With `pin`, staging buffers are page-locked, which a GPU copies two to three times as fast; ignored on the CPU.
    """
    return upload_all(images, device, pin=pin).view(len(images), *images[0].shape)


def upload_all(images: Sequence[Image], device: str, *, pin: bool = False) -> torch.Tensor:
    """Return the bytes of images of any sizes (h w c each), one image after the other, on a device; see `upload`."""
    if device != "cpu" and pin:
        buffers: dict[str, _Staging] = _threads.__dict__.setdefault("buffers", {})
        if device not in buffers:
            buffers[device] = _Staging(device)
        return buffers[device].send(images)
    staging = torch.empty(sum(image.size for image in images), dtype=torch.uint8)
    _fill(staging.numpy(), images)
    return staging.to(device)


def _fill(buffer: NDArray[np.uint8], images: Sequence[Image]) -> None:
    start = 0
    for image in images:
        buffer[start : start + image.size].reshape(image.shape)[...] = image
        start += image.size


class _Staging:
    """Two page-locked buffers used in turn: one is filled while the other is copied.

    Locking memory takes longer than copying it. Buffers are therefore kept, and grow to the largest copy so far.
    """

    def __init__(self, device: str) -> None:
        self._device, self._turn, self._stream = device, 0, _copy_stream(device)
        self._buffers = [torch.empty(0, dtype=torch.uint8) for _ in range(2)]
        self._copied = [torch.cuda.Event(blocking=True) for _ in range(2)]  # type: ignore[no-untyped-call]

    def send(self, images: Sequence[Image]) -> torch.Tensor:
        """Return the images' bytes on the device; the computing stream waits for the copy, the CPU does not."""
        self._turn = 1 - self._turn
        copied, count = self._copied[self._turn], sum(image.size for image in images)
        copied.synchronize()  # until this buffer's last copy is complete
        if self._buffers[self._turn].numel() < count:
            self._buffers[self._turn] = torch.empty(count, dtype=torch.uint8, pin_memory=True)
        staging = self._buffers[self._turn][:count]
        _fill(staging.numpy(), images)
        with torch.cuda.stream(self._stream):
            result = staging.to(self._device, non_blocking=True)
            copied.record(self._stream)
        computing = torch.cuda.current_stream(self._device)
        computing.wait_event(copied)
        result.record_stream(computing)  # no reuse before the computing stream is done
        return result


@functools.cache
def _copy_stream(device: str) -> Any:
    """Return the stream of all copies to a device, beside those that compute: the bus does one copy at a time.

    torch has 32 streams, and a process has one for each packet in work.
    """
    return torch.cuda.Stream(device)  # type: ignore[no-untyped-call]
