"""Images of a call on the device, each uploaded once, and samples of many places in them in one call.

Crops of faces differ in place, size and angle. Cut one by one, a GPU would wait for their launches. Here a few
operations cut all crops of all images: one tensor holds the pixels of all images in sequence, and each sample has its
own index. A crop smaller than its part of the image averages pixels, by sums over rectangles (Crow 1984, summed-area
tables).

Shapes: m images of any sizes; n crops of a b samples each; levels are R, G, B from 0 to 255. Coordinates are x, y in px
of an image, where a pixel's centre is a whole number; there is black outside the image.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
from numpy.typing import NDArray

from framekiln.contract import Image, Placement
from framekiln.device import Phase, indices_by_key, torch, untimed, upload_all

PART_PIXELS = 16 << 20  # pixels of the images in one table of sums: 192 MB
_WHOLE = 2**31 // 255  # px of an image: sums stay below 2^31


class DeviceImages:
    """Images on a device; `pixels` holds them all row by row, p 3 uint8.

    `images`: h w 3 each. `placement`: its device and its `pin_memory`. `phase`: times the copy as an upload.
    """

    def __init__(self, images: Sequence[Image], placement: Placement, phase: Phase = untimed) -> None:
        self._images = list(images)
        self.shapes = [(image.shape[0], image.shape[1]) for image in images]
        order = [number for group in indices_by_key(self.shapes) for number in group]
        sizes = np.array([self.shapes[number][0] * self.shapes[number][1] for number in order], np.int64)
        self._starts = np.empty(len(images), np.int64)
        self._starts[order] = np.cumsum(sizes) - sizes
        with phase("upload"):
            flat = upload_all([images[number] for number in order], placement.device, pin=placement.pin_memory)
        self.pixels = flat.view(-1, 3)

    def __len__(self) -> int:
        return len(self.shapes)

    def place(self, number: int) -> tuple[int, int, int]:
        """Return the first pixel of an image in `pixels`, and its height and width."""
        return int(self._starts[number]), *self.shapes[number]

    def numbers(self, images: Sequence[Image]) -> list[int]:
        """Return the indices of some of the images, which must be the same arrays."""
        known = {id(image): number for number, image in enumerate(self._images)}
        return [known[id(image)] for image in images]

    def stacked(self, numbers: Sequence[int]) -> torch.Tensor:
        """Return images of one size, k h w 3 uint8; a view if all images have it, in order."""
        (height, width), first = self.shapes[numbers[0]], int(self._starts[numbers[0]])
        size = height * width
        if all(self._starts[number] == first + i * size for i, number in enumerate(numbers)):
            return self.pixels[first : first + len(numbers) * size].view(-1, height, width, 3)
        parts = [self.pixels[int(start) : int(start) + size] for start in self._starts[list(numbers)]]
        return torch.stack(parts).view(-1, height, width, 3)

    def parts(self, owners: NDArray[np.int64]) -> Iterator[tuple[NDArray[np.intp], PixelSums]]:
        """Yield indices of crops with the pixel sums of their images; `owners`: n, the index of each crop's image."""
        numbers = np.unique(owners)
        pixels = np.array([np.prod(self.shapes[number]) for number in numbers], np.int64)
        turns = np.cumsum(pixels) // PART_PIXELS
        for turn in np.unique(turns):
            own = numbers[turns == turn]
            yield np.flatnonzero(np.isin(owners, own)), PixelSums(self, own.tolist())


