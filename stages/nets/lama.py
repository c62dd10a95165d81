"""Two ways to run LaMa: the network written out, and lama-cleaner's own class as the reference.

Both answer the same within a level of 255. The first runs in fp16 and compiled, the second is for those who want what
lama-cleaner gives, to the bit: it rounds levels down, as its program does.

Shapes: n pictures of one size, h height, w width, of any length; a picture shorter than 16 px on a side, or whose sides
are not multiples of 8, is continued by its mirror image, as lama-cleaner does.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from pipeline.columns import Image
from pipeline.device import Batches, Phase, dtype_of, ready, seeded, untimed, upload
from pipeline.stage import Placement
from stages.nets.ffc import Generator, Sizes, cast, paint
from stages.nets.masks import Mask

Answers = NDArray[np.float32]  # n h w 3, 0 to 255
STEP = 8  # px: the network halves its input three times
LEAST = 16  # px: below that, the smallest of these halves is one pixel, which has no mirror image
COUNTERS = "num_batches_tracked"  # of training; files may lack them


class Painter(Protocol):
    """Pictures with their masked pixels made up; others are as they were, but for rounding."""

    def __call__(self, images: Sequence[Image], masks: Sequence[Mask]) -> Answers:
        """Answers n h w 3 for pictures (h w 3) and masks (h w) of one size."""


class Eager:
    """The network written out. On the CPU pictures go one by one: more at once gain nothing there, and change rounding.

    Args:
        path: the TorchScript file whose weights it takes; None for seeded random ones.
        placement: its device and arithmetic.
        rows: pictures of a compiled call.
        sizes: of the network; None for the published ones.
        phase: counts the time of a block: upload and download.

    Raises:
        ValueError: the file is not TorchScript, or its weights are another network's.
    """

    def __init__(
        self,
        path: Path | None,
        placement: Placement,
        rows: int,
        sizes: Sizes | None = None,
        phase: Phase = untimed,
    ) -> None:
        self._phase = phase
        self._placement, self._dtype = placement, dtype_of(placement, best="fp16")
        self._net = ready(generator(path, sizes), placement, torch.float32)
        cast(self._net, self._dtype)
        self._batches = Batches(self._paint, placement, rows)
        self._at_once = 1 if placement.device == "cpu" else rows

    def __call__(self, images: Sequence[Image], masks: Sequence[Mask]) -> Answers:
        """See `Painter`."""
        height, width = images[0].shape[:2]
        device, pin = self._placement.device, self._placement.pin_memory
        answers = []
        for start in range(0, len(images), self._at_once):
            part = slice(start, start + self._at_once)
            with self._phase("upload"):
                pixels = upload([padded(image) for image in images[part]], device, pin=pin)
                region = upload([padded(mask.view(np.uint8)[:, :, None]) for mask in masks[part]], device, pin=pin)
            with torch.inference_mode():
                made = self._batches(pixels, region)[:, :height, :width]
                with self._phase("download"):
                    answers.append(made.cpu().numpy())
        return np.concatenate(answers)

    def _paint(self, pixels: Tensor, region: Tensor) -> Tensor:
        image, mask = (tensor.permute(0, 3, 1, 2).float() for tensor in (pixels, region))
        return paint(self._net, image / 255, mask, self._dtype).permute(0, 2, 3, 1) * 255


class LamaCleaner:
    """lama-cleaner's `LaMa` with a file that was verified before, on pictures of one size at once.

    Args:
        path: the TorchScript file; None for the written-out network with seeded random weights.
        placement: its device; fp32 in any case, and not compiled.

    Raises:
        ValueError: 16-bit arithmetic was asked for, or the file is not TorchScript.
    """

    def __init__(self, path: Path | None, placement: Placement) -> None:
        if placement.precision in ("fp16", "bf16"):
            raise ValueError(
                f"implementation 'lama-cleaner' runs in fp32 only, not in {placement.precision}: choose 'eager'"
            )
        self._at_once = 1 if placement.device == "cpu" else None
        module = script(path) if path is not None else _Exported(generator(None))
        self.lama = _lama(module.eval().to(placement.device))(torch.device(placement.device))

    def __call__(self, images: Sequence[Image], masks: Sequence[Mask]) -> Answers:
        """See `Painter`."""
        step = self._at_once or len(images)
        parts = [slice(start, start + step) for start in range(0, len(images), step)]
        return np.concatenate([self.lama.batch(images[part], masks[part]) for part in parts])


def _lama(module: nn.Module) -> Callable[[torch.device], Any]:
    """lama-cleaner's class, which would download its file, without checking one that is there already.

    Importing the package silences a kind of warning in the whole process; that is undone. Its log goes to the terminal;
    that is turned off.
    """
    with warnings.catch_warnings():
        from lama_cleaner.helper import norm_img, pad_img_to_modulo
        from lama_cleaner.model.lama import LaMa
    from loguru import logger

    logger.disable("lama_cleaner")

    class Verified(LaMa):  # type: ignore[misc]
        min_size = LEAST

        def init_model(self, device: torch.device, **_: Any) -> None:  # noqa: ARG002
            self.model = module

        @torch.no_grad()
        def batch(self, images: Sequence[Image], masks: Sequence[Mask]) -> Answers:
            """Equal to its `__call__` on each picture."""
            how = {"mod": self.pad_mod, "min_size": self.min_size}
            pixels = [norm_img(pad_img_to_modulo(image, **how)) for image in images]
            regions = [(norm_img(pad_img_to_modulo(mask.view(np.uint8) * 255, **how)) > 0) * 1 for mask in masks]
            made = self.model(*(torch.from_numpy(np.stack(part)).to(self.device) for part in (pixels, regions)))
            levels = np.clip(made.permute(0, 2, 3, 1).cpu().numpy() * 255, 0, 255).astype("uint8")
            height, width = images[0].shape[:2]
            inside = np.stack(masks)[..., None]
            return np.where(inside, levels[:, :height, :width], np.stack(images)).astype(np.float32)

    return Verified


class _Exported(nn.Module):
    """What the published file holds, around the written-out network."""

    def __init__(self, net: Generator) -> None:
        super().__init__()
        self.net = net

    def forward(self, image: Tensor, mask: Tensor) -> Tensor:
        return paint(self.net, image, mask.to(image.dtype))


def generator(path: Path | None, sizes: Sizes | None = None) -> Generator:
    """The network with a file's weights, or with seeded random ones."""
    if path is None:
        with seeded():
            return Generator(sizes).eval()
    with torch.device("meta"):
        net = Generator(sizes)
    net.load_state_dict(matched(script(path).state_dict(), net.state_dict(), path.name), strict=False, assign=True)
    for name, buffer in net.named_buffers():
        if name.endswith(COUNTERS) and buffer.is_meta:
            parent, _, own = name.rpartition(".")
            net.get_submodule(parent).register_buffer(own, torch.tensor(0))
    return net.eval()


