"""Bytes on their way to a device: through page-locked memory that is kept, where a profile has some to spare.

Shapes: n pictures of one size, h height, w width; pixels RGB uint8 n h w 3.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import TYPE_CHECKING, ClassVar

import numpy as np

from pipeline.columns import Image

if TYPE_CHECKING:
    import torch

Phase = Callable[[str], AbstractContextManager[None]]
"""A stage's `phase`."""


def untimed(name: str) -> AbstractContextManager[None]:  # noqa: ARG001
    """A phase that nobody times."""
    return nullcontext()


def upload(images: Sequence[Image], device: str, *, pin: bool = False) -> torch.Tensor:
    """Pictures of one size on the device: n h w 3 uint8, by one copy into a buffer and one from there.

    Args:
        images: h w 3 each.
        device: where to.
        pin: stage them in page-locked memory, which a GPU copies two to three times as fast; means nothing on the CPU.
    """
    import torch

    shape = (len(images), *images[0].shape)
    if device == "cpu" or not pin:
        staging = torch.empty(shape, dtype=torch.uint8)
        np.stack(images, out=staging.numpy())
        return staging.to(device)
    return _Staging.on(device).send(images, shape)


class _Staging:
    """Two page-locked buffers that take turns: one is filled while the other's copy is under way.

    Locking memory takes longer than copying it, so buffers are kept, and grow to the largest copy so far.
    """

    _all: ClassVar[dict[str, _Staging]] = {}

    @classmethod
    def on(cls, device: str) -> _Staging:
        """This process's buffers for a device."""
        if device not in cls._all:
            cls._all[device] = cls(device)
        return cls._all[device]

    def __init__(self, device: str) -> None:
        import torch

        self._device, self._turn = device, 0
        # copies run beside the kernels of the stream that computes
        self._stream = torch.cuda.Stream(device)  # type: ignore[no-untyped-call]
        self._buffers = [torch.empty(0, dtype=torch.uint8) for _ in range(2)]
        self._copied = [torch.cuda.Event() for _ in range(2)]  # type: ignore[no-untyped-call]

    def send(self, images: Sequence[Image], shape: tuple[int, ...]) -> torch.Tensor:
        """The pictures on the device; the stream that computes waits for them, the processor does not."""
        import torch

        self._turn = 1 - self._turn
        copied, count = self._copied[self._turn], int(np.prod(shape))
        copied.synchronize()  # what was sent from this buffer before has arrived
        if self._buffers[self._turn].numel() < count:
            self._buffers[self._turn] = torch.empty(count, dtype=torch.uint8, pin_memory=True)
        staging = self._buffers[self._turn][:count].view(shape)
        np.stack(images, out=staging.numpy())
        with torch.cuda.stream(self._stream):
            result = staging.to(self._device, non_blocking=True)
            copied.record(self._stream)
        computing = torch.cuda.current_stream(self._device)
        computing.wait_event(copied)
        result.record_stream(computing)  # its memory was taken in the other stream: not to be given away before use
        return result
