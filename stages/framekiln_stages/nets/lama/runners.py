"""Two ways to run LaMa: the network in torch, and lama-cleaner's own class as the reference.

Their results agree within one level of 255. The first can run in fp16 and compiled. The second reproduces lama-cleaner
to the bit, which rounds levels down.

Shapes: n images of one size, h height, w width, of any length. An image with a side below 16 px, or not a multiple of
8, is padded by reflection, as in lama-cleaner.
"""

import warnings
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from framekiln.contract import Image, Placement
from framekiln.device import Batches, Phase, dtype_of, ready, untimed, upload
from framekiln_stages.nets.lama.network import Generator, Sizes, cast, load_generator, load_script, paint
from framekiln_stages.shared.masks import Mask

Painted = NDArray[np.float32] | NDArray[np.uint8]  # n h w 3, 0 to 255
UNIT = 3 * 512 * 512  # levels of an image; `rows` images of this size go into a call
STEP = 8  # px: the network halves its input three times
MIN_SIDE = 16  # px: a shorter side is halved to one pixel, which cannot be reflected
Painter = Callable[[Sequence[Image], Sequence[Mask]], Painted]
"""Paints masked pixels: images (h w 3) and masks (h w) of one size. Others keep their levels, except for rounding."""


class EagerLama:
    """The network in torch. On the CPU it takes one image at a time: a batch is no faster there, and changes rounding.

    Args:
        path: the TorchScript file with the weights; None for seeded random ones.
        placement: its device and arithmetic.
        rows: images of 512 x 512 px of a compiled or joint call; fewer of larger ones.
        sizes: of the network; None for the published ones.
        shapes: heights and widths that a compiled network is warmed up for; without any, the first ones that come.
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
        shapes: Sequence[tuple[int, int]] = (),
        phase: Phase = untimed,
    ) -> None:
        self._phase = phase
        self._placement, self._dtype = placement, dtype_of(placement, best="fp16")
        self._net = ready(load_generator(path, sizes), placement, torch.float32)
        cast(self._net, self._dtype)
        self._batches = Batches(self._paint, placement, rows, unit=UNIT, regions=self._net.regions)
        self._whole = placement.device != "cpu"
        self._at_once = rows if self._whole else 1
        for shape in shapes if placement.compile else ():
            levels = torch.zeros(1, *shape, 3, dtype=torch.uint8, device=placement.device)
            self._batches.warm_up(levels, levels[..., :1])

    def __call__(self, images: Sequence[Image], masks: Sequence[Mask]) -> Painted:
        """Paint; see `Painter`. A GPU returns whole levels: a quarter of the download."""
        (height, width), device, pin = images[0].shape[:2], self._placement.device, self._placement.pin_memory
        parts = []
        for start in range(0, len(images), self._at_once):
            batch = slice(start, start + self._at_once)
            with torch.inference_mode():
                with self._phase("upload"):
                    pixels = upload([pad(image) for image in images[batch]], device, pin=pin)
                    region = upload([pad(mask.view(np.uint8)[:, :, None]) for mask in masks[batch]], device, pin=pin)
                with self._phase("infer"):
                    painted = self._batches(pixels, region)[:, :height, :width]
                with self._phase("download"):
                    parts.append((painted.round().byte() if self._whole else painted).cpu().numpy())
        return np.concatenate(parts)

    def _paint(self, pixels: Tensor, region: Tensor) -> Tensor:
        image, mask = (tensor.permute(0, 3, 1, 2).float() for tensor in (pixels, region))
        return paint(self._net, image / 255, mask, self._dtype).permute(0, 2, 3, 1) * 255


class LamaCleaner:
    """lama-cleaner's `LaMa` with a verified file, on images of one size at once.

    `path`: the TorchScript file; None for the network in torch with seeded random weights. `placement`: its device;
    always in fp32 and not compiled.
    Raises ValueError: the placement's precision is 16-bit, or the file is not TorchScript.
    """

    def __init__(self, path: Path | None, placement: Placement) -> None:
        if dtype_of(placement, best="fp32") != torch.float32:
            raise ValueError(
                f"implementation 'lama-cleaner' runs in fp32 only, not in {placement.precision}: choose 'eager'"
            )
        self._at_once = 1 if placement.device == "cpu" else None
        module = load_script(path) if path is not None else _Exported(load_generator(None))
        self.lama = _make_lama_class(module.eval().to(placement.device))(torch.device(placement.device))

    def __call__(self, images: Sequence[Image], masks: Sequence[Mask]) -> Painted:
        step = self._at_once or len(images)
        parts = [slice(start, start + step) for start in range(0, len(images), step)]
        return np.concatenate([self.lama.batch(images[part], masks[part]) for part in parts])


def _make_lama_class(module: nn.Module) -> Callable[[torch.device], Any]:
    """Return lama-cleaner's class with a loaded file; the original downloads a file, and does not verify one.

    Importing the package silences a category of warnings in the whole process; this is undone here. Its log to the
    terminal is turned off.
    """
    try:
        with warnings.catch_warnings():
            from lama_cleaner.helper import norm_img, pad_img_to_modulo
            from lama_cleaner.model.lama import LaMa
    except ImportError as error:
        raise ValueError(
            f"lama-cleaner is not installed ({error}): pip install --no-deps lama-cleaner==1.2.5, or --set "
            "inpaint.implementation=eager, which paints the same to one level of 255"
        ) from error
    from loguru import logger

    logger.disable("lama_cleaner")

    class VerifiedLama(LaMa):  # type: ignore[misc]
        min_size = MIN_SIDE

        def init_model(self, device: torch.device, **_: Any) -> None:  # noqa: ARG002
            self.model = module

        @torch.no_grad()
        def batch(self, images: Sequence[Image], masks: Sequence[Mask]) -> Painted:
            """Paint each image as its `__call__` does."""
            padding = {"mod": self.pad_mod, "min_size": self.min_size}
            pixels = [norm_img(pad_img_to_modulo(image, **padding)) for image in images]
            regions = [(norm_img(pad_img_to_modulo(mask.view(np.uint8) * 255, **padding)) > 0) * 1 for mask in masks]
            painted = self.model(*(torch.from_numpy(np.stack(part)).to(self.device) for part in (pixels, regions)))
            levels = np.clip(painted.permute(0, 2, 3, 1).cpu().numpy() * 255, 0, 255).astype("uint8")
            height, width = images[0].shape[:2]
            inside = np.stack(masks)[..., None]
            return np.where(inside, levels[:, :height, :width], np.stack(images)).astype(np.float32)

    return VerifiedLama


class _Exported(nn.Module):
    """The network with the interface of the published file."""

    def __init__(self, net: Generator) -> None:
        super().__init__()
        self.net = net

    def forward(self, image: Tensor, mask: Tensor) -> Tensor:
        return paint(self.net, image, mask.to(image.dtype))


def pad(image: NDArray[np.uint8]) -> NDArray[np.uint8]:
    """Pad an image (h w c) by reflection to the right and below, to sides that the network accepts."""
    extra = [max(MIN_SIDE, -(-side // STEP) * STEP) - side for side in image.shape[:2]]
    return np.pad(image, ((0, extra[0]), (0, extra[1]), (0, 0)), mode="symmetric") if any(extra) else image
