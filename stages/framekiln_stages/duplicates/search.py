"""Pairs of copies among millions of hashes, in bounded memory.

Hashes of two copies share some 20 neighbouring bits. So only hashes that share such a band are compared. A close pair
is a copy; a less close pair must also look alike in its thumbnails.

Shapes: n pictures, w windows, p pairs; a hash is 16 bytes, a thumbnail 32 by 32 uint8.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from framekiln_stages.duplicates.detail import SAME, is_crop, measure_detail
from framekiln_stages.duplicates.hashes import BITS, SIDE, VIEWS, WINDOWS, Bytes, turn_hashes, turn_pictures

Ints = NDArray[np.int64]
Arrays = TypeVar("Arrays")

# Chosen on 500 photos and copies of each, and tried on 500 others (docs/measuring/accuracy.md). Of 125,000 pairs of
# strangers, windows and mirrors counted, the nearest differ in 32 bits, and each 3 bits less leave a tenth. So 12 bits
# leave one chance pair in the 5e11 of a million photos.
SURE = 12  # bits
FAR = 32  # bits; 0.99 of all copies lie within
ALIKE = 0.87  # correlation of thumbnails; the nearest 400 strangers had at most 0.81, copies beyond SURE more than 0.97
SLOPE = 0.0135  # for each bit: 0.6 at SURE, so that text or a logo may hide a fifth of a copy
NARROW, WIDE = 8, 20  # bits of a band: as many bands as pictures, so that strangers seldom share one
STEP = 4  # bits from one band to the next: with 8, 0.02 to 0.05 of the crops share none
MANY = 200_000  # pictures from which steps of 8 are used, so that a million takes a minute
CROWDED = 500  # pictures of a band to compare with: among thousands of copies each meets some
NEAREST = 8  # pairs of a picture that are checked for crops; each takes 0.3 ms
CHUNK = 1 << 14  # pictures with windows searched together: 0.5 GB at most


@dataclass(frozen=True, eq=False, kw_only=True)
class Pairs:
    """Pairs of pictures, each once."""

    first: Ints  # p; its `window` shows the second
    second: Ints
    window: Ints  # window of the first; 0: the whole
    view: Ints  # view of the second; an index of `VIEWS`
    distance: Ints  # bits of 128

    def choose(self, which: NDArray[np.bool_] | Ints) -> "Pairs":
        return Pairs(**{name: values[which] for name, values in vars(self).items()})

    def at(self, places: Ints) -> "Pairs":
        """Return the pairs with the indices of their pictures in a larger set."""
        return replace(self, first=places[self.first], second=places[self.second])


def concat(kind: type[Arrays], parts: Sequence[Arrays]) -> Arrays:
    """Return several records of arrays as one."""
    none = np.empty(0, np.int64)
    return kind(
        **{name: np.concatenate([none, *(vars(part)[name] for part in parts)]) for name in kind.__annotations__}
    )


def find_lone(hashes: Bytes) -> tuple[Ints, Ints]:
    """Return the first picture of each hash (n w 16), and for all n pictures the index of the one with their hash."""
    _, lone, place = np.unique(np.ascontiguousarray(hashes[:, 0]).view("V16"), return_index=True, return_inverse=True)
    return lone, place.ravel()


def find_copies(hashes: Bytes, thumbnails: Bytes, fresh: NDArray[np.bool_] | None = None) -> Pairs:
    """Return the pairs of copies among pictures, from the hashes of their windows (n w 16) and thumbnails (n 32 32).

    No two have the same hash. At least one picture of a pair is `fresh` (n); None: all are.
    """
    pairs = find_near(hashes, FAR, range(len(VIEWS)), fresh)
    sure = pairs.distance <= SURE
    doubtful = pairs.choose(np.flatnonzero(~sure))
    alike = correlate(doubtful, thumbnails)
    doubtful = doubtful.choose(alike >= ALIKE - SLOPE * (FAR - doubtful.distance))
    return concat(Pairs, [pairs.choose(sure), doubtful.choose(_show_same(doubtful, thumbnails))])


def _show_same(pairs: Pairs, thumbnails: Bytes) -> NDArray[np.bool_]:
    """Return which pairs show the same detail: whole pictures directly, others if one is a crop of the other.

    Only the nearest pairs of a picture are checked: among a thousand objects on white, each is near many.
    """
    same = np.zeros(len(pairs.first), np.bool_)
    for view in range(len(VIEWS)):
        at = np.flatnonzero((pairs.window == 0) & (pairs.view == view))
        for part in np.array_split(at, max(1, len(at) // CHUNK)):
            first = turn_pictures(thumbnails[pairs.first[part]], view).astype(np.float32)
            same[part] = measure_detail(first, thumbnails[pairs.second[part]].astype(np.float32)) >= SAME
    seen = np.zeros(len(thumbnails), np.int64)
    left = np.flatnonzero(~same)
    for pair in left[np.argsort(pairs.distance[left], kind="stable")]:
        ends = [pairs.first[pair], pairs.second[pair]]
        if seen[ends].max() < NEAREST:
            seen[ends] += 1
            picture = turn_pictures(thumbnails[ends[:1]], int(pairs.view[pair]))[0]
            same[pair] = is_crop(picture, thumbnails[ends[1]], int(pairs.window[pair]))
    return same


def add_equal(pairs: Pairs, lone: Ints, place: Ints) -> Pairs:
    """Return the pairs of lone pictures as pairs of all, plus those of equal hashes; see `find_lone`."""
    same = np.flatnonzero(lone[place] != np.arange(len(place)))  # among thousands, each is compared with one
    none = np.zeros(len(same), np.int64)
    equal = Pairs(first=lone[place[same]], second=same, window=none, view=none, distance=none)
    return concat(Pairs, [pairs.at(lone), equal])


def find_near(hashes: Bytes, most: int, looks: Sequence[int] = (0, 1), fresh: NDArray[np.bool_] | None = None) -> Pairs:
    """Return the pairs with hashes (n w 16) that differ in at most `most` bits, each with its nearest window and view.

    `looks`: indices of `VIEWS` in which windows are also searched. One picture of a pair is `fresh` (n); None: all are.
    """
    places = np.arange(len(hashes))
    new, old = (places, places[:0]) if fresh is None else (np.flatnonzero(fresh), np.flatnonzero(~fresh))
    searches = [(new, places), (old, new)] if len(old) else [(places, places)]
    searches = searches if len(new) else []
    every = concat(Pairs, [part for asked, among in searches for part in _search(hashes, most, looks, asked, among)])
    low, high = np.minimum(every.first, every.second), np.maximum(every.first, every.second)
    order = np.lexsort((every.view, every.window, every.distance, high, low))
    first = np.ones(len(order), np.bool_)
    first[1:] = (np.diff(low[order]) != 0) | (np.diff(high[order]) != 0)
    return every.choose(order[first])


def _search(hashes: Bytes, most: int, looks: Sequence[int], asked: Ints, among: Ints) -> Iterator[Pairs]:
    """Yield pairs by each band: `asked` pictures by windows, mirrored or turned, with whole ones `among` others."""
    width = int(np.clip(np.ceil(np.log2(max(len(hashes), 2))), NARROW, WIDE))
    own_hashes = hashes if len(asked) == len(hashes) else hashes[asked]
    views = [own_hashes if view == 0 else turn_hashes(own_hashes[:, 0], view)[:, None] for view in looks]
    words = [np.ascontiguousarray(part).view(">u8").astype(np.uint64) for part in views]
    whole = np.ascontiguousarray(hashes[among, 0]).view(">u8").astype(np.uint64)
    step = STEP if len(hashes) < MANY else 2 * STEP
    for at in range(0, BITS - width + 1, step):
        keys = _read_band(whole, at, width)
        order = np.argsort(keys, kind="stable")
        edges = np.searchsorted(keys[order], np.arange((1 << width) + 1, dtype=np.uint64)).astype(np.int32)
        sizes = np.minimum(np.diff(edges), CROWDED)
        for start in range(0, len(asked), CHUNK):
            for view, looked in zip(looks, (part[start : start + CHUNK] for part in words), strict=True):
                key = _read_band(looked, at, width).ravel()
                hit = np.flatnonzero(sizes[key])
                begin, size = edges[key[hit]], sizes[key[hit]]
                query = np.repeat(hit, size)
                other = order[np.arange(len(query)) + np.repeat(begin - np.cumsum(size) + size, size)]
                own, window = np.divmod(query, looked.shape[1])
                distance = np.bitwise_count(looked.reshape(-1, 2)[query] ^ whole[other]).sum(axis=1, dtype=np.int64)
                near = np.flatnonzero((distance <= most) & (asked[own + start] != among[other]))
                yield Pairs(
                    first=asked[own[near] + start],
                    second=among[other[near]],
                    window=window[near],
                    view=np.full(len(near), view),
                    distance=distance[near],
                )


def _read_band(words: NDArray[np.uint64], at: int, width: int) -> NDArray[np.uint64]:
    """Return `width` bits of hashes, from bit `at` on, as two words (... 2)."""
    end = at + width
    high, low = words[..., 0], words[..., 1]
    if end <= 64:
        found = high >> np.uint64(64 - end)
    else:
        found = low >> np.uint64(128 - end)
        found |= high << np.uint64(end - 64) if at < 64 else np.uint64(0)
    return found & np.uint64((1 << width) - 1)


def correlate(pairs: Pairs, thumbnails: Bytes) -> NDArray[np.float32]:
    """Return the correlation of the first's window and the whole second, -1 to 1, at 16 by 16 px."""
    alike = np.empty(len(pairs.first), np.float32)
    for window in np.unique(pairs.window):
        for view in range(len(VIEWS)):
            at = np.flatnonzero((pairs.window == window) & (pairs.view == view))
            for part in np.array_split(at, max(1, len(at) // CHUNK)):
                first = _cut(turn_pictures(thumbnails[pairs.first[part]], view), int(window))
                second = _cut(thumbnails[pairs.second[part]], 0)
                alike[part] = (_normalise(first) * _normalise(second)).sum(axis=(1, 2))
    return alike


def _cut(thumbnails: Bytes, window: int) -> NDArray[np.float32]:
    rows, columns = (_weigh(*ends) for ends in WINDOWS[window])
    return np.asarray(rows @ thumbnails.astype(np.float32) @ columns.T, np.float32)


def _weigh(start: float, stop: float) -> NDArray[np.float32]:
    """Return each of 32 px's share of each of 16 cells between two fractions of a side."""
    edges = SIDE * (start + (stop - start) * np.arange(17) / 16)
    pixels = np.arange(SIDE)
    low, high = np.maximum(edges[:-1, None], pixels), np.minimum(edges[1:, None], pixels + 1)
    return (np.maximum(high - low, 0) / np.diff(edges)[:, None]).astype(np.float32)


def _normalise(images: NDArray[np.float32]) -> NDArray[np.float32]:
    level = images - images.mean(axis=(1, 2), keepdims=True)
    return level / np.maximum(np.sqrt((level**2).sum(axis=(1, 2), keepdims=True)), 1e-6)


def label_linked(first: Ints, second: Ints, nodes: int) -> Ints:
    """Return the group of each node (`nodes`): pairs link nodes, directly or through others."""
    from scipy.sparse import coo_array  # imported here: it takes a fifth of a plan's time
    from scipy.sparse.csgraph import connected_components

    graph = coo_array((np.ones(len(first), bool), (first, second)), shape=(nodes, nodes))
    return np.asarray(connected_components(graph, directed=False)[1], np.int64)
