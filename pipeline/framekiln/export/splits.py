"""Splits for training, validation and test that never divide related rows.

In training a model may see a frame's neighbour, a copy of a photo or another photo of a person. Then it looks better in
the test than it is. So rows are linked by files, shots, people and copies. Linked rows form a group, which lies in one
split.

Positions follow from hashes of file names, so equal rows are in the same splits everywhere and in any order. After
adding files, others move only if shares or groups changed: of photos without copies, a few.
"""

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from hashlib import blake2b
from itertools import groupby

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray
from scipy.sparse import coo_array
from scipy.sparse.csgraph import connected_components

from framekiln.contract.columns import KEYS, FrameKey
from framekiln.export.request import WHOLE, ExportRequest
from framekiln.output.object_store import Store
from framekiln.selection.rows import Rows

Ints = NDArray[np.int64]

Chosen = Mapping[str, frozenset[int]]
"""Chosen frames of each file."""


def by_file(rows: pa.Table) -> Chosen:
    """Return the frames of each file."""
    found = defaultdict[str, set[int]](set)
    for media_id, frame_index in zip(*(rows[key].to_pylist() for key in KEYS), strict=True):
        found[media_id].add(frame_index)
    return {media_id: frozenset(indices) for media_id, indices in found.items()}


_FAR = 0.1  # relative deviation of a split from its share that is reported: 9 % of rows instead of 10 %
_TABLES = {
    **{"person": "identities", "shot": "shots"},
    **{"duplicate": "duplicates", "scene": "scenes", "film copy": "film_copies"},
}
_WORDS = {
    "file": ("file", "files"),
    "person": ("person", "people"),
    "shot": ("shot", "shots"),
    "duplicate": ("group of copies", "groups of copies"),
    "scene": ("scene", "scenes"),
    "film copy": ("part that films share", "parts that films share"),
}
_MARGIN_S = 1.0  # s around a shared part: `duplicates` compares a few frames a second
_PARTS = (
    "SELECT row_number() OVER () AS part, unnest([media_id, other_media_id]) AS media_id, "
    "unnest([start_s, other_start_s]) AS begin_s, unnest([end_s, other_end_s]) AS last_s FROM film_copies"
)
_QUESTIONS = {
    "file": "SELECT place, media_id AS name FROM chosen",
    "person": "SELECT place, identity AS name FROM chosen JOIN identities USING (media_id, frame_index)",
    "shot": "SELECT place, chosen.media_id || chr(0) || coalesce(shot, -1) AS name FROM chosen LEFT JOIN shots "
    "ON chosen.media_id = shots.media_id AND frame_index BETWEEN first_frame AND last_frame",
    "duplicate": 'SELECT place, "group" AS name FROM chosen JOIN duplicates USING (media_id, frame_index)',
    "scene": "SELECT place, scene AS name FROM chosen JOIN scenes USING (media_id, frame_index)",
    "film copy": f"SELECT place, part AS name FROM ({_PARTS}) AS parts JOIN chosen USING (media_id) "  # noqa: S608
    f"JOIN frames USING (media_id, frame_index) "
    f"WHERE time_s BETWEEN begin_s - {_MARGIN_S} AND last_s + {_MARGIN_S}",
}


@dataclass(frozen=True, kw_only=True)
class Links:
    """Related rows, for one reason: equal names among n rows."""

    kind: str
    places: Ints  # rows' places; a row may have several names, or none
    names: pa.Array  # names of any type


@dataclass(frozen=True, kw_only=True)
class Splits:
    """The split of each frame, and notes on it."""

    names: tuple[str, ...] = (WHOLE,)
    lines: tuple[str, ...] = ()  # sizes, the proof that no group is divided, and deviations from the request
    places: Mapping[str, int | Mapping[int, int]] = field(default_factory=dict)
    """Index of a file's split, or for a divided file of each frame's."""

    def of(self, media_id: str, frame_index: int) -> str:
        place = self.places.get(media_id, 0)
        return self.names[place if isinstance(place, int) else place[frame_index]]


def make_splits(store: Store, request: ExportRequest, chosen: Chosen) -> Splits:
    """Return the splits of a request; without a request all frames are in one split.

    Rows of one file stay together; with `person` also those of one person. With `shot` a video's shots may be in
    different splits. Copies and photos of one scene always stay together, if the output has their tables. Raises
    ConfigError: the request needs a table that the output lacks.
    """
    if request.split is None:
        return Splits()
    pairs = [(name, index) for name in sorted(chosen) for index in sorted(chosen[name])]
    shares = np.array(list(request.shares.values())) / sum(request.shares.values())
    names = tuple(request.shares)
    links = list(_read_links(store, pairs, request.by))
    groups = _join(links, len(pairs))
    of_row = place_groups(np.bincount(groups), _hash_groups(links[0], groups), shares)[groups]
    leaks = {link.kind: count_leaks(link, of_row) for link in links}
    counts = [(len(link.names.unique()), _WORDS[link.kind]) for link in links]
    looked = ", ".join(f"{number:,} {words[number != 1]}" for number, words in counts)
    lines = (
        *_describe_sizes(groups, of_row, dict(zip(names, shares, strict=True))),
        f"{sum(leaks.values())} groups in two splits: {looked} looked at.",
        *([] if "duplicate" in leaks else ["Copies were not looked for: this output has no table `duplicates`."]),
    )
    return Splits(names=names, lines=lines, places=_list_places(pairs, of_row))


