"""Uploads of pixels, and resizing, cropping and normalising on the model's device, as the model was trained.

Shapes: n images, h height, w width, s the model's side; pixels RGB uint8 n h w 3, a model's input n 3 s s.
"""

from __future__ import annotations

import functools
import threading
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import numpy as np
from numpy.typing import NDArray

from framekiln.contract import Placement
from framekiln.contract.columns import Image
from framekiln.device.lazy import torch
from framekiln.device.resizing import STEP, Preparation, fit, fit_mixed, padded

Phase = Callable[[str], AbstractContextManager[None]]
"""The type of `Stage.phase`."""
_threads = threading.local()  # buffers that belong to one thread


def untimed(name: str) -> AbstractContextManager[None]:  # noqa: ARG001
    """Return a phase that is not timed."""
    return nullcontext()


def upload(images: Sequence[Image], device: str, *, pin: bool = False) -> torch.Tensor:
    """Return images of one size (h w 3 each) as a tensor on a device (n h w 3 uint8).

    With `pin`, staging buffers are page-locked: a GPU copies them two to three times as fast. Ignored on the CPU.
    """
    return upload_all(images, device, pin=pin).view(len(images), *images[0].shape)


def upload_all(images: Sequence[Image], device: str, *, pin: bool = False) -> torch.Tensor:
    """Return the bytes of images of any sizes (h w c each), one after the other, on a device; see `upload`."""
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
        self._device, self._turn, self._stream = device, 0, _get_copy_stream(device)
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
def _get_copy_stream(device: str) -> Any:
    """Return the stream of all copies to a device, apart from computing ones: the bus does one copy at a time.

    torch has 32 streams, and a process has one for each packet in work.
    """
    return torch.cuda.Stream(device)  # type: ignore[no-untyped-call]


LONGEST = 8  # aspect ratio above which images are cropped: a strip of 1 by 10,000 would grow to 1.5 GB
OFTEN = 4  # least images of one size that get a call of their own
PART_BYTES = 64 << 20  # bytes of pixels resized at once; four times as much as float32


def prepare(
    images: Sequence[Image],
    how: Preparation,
    placement: Placement,
    dtype: torch.dtype,
    phase: Phase = untimed,
    *,
    mixed: bool | None = None,
) -> torch.Tensor:
    """Return images of any sizes as one normalised input of a model (n 3 s s) on the device.

    Images of one size are uploaded and resized together, and with `mixed` images of many sizes too. The values of an
    image do not depend on the others, except that with `mixed` a level may differ by 1 in 0.3 % of the pixels.

    Args:
        images: h w 3 each.
        how: the model's preprocessing.
        placement: its device and its `pin_memory`.
        dtype: of the result; the arithmetic before is float32.
        phase: times copies to the device as an upload.
        mixed: whether rare sizes share calls; None: on a GPU.
    """
    device, pin = placement.device, placement.pin_memory
    ready = [middle(image) for image in images] if how.crop else list(images)
    groups = list(_group_by_size(ready, mixed=device != "cpu" if mixed is None else mixed))
    parts = [torch.empty((0, 3, how.side, how.side), device=device)] if not groups else []
    for indices in groups:
        own = [ready[i] for i in indices]
        shapes = [(image.shape[0], image.shape[1]) for image in own]
        alike = len(set(shapes)) == 1
        with phase("upload"):
            pixels = upload(own if alike else list(padded(own)), device, pin=pin)
        parts.append(fit(pixels, how) if alike else fit_mixed(pixels, shapes, how))
    return normalized(in_order(parts, groups or [[]]), how, placement, dtype)


def normalized(levels: torch.Tensor, how: Preparation, placement: Placement, dtype: torch.dtype) -> torch.Tensor:
    """Convert levels (n 3 s s float32, 0 to 255; overwritten) to a model's input of this dtype."""
    mean, std = _upload_constants(how, placement.device)
    return levels.sub_(mean).div_(std).to(dtype).contiguous()


def in_order(parts: Sequence[torch.Tensor], numbers: Sequence[Sequence[int] | NDArray[np.intp]]) -> torch.Tensor:
    """Return rows, computed in parts, in the order of their numbers; the CPU does not wait for a GPU."""
    rows, order = parts[0] if len(parts) == 1 else torch.cat(list(parts)), np.concatenate(numbers)
    if (np.diff(order) > 0).all():
        return rows
    return rows.index_select(0, torch.from_numpy(np.argsort(order)).to(rows.device, non_blocking=True))


@functools.cache
def _upload_constants(how: Preparation, device: str) -> tuple[torch.Tensor, torch.Tensor]:
    """Return mean and deviation of the levels, 3 1 1 each, on the device; uploaded once for a process.

    Any thread may use them: copies from pageable memory are complete when they return.
    """
    with torch.inference_mode(mode=False):
        mean, std = (torch.tensor(values).mul(255).view(3, 1, 1).to(device) for values in (how.mean, how.std))
    return mean, std


def middle(image: Image) -> Image:
    """Return a view of an image, cropped to `LONGEST` times its short side."""
    longest = LONGEST * min(image.shape[:2])
    top, left = (max(0, side - longest) // 2 for side in image.shape[:2])
    return image[top : top + longest, left : left + longest]


def _group_by_size(images: Sequence[Image], *, mixed: bool) -> Iterator[list[int]]:
    """Yield the indices of images of one size, at most `PART_BYTES` at once; with `mixed`, rare sizes together."""
    groups = indices_by_key(image.shape for image in images)
    if mixed:
        rare = {index for group in groups if len(group) < OFTEN for index in group}
        groups = [group for group in groups if len(group) >= OFTEN]
        numbers = sorted(rare)
        sizes = ([-(-side // STEP) for side in images[index].shape[:2]] for index in numbers)
        groups += [[numbers[i] for i in group] for group in indices_by_key(tuple(size) for size in sizes)]
    for group in groups:
        largest = 3 * np.prod([max(images[index].shape[axis] for index in group) for axis in (0, 1)])
        most = max(1, int(PART_BYTES // largest))
        yield from (group[start : start + most] for start in range(0, len(group), most))


def indices_by_key(keys: Iterable[Hashable]) -> list[list[int]]:
    """Return the numbers of items with equal keys, in the order in which keys first appear."""
    groups: dict[Hashable, list[int]] = {}
    for index, key in enumerate(keys):
        groups.setdefault(key, []).append(index)
    return list(groups.values())