class PixelSums:
    """For each pixel of some images, the sum of the levels above it and to its left.

    `images`: on a device. `numbers`: of the sampled images.
    """

    def __init__(self, images: DeviceImages, numbers: Sequence[int]) -> None:
        shapes = [images.shapes[number] for number in numbers]
        largest = max(height * width for height, width in shapes)
        dtype = torch.int32 if largest < _WHOLE else torch.int64
        tables, start = [], 0
        self._places = np.zeros((len(images), 3), np.int64)  # start of a table, height and width of the image
        for group in indices_by_key(shapes):
            own, (height, width) = [numbers[i] for i in group], shapes[group[0]]
            sums = images.stacked(own).cumsum(dim=1, dtype=dtype).cumsum_(dim=2)
            tables.append(torch.nn.functional.pad(sums, (0, 0, 1, 0, 1, 0)).view(-1, 3))
            size = (height + 1) * (width + 1)
            self._places[own] = [(start + i * size, height, width) for i in range(len(own))]
            start += len(own) * size
        self._sums = tables[0] if len(tables) == 1 else torch.cat(tables)

    def bilinear(
        self,
        owners: NDArray[np.int64],
        maps: NDArray[np.float64],
        sides: tuple[int, int],
        *,
        shrink: NDArray[np.int64] | None = None,
        limits: NDArray[np.float64] | None = None,
    ) -> torch.Tensor:
        """Return crops by bilinear samples, n a b 3 uint8.

        Args:
            owners: n, the image of each crop.
            maps: n 2 3, from x, y, 1 of a crop to coordinates of its image.
            sides: a and b.
            shrink: n, px; an image is first averaged over squares of this side, as by OpenCV's INTER_AREA.
            limits: n 2 2, the least and the greatest coordinate in x and in y; beyond, the last one is repeated.
        """
        count = len(owners)
        averaged = np.ones(count, np.int64) if shrink is None else shrink
        places = np.concatenate([self._places[owners], averaged[:, None]], axis=1)
        edges = np.full((count, 2, 2), [-np.inf, np.inf]) if limits is None else limits
        numbers = self._upload(np.hstack([maps.reshape(count, 6), edges.reshape(count, 4)]).astype(np.float32))
        start, height, width, side = self._upload(places).view(count, 1, 1, 4).unbind(-1)
        a, b, c, d, e, f, *ends = numbers.view(count, 1, 1, 10).unbind(-1)
        down, across = (torch.arange(length, device=numbers.device) for length in sides)
        x, y = (scale * across + turn * down[:, None] + shift for scale, turn, shift in ((a, b, c), (d, e, f)))
        limited = (x.maximum(ends[0]).minimum(ends[1]), y.maximum(ends[2]).minimum(ends[3]))
        squares = [(value - (side - 1) / 2) / side for value in limited]
        lows = [square.floor() for square in squares]
        steps = torch.arange(3, device=numbers.device).view(3, 1, 1, 1)
        left, top = ((low.long() + steps) * side for low in lows)  # 3 n a b: edges of two squares
        left = left.clamp(min=0).minimum(width // side * side)
        top = top.clamp(min=0).minimum(height // side * side)
        sums = self._sums[start + top[:, None] * (width + 1) + left].diff(dim=0).diff(dim=1)  # 2 2 n a b 3
        means = (sums / (side * side)[..., None] + 0.5).floor()  # halves up, as for squares of 2 px
        rows = means[:, 0].lerp(means[:, 1], (squares[0] - lows[0])[..., None])
        return rows[0].lerp(rows[1], (squares[1] - lows[1])[..., None]).round().byte()

    def areas(self, owners: NDArray[np.int64], edges: NDArray[np.float64]) -> torch.Tensor:
        """Return crops by means over rectangles, n s s 3 uint8, as by OpenCV's INTER_AREA.

        `owners`: n, the image of each crop. `edges`: n 2 s+1, the edges of columns and of rows; 0 is the outer edge of
        the first pixel.
        """
        start, height, width = self._upload(self._places[owners]).view(-1, 1, 1, 3).unbind(-1)
        places = self._upload(edges)
        across = places[:, 0, None, :].clamp(min=0).minimum(width)  # n 1 s+1
        down = places[:, 1, :, None].clamp(min=0).minimum(height)
        steps = torch.arange(2, device=places.device).view(2, 1, 1, 1)
        left, top = ((part.long() + steps) for part in (across, down))
        index = start + top.minimum(height)[:, None] * (width + 1) + left.minimum(width)
        sums = self._sums[index].double()  # 2 2 n s+1 s+1 3
        rows = sums[:, 0].lerp(sums[:, 1], across.frac()[..., None])
        whole = rows[0].lerp(rows[1], down.frac()[..., None]).diff(dim=1).diff(dim=2)
        sizes = places.diff(dim=2)
        return (whole / (sizes[:, 1, :, None] * sizes[:, 0, None, :])[..., None]).round().byte()

    def _upload(self, values: NDArray[np.generic]) -> torch.Tensor:
        return numbers_on(self._sums.device, values)


def numbers_on(device: torch.device | str, values: NDArray[np.generic]) -> torch.Tensor:
    """Return an array of any shape and type as a tensor on a device; the CPU does not wait for the copy."""
    return torch.from_numpy(values).to(device, non_blocking=True)
