"""Calls of the mask decoder: the prompts of several views in tensors of few shapes.

Shapes: p prompts of k points; r views in a call, q prompts of each view in it; f values of a view's features.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from framekiln.device import indices_by_key, torch
from framekiln_stages.shared.device_images import numbers_on
from framekiln_stages.shared.point_prompts import POINT, Prompt


@dataclass(frozen=True, kw_only=True)
class PromptSet:
    """Prompts with equally many points, on the device."""

    numbers: torch.Tensor  # p int64, in the list of all prompts of a frame
    points: torch.Tensor  # p k 2 float32, shares of width and height
    labels: torch.Tensor  # p k int64


def grid_set(points: NDArray[np.float32], device: str) -> PromptSet:
    """Return a prompt for each point (p 2)."""
    where = torch.from_numpy(points[:, None]).to(device)
    labels = torch.full(where.shape[:2], POINT, device=device)
    return PromptSet(numbers=torch.arange(len(points), device=device), points=where, labels=labels)


def prompt_sets(prompts: Sequence[Prompt], device: str) -> list[PromptSet]:
    """Return prompts by their number of points."""
    return [
        PromptSet(
            numbers=numbers_on(device, np.array(group)),
            points=numbers_on(device, np.stack([prompts[i].points for i in group])),
            labels=numbers_on(device, np.stack([prompts[i].labels for i in group])),
        )
        for group in indices_by_key(len(prompt.labels) for prompt in prompts)
    ]


@dataclass(frozen=True, kw_only=True)
class Decoding:
    """Consecutive prompts of a set for one view: a row of a call."""

    row: int  # row of the view's features
    prompts: PromptSet
    start: int
    count: int

    @property
    def numbers(self) -> torch.Tensor:
        return self.prompts.numbers[self.start : self.start + self.count]

    def size(self, most: int) -> int:
        """Return a power of two that holds all prompts of the set; at most `most`."""
        return min(most, 1 << (len(self.prompts.numbers) - 1).bit_length())

    def padded(self, size: int) -> tuple[torch.Tensor, torch.Tensor]:
        """Return points (q k 2) and labels (q k), the last prompt repeated up to `size`."""
        own = slice(self.start, self.start + self.count)
        parts = self.prompts.points[own], self.prompts.labels[own]
        missing = size - self.count
        if not missing:
            return parts
        points, labels = (torch.cat([part, part[-1:].expand(missing, *part.shape[1:])]) for part in parts)
        return points, labels

    @staticmethod
    def calls(parts: Sequence[Decoding], most: int, *, alone: bool) -> Iterator[DecoderCall]:
        """Yield calls of at most `most` prompts, from parts of one shape; `alone`: of one part each, not padded."""
        keys = [(part.count if alone else part.size(most), part.prompts.labels.shape[1]) for part in parts]
        for group in indices_by_key(keys):
            size = keys[group[0]][0]
            rows = 1 if alone else max(1, most // size)
            for start in range(0, len(group), rows):
                yield DecoderCall(parts=[parts[i] for i in group[start : start + rows]], shape=(size, rows))


@dataclass(frozen=True, kw_only=True)
class DecoderCall:
    """Rows of one shape."""

    parts: list[Decoding]
    shape: tuple[int, int]  # prompts of a row, and the most rows of a call

    def inputs(self, features: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """Return features (r f), points (r q k 2) and labels (r q k) of the call's rows."""
        padded = [part.padded(self.shape[0]) for part in self.parts]
        own = [features[part.row : part.row + 1] for part in self.parts]
        points, labels = (torch.stack(column) for column in zip(*padded, strict=True))
        return (own[0] if len(own) == 1 else torch.cat(own)), points, labels