def _list_places(pairs: Sequence[FrameKey], of_row: Ints) -> dict[str, int | Mapping[int, int]]:
    """Return the split of each file, or of its frames if they are in several."""
    places: dict[str, int | Mapping[int, int]] = {}
    for name, part in groupby(zip(pairs, of_row.tolist(), strict=True), key=lambda item: item[0][0]):
        frames = {index: split for (_, index), split in part}
        places[name] = frames if len(set(frames.values())) > 1 else next(iter(frames.values()))
    return places


def _read_links(store: Store, pairs: Sequence[FrameKey], by: str) -> Iterator[Links]:
    """Yield the links of rows; the first ones cover every row."""
    names, indices = zip(*pairs, strict=True)
    keys = {"media_id": pa.array(names), "frame_index": pa.array(indices, pa.int32())}
    rows, tables = Rows(store), store.folders()
    rows.connection.register("chosen", pa.table({**keys, "place": pa.array(range(len(pairs)), pa.int64())}))
    wanted = [
        "shot" if by == "shot" else "file",
        *(["person"] if by == "person" else []),
        "duplicate",
        "scene",
        "film copy",
    ]
    for kind in wanted:
        table = _TABLES.get(kind, "")
        if table and not ((kind == by or table in tables) and rows.register(table, for_name=f"by {by}")):
            continue
        found = rows.connection.sql(_QUESTIONS[kind]).filter("name IS NOT NULL").order("place, name")
        answer = found.to_arrow_table()
        yield Links(kind=kind, places=answer["place"].to_numpy(), names=answer["name"].combine_chunks())


def _join(links: Sequence[Links], count: int) -> Ints:
    """Return the group number of each of `count` rows: rows of one name, and all rows linked through them."""
    nodes, edges = count, []
    for link in links:
        numbers = link.names.dictionary_encode().indices.to_numpy().astype(np.int64)
        edges.append(np.stack([link.places, nodes + numbers]))
        nodes += int(numbers.max(initial=-1)) + 1
    ends = np.concatenate(edges, axis=1)
    graph = coo_array((np.ones(ends.shape[1], bool), (ends[0], ends[1])), shape=(nodes, nodes))
    found = connected_components(graph, directed=False)[1][:count]
    return np.unique(found, return_inverse=True)[1].astype(np.int64)


def _hash_groups(link: Links, groups: Ints) -> NDArray[np.float64]:
    """Return a number from 0 to 1 for each group, from one of its names; it rarely changes when the group grows."""
    names = link.names.dictionary_encode()
    hashes = np.array([_hash(str(name)) for name in names.dictionary.to_pylist()], np.uint64)
    least = np.full(int(groups.max(initial=-1)) + 1, np.iinfo(np.uint64).max, np.uint64)
    np.minimum.at(least, groups[link.places], hashes[names.indices.to_numpy()])
    # the least of many hashes is small, so another hash of it is the group's position
    return np.array([_hash(str(value)) / 2**64 for value in least.tolist()])


def _hash(text: str) -> int:
    return int.from_bytes(blake2b(text.encode(), digest_size=8).digest())


def place_groups(sizes: Ints, points: NDArray[np.float64], shares: NDArray[np.float64]) -> Ints:
    """Return the split of each group: the one at its point among the shares, if it still fits there.

    Large groups come first, so that small ones fill the rest. A group that does not fit goes to the split with the most
    room. So no split exceeds its share by a whole group, and groups of one row miss it by less than one row.

    Args:
        sizes: rows of each of k groups.
        points: of each group, 0 to 1.
        shares: of each split, in sum 1.
    """
    room = shares * sizes.sum()
    liked = np.searchsorted(np.cumsum(shares)[:-1], points, side="right")
    chosen = np.zeros(len(sizes), np.int64)
    for group in np.lexsort((points, -sizes)):
        best = liked[group] if sizes[group] <= room[liked[group]] else room.argmax()
        chosen[group] = best
        room[best] -= sizes[group]
    return chosen


def count_leaks(link: Links, of_row: Ints) -> int:
    """Return how many names have rows in two splits; it ignores groups, so it verifies them."""
    pairs = pa.table({"name": link.names, "split": of_row[link.places]}).group_by("name")
    return int(np.sum(pairs.aggregate([("split", "count_distinct")])["split_count_distinct"].to_numpy() > 1))


def _describe_sizes(groups: Ints, of_row: Ints, shares: Mapping[str, float]) -> Iterator[str]:
    """Yield the size of each split, and why one differs from the request."""
    count = len(groups)
    sizes = np.bincount(of_row, minlength=len(shares))
    parts = [f"{name} {size:,} frames ({size / count:.1%})" for name, size in zip(shares, sizes.tolist(), strict=True)]
    yield f"{', '.join(parts)}, of {groups.max() + 1:,} groups."
    asked = np.array(list(shares.values())) * count
    if np.any(np.abs(sizes - asked) > np.maximum(_FAR * asked, 1)):
        largest = np.bincount(groups).max() / count
        yield f"Sizes are not as asked: the largest group has {largest:.0%} of the frames, and groups are not divided."
