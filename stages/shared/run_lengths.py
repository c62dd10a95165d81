"""COCO's compressed run lengths of masks on a device: only the pixels at which a run begins leave it.

A run's length is written in groups of five bits, the lowest first, each as a printable character; from the third run on
it is the difference from the length before the last, as in pycocotools (common/maskApi.c, `rleToString`).

Shapes: n masks, h height, w width; r runs of all masks.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    import torch

Ints = NDArray[np.int64]
GROUPS = 7  # of five bits: differences of lengths below 2^31 have 32
_FIRST = 48  # the character of 0


def encode_masks(masks: torch.Tensor) -> list[dict[str, Any]]:
    """Return masks (n w h bool, column by column) as values of `stages.shared.masks.SEGMENTATION`."""
    count, width, height = masks.shape
    if not count:
        return []
    starts = _run_starts(masks.reshape(count, width * height))
    rows, places = np.divmod(starts, width * height)
    edges = np.searchsorted(rows, np.arange(count + 1))
    lengths, firsts = _run_lengths(places, edges, width * height)
    texts, ends = _texts(lengths, firsts)
    return [
        {"size": [height, width], "counts": texts[start:end].decode("ascii")}
        for start, end in zip([0, *ends[:-1].tolist()], ends.tolist(), strict=True)
    ]


def decode_starts(counts: str) -> Ints:
    """Return the places at which the runs of a mask begin, without the first run of false pixels, from its text."""
    codes = np.frombuffer(counts.encode("ascii"), np.uint8).astype(np.int64) - _FIRST
    lasts = np.flatnonzero(~codes & 0x20)  # of each number's groups
    firsts = np.append(0, lasts[:-1] + 1)
    shifts = 5 * (np.arange(len(codes)) - np.repeat(firsts, lasts - firsts + 1))
    values = np.add.reduceat((codes & 0x1F) << shifts, firsts)
    values -= ((codes[lasts] & 0x10) > 0) * (np.int64(2) << (shifts[lasts] + 4))
    values[1::2] = values[1::2].cumsum()
    values[2::2] = values[2::2].cumsum()
    return values.cumsum()[:-1]


def _run_starts(pixels: torch.Tensor) -> Ints:
    """Return the positions at which a pixel differs from the one before it, in n masks of equal length after another.

    The first pixel of each mask follows a false one.
    """
    import torch

    changes = torch.cat([pixels[:, :1], pixels[:, 1:] != pixels[:, :-1]], dim=1).flatten()
    if changes.device.type == "cpu":
        return np.flatnonzero(changes.numpy())  # ten times as fast as torch's
    return changes.nonzero()[:, 0].to(torch.int32).cpu().numpy().astype(np.int64)


def _run_lengths(places: Ints, edges: Ints, pixels: int) -> tuple[Ints, Ints]:
    """Return the lengths of all masks' runs (r), and the number of each mask's first run (n), which is of false pixels.

    Args:
        places: of the starts of runs in their mask.
        edges: n + 1, of each mask in `places`.
        pixels: of a mask.
    """
    firsts = edges[:-1] + np.arange(len(edges) - 1)  # a mask has one run more than starts
    bounds = np.insert(places, edges[1:], pixels)
    lengths = np.diff(bounds, prepend=0)
    lengths[firsts] = bounds[firsts]
    return lengths, firsts


def _texts(lengths: Ints, firsts: Ints) -> tuple[bytes, Ints]:
    """Return the text of all runs, and the end of each mask's text in it (n)."""
    values = lengths.copy()
    values[2:] -= lengths[:-2]
    for offset in range(3):  # the first three runs of a mask are written as they are
        own = firsts + offset
        own = own[own < np.append(firsts[1:], len(lengths))]
        values[own] = lengths[own]
    # the least number of groups whose highest bit is the sign
    bits = np.int64(5) * np.arange(1, GROUPS) - 1
    sizes = 1 + ((values[:, None] >= (1 << bits)) | (values[:, None] < -(1 << bits))).sum(axis=1)
    groups = (values[:, None] >> (np.int64(5) * np.arange(GROUPS))) & 0x1F
    more = np.arange(GROUPS) < sizes[:, None] - 1
    characters = (groups + 0x20 * more + _FIRST).astype(np.uint8)
    text = characters[np.arange(GROUPS) < sizes[:, None]].tobytes()
    return text, np.add.reduceat(sizes, firsts).cumsum()
