"""Photos of one scene: a burst, a video's frames as files, a second try a moment later.

Comparing all pairs of a million photos under all shifts is impossible, and unnecessary: photos of one scene are
neighbours by name or by time. So each is compared with the next few.

Shapes: n photos, p pairs; a thumbnail is 32 by 32 uint8.
"""

import itertools
import re
from collections.abc import Iterator

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from framekiln.contract import FRAME_INDEX, MEDIA_ID, Table, field
from framekiln_stages.duplicates.best import TAGS
from framekiln_stages.duplicates.hashes import SIDE, Bytes
from framekiln_stages.duplicates.search import Ints

Floats = NDArray[np.float32]

# Chosen on frames of a bird, a game and a room, and on 50 strangers (docs/measuring/accuracy.md): cells of a side, and
# the correlation at the best shift by an eighth. Strangers had at most 0.81. The first takes an eighth of the time.
LEVELS = ((8, 0.7), (16, 0.85))
REACH = 3  # next photos to compare: one blurred or hidden photo does not end a burst
TOGETHER_S = 60.0  # s between photos of one camera
CHUNK = 4096  # pairs compared at once
_NUMBER = re.compile(r"\d+")

SCENES = Table(
    schema=pa.schema(
        [MEDIA_ID, FRAME_INDEX, field("scene", pa.string(), "media_id of its scene's first photo", nullable=False)]
    ),
    keys=("media_id", "frame_index"),
    description="a row for each photo of a scene with several photos, copies included",
)


def find_neighbours(rows: pa.Table, thumbnails: Bytes) -> tuple[Ints, Ints]:
    """Return the pairs (p, p) of n photos that are neighbours and look alike.

    `rows`: their names, and the camera's tags if the run has them. `thumbnails`: n 32 32.
    """
    keys = [np.minimum(*pair) * len(rows) + np.maximum(*pair) for pair in _list_beside(rows)]
    first, second = np.divmod(np.unique(np.concatenate([np.empty(0, np.int64), *keys])), max(1, len(rows)))
    for cells, least in LEVELS:
        alike = np.empty(len(first), np.bool_)
        for start in range(0, len(first), CHUNK):
            part = slice(start, start + CHUNK)
            alike[part] = _correlate(thumbnails[first[part]], thumbnails[second[part]], cells) >= least
        first, second = first[alike], second[alike]
    return first, second


def _list_beside(rows: pa.Table) -> Iterator[tuple[Ints, Ints]]:
    """Yield pairs of photos that are neighbours by name in a folder, or by a camera's time."""
    names = rows["media_id"].to_pylist()
    order = sorted(range(len(names)), key=lambda at: _NUMBER.sub(lambda found: found[0].zfill(20), names[at]))
    folders = _number(pa.chunked_array([[name.rpartition("/")[0] for name in names]], pa.string()))
    yield from _pair(np.array(order, np.int64), folders, np.zeros(len(names)), 0.0)
    if set(TAGS) <= set(rows.column_names):
        cameras = _number(rows["camera_model"])
        times = rows["taken_at"].cast(pa.int64()).to_numpy() / 1e6
        order_in_time = np.lexsort((times, cameras))
        yield from _pair(order_in_time[cameras[order_in_time] >= 0], cameras, times, TOGETHER_S)


def _pair(order: Ints, groups: Ints, times: NDArray[np.float64], most_s: float) -> Iterator[tuple[Ints, Ints]]:
    """Yield pairs of one ordered group with times (n) close enough; NaN is far from all."""
    for step in range(1, REACH + 1):
        first, second = order[:-step], order[step:]
        beside = (groups[first] == groups[second]) & (times[second] - times[first] <= most_s)
        yield first[beside], second[beside]


def _number(column: pa.ChunkedArray) -> Ints:
    """Return a number (n) for each distinct text; -1 for null."""
    codes = pc.dictionary_encode(column).combine_chunks().indices
    return np.asarray(codes.fill_null(-1).to_numpy(), np.int64)


def _correlate(first: Bytes, second: Bytes, cells: int) -> Floats:
    """Return the correlation of pairs of thumbnails (p 32 32), -1 to 1, under the best shift."""
    own, other = _reduce(first, cells), _reduce(second, cells)
    best = np.full(len(first), -1.0, np.float32)
    for shift in itertools.product(range(-cells // 8, cells // 8 + 1), repeat=2):
        here, there = (tuple(slice(max(0, s * by), cells + min(0, s * by)) for by in shift) for s in (1, -1))
        a, b = own[here], other[there]
        spread = np.sqrt(np.maximum(_multiply(a, a) * _multiply(b, b), 1.0))
        best = np.maximum(best, _multiply(a, b) / spread)
    return best


def _reduce(thumbnails: Bytes, cells: int) -> Floats:
    """Return cells of thumbnails (cells cells p); pairs come last, as sums over the others are fastest so."""
    step = SIDE // cells
    found = np.zeros((len(thumbnails), cells, cells), np.float32)
    for y, x in itertools.product(range(step), repeat=2):
        found += thumbnails[:, y::step, x::step]
    return np.ascontiguousarray(np.moveaxis(found - found.mean(axis=(1, 2), keepdims=True), 0, 2))


def _multiply(a: Floats, b: Floats) -> Floats:
    """Return the sums of products of deviations from the means (p), over cells (h w p)."""
    ones = np.ones(a.shape[:2], np.float32)
    means = [np.einsum("ij,ijp->p", ones, cells) for cells in (a, b)]
    return np.asarray(np.einsum("ijp,ijp->p", a, b) - means[0] * means[1] / ones.size, np.float32)
