"""YuNet's output as faces, for all images of a call at once on their device: decoding and suppression.

As in OpenCV's FaceDetectorYN. The host waits once: a fixed number of each input's best cells is decoded, and suppressed
in a fixed number of rounds. A crowd has more cells above the threshold, or needs more rounds: its call is repeated with
more of both.

Shapes: r inputs of the network; m cells of all three grids of an input; k cells of each input that are decoded.
"""

import functools
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn.functional import pad

from framekiln.device import Phase, keep_while_used
from framekiln_stages.nets.faces.detections import Size, grid_cells
from framekiln_stages.nets.faces.yunet import OVERLAP
from framekiln_stages.shared.masks import pair_product

STRIDES = (8, 16, 32)  # opencv, modules/objdetect/src/face_detect.cpp
MOST = 5000  # cells of an input that are suppressed, there too
USUAL = 128  # cells at first: a face has about 15 passing ones, and a photo seldom more than eight faces
ROUNDS = 8  # first rounds of suppression
_VALUES = 16  # values of a cell
_ROW = 15  # values: x y width height, five points, score
_PAIRS = 16 << 20  # pairs of boxes compared at once: 0.4 GB


class Cells(NamedTuple):
    """The network's output for inputs of one size."""

    values: Tensor  # r m 16 float32: class, object, box (4), points (10)
    size: Size  # size of the inputs, before they were padded


def face_rows(outputs: Sequence[Cells], min_score: float, phase: Phase) -> list[NDArray[np.float32]]:
    """Return the rows of FaceDetectorYN for each input, n 15, highest score first."""
    count, rounds = USUAL, ROUNDS
    while True:
        with phase("infer"):
            rows, passing = _pick_rows(outputs, count, min_score)
            kept, settled = suppressed(rows[..., :4].trunc(), rows[..., -1] > 0, rounds)
            result = torch.cat([rows.flatten(1), kept.float(), passing[:, None], settled[:, None].float()], dim=1)
        with phase("download"):
            found = result.cpu().numpy()
        most = int(found[:, -2].max(initial=0))
        if most <= count and (found[:, -1].all() or rounds >= count):  # as many rounds as cells settle all
            break
        count, rounds = max(count, 1 << (most - 1).bit_length()), rounds * 4
    shown = found[:, : count * _ROW].reshape(-1, count, _ROW)
    return [own[is_kept > 0] for own, is_kept in zip(shown, found[:, count * _ROW : -2], strict=True)]


def _pick_rows(outputs: Sequence[Cells], count: int, min_score: float) -> tuple[Tensor, Tensor]:
    """Return the best cells' rows, r k 15 (score 0: they do not pass), and how many pass, r float32."""
    parts = [_pick_cells(cells, count, min_score) for cells in outputs]
    cells, scores, values, table, passing = (torch.cat(column) for column in zip(*parts, strict=True))
    # equal scores in the order of their cells, as on the host
    order = cells.sort(dim=1).indices
    order = order.gather(1, scores.gather(1, order).sort(dim=1, descending=True, stable=True).indices)
    scores = scores.gather(1, order)
    both = torch.cat([values, table], dim=2).gather(1, order[..., None].expand(-1, -1, _VALUES + 3))
    values, places, strides = both.split([_VALUES, 2, 1], dim=2)  # type: ignore[no-untyped-call]
    extent = values[..., 4:6].exp() * strides
    start = (places + values[..., 2:4]) * strides - extent / 2
    points = (values[..., 6:].reshape(*order.shape, 5, 2) + places[:, :, None]) * strides[..., None]
    rows = torch.cat([start, extent, points.flatten(2)], dim=2)
    valid = rows.isfinite().all(dim=2) & (scores >= min_score)
    return torch.cat([rows, (scores * valid)[..., None]], dim=2), passing


def _pick_cells(cells: Cells, count: int, min_score: float) -> tuple[Tensor, ...]:
    """Return the best cells' numbers (r k), scores (r k), values (r k 16) and places (r k 3), and how many pass."""
    scores = pair_product(cells.values[..., :2].clamp(0, 1)).sqrt()
    passing = (scores >= min_score).sum(dim=1).clamp(max=MOST).float()
    ranked, best = scores.topk(min(count, MOST, scores.shape[1]), dim=1)
    if missing := count - best.shape[1]:
        ranked, best = pad(ranked, (0, missing), value=-1), pad(best, (0, missing))
    values = cells.values.gather(1, best[..., None].expand(-1, -1, _VALUES))
    places = keep_while_used(_place_cells(cells.size, str(best.device)))
    return best, ranked, values, places[best], passing


def suppressed(boxes: Tensor, valid: Tensor, rounds: int) -> tuple[Tensor, Tensor]:
    """Return the boxes that stay, r k bools, and the inputs for which this is final, r bools.

    A box is dropped if it overlaps a better kept box by more than `OVERLAP`. All boxes are decided at once, in rounds;
    after k rounds at least the k best are final.

    `boxes`: r k 4, x y width height, the best first. `valid`: r k bools; others are dropped, and drop none. `rounds`:
    of decisions.
    """
    kept, settled = [], []
    at_once = max(1, _PAIRS // boxes.shape[1] ** 2)
    for own, is_valid in zip(torch.split(boxes, at_once), torch.split(valid, at_once), strict=True):
        drops = _compare_boxes(own) & is_valid[:, :, None]
        now = last = is_valid
        for _ in range(rounds):
            last, now = now, is_valid & ~(drops & now[:, :, None]).any(dim=1)
        kept.append(now)
        settled.append((last == now).all(dim=1))
    return torch.cat(kept), torch.cat(settled)


def _compare_boxes(boxes: Tensor) -> Tensor:
    """Return r k k bools: box i overlaps box j > i by more than the threshold; boxes r k 4."""
    start, extent = boxes[..., :2], boxes[..., 2:]
    end, area = start + extent, pair_product(extent)
    low = torch.maximum(start[:, :, None], start[:, None])
    common = pair_product((torch.minimum(end[:, :, None], end[:, None]) - low).clamp_(min=0))
    return (common > OVERLAP * (area[:, :, None] + area[:, None] - common)).triu(diagonal=1)


@functools.lru_cache(maxsize=64)  # images come in few sizes
def _place_cells(size: Size, device: str) -> Tensor:
    """Return column and row of each cell and the stride of its grid in px, m 3, on a device, uploaded once."""
    tables = []
    for stride in STRIDES:
        height, width = (-(-side // STRIDES[-1]) * STRIDES[-1] // stride for side in size)
        places = grid_cells(height, width)
        tables.append(np.concatenate([places, np.full((len(places), 1), stride, np.float32)], axis=1))
    with torch.inference_mode(mode=False):
        return torch.from_numpy(np.concatenate(tables)).to(device)