def script(path: Path) -> torch.jit.ScriptModule:
    """A TorchScript file, on the CPU.

    Raises:
        ValueError: it is none.
    """
    try:
        return torch.jit.load(str(path), map_location="cpu")  # type: ignore[no-untyped-call]
    except RuntimeError as error:
        raise ValueError(f"{path.name} is no TorchScript file: {str(error).splitlines()[0]}") from error


def matched(state: Mapping[str, Tensor], wanted: Mapping[str, Tensor], file: str) -> dict[str, Tensor]:
    """Weights under the names of a network, whatever common prefix they have in the file.

    Args:
        state: the file's.
        wanted: the network's; shapes count.
        file: its name.

    Raises:
        ValueError: weights are missing, unknown or of another shape; names the first three.
    """
    found = {name: tensor for name, tensor in state.items() if not name.endswith(COUNTERS)}
    needed = {name: tensor for name, tensor in wanted.items() if not name.endswith(COUNTERS)}
    first = next(iter(needed))
    prefix = next((name.removesuffix(first) for name in found if name == first or name.endswith(f".{first}")), "")
    result = {name.removeprefix(prefix): tensor for name, tensor in found.items() if name.startswith(prefix)}
    faults = {
        "lacks": [name for name in needed if name not in result],
        "holds what LaMa does not:": [name for name in found if name.removeprefix(prefix) not in needed],
        "has in another shape": [n for n, one in needed.items() if n in result and result[n].shape != one.shape],
    }
    if said := [f"{what} {', '.join(names[:3])} ({len(names)} in all)" for what, names in faults.items() if names]:
        raise ValueError(f"{file} is not big-lama: it {'; '.join(said)}")
    return {name: tensor.float() for name, tensor in result.items()}


def padded(image: NDArray[np.uint8]) -> NDArray[np.uint8]:
    """A picture (h w c) continued by its mirror image to the right and below, to sides that the network can take."""
    more = [max(LEAST, -(-side // STEP) * STEP) - side for side in image.shape[:2]]
    return np.pad(image, ((0, more[0]), (0, more[1]), (0, 0)), mode="symmetric") if any(more) else image
