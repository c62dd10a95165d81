"""Parts that two videos share, found from the hashes of their frames over time.

Similar frames of two videos vote for the shift between their times. A part is shared if votes for one shift continue
for some seconds. So single similar frames (black, a title) do not count.

Shapes: n frames of all videos, p pairs of frames.
"""

import itertools
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from framekiln.contract import MEDIA_ID, field
from framekiln_stages.duplicates.best import Copies
from framekiln_stages.duplicates.hashes import Bytes
from framekiln_stages.duplicates.search import Ints, find_near, label_linked

Part = Mapping[str, Any]

FILMS = pa.schema(
    [
        MEDIA_ID,
        field("start_s", pa.float64(), "start of the part in this video", "s", nullable=False),
        field("end_s", pa.float64(), "where it ends", "s", nullable=False),
        field("other_media_id", pa.string(), "the other video with this part", nullable=False),
        field("other_start_s", pa.float64(), "start of the part there", "s", nullable=False),
        field("mirrored", pa.bool_(), "true if one is the mirror image of the other", nullable=False),
        field("keep", pa.bool_(), "true for the one of both videos to keep", nullable=False),
        field("reason", pa.string(), "why it is kept, as in `duplicates`", nullable=False),
    ]
)
LOOK_S = 0.25  # s between looks; without motion there is one look, however long it lasts
MOVED = 4  # bits that codec noise changes
NEAR = 20  # bits: frames of one shot an eighth of a second apart; one pair of strangers in a billion
SHIFT_S = 0.5  # s by which times of one part may differ: a look in each video
MISSED = 8  # looks without a match inside a part: two seconds of fast motion
LEAST = 4  # matches: fewer for one shift are chance


def find_parts(rows: pa.Table, least_s: float) -> list[Part]:
    """Return the shared parts, once for each pair of videos: rows of `FILMS`, before one is chosen to keep.

    They last `least_s`, or 0.8 of the time in which the shorter video changes: a copy of a short video counts.

    `rows`: frames of all videos, sorted by `media_id` and `frame_index`.
    """
    rows = rows.filter(rows["picture_hash"].is_valid())
    if not len(rows):
        return []
    names = pc.dictionary_encode(rows["media_id"]).combine_chunks()
    film, time = names.indices.to_numpy(), rows["time_s"].to_numpy()
    hashes = np.frombuffer(b"".join(rows["picture_hash"].to_pylist()), np.uint8).reshape(-1, 1, 16)
    looks = _choose_looks(film, time, hashes[:, 0])
    pairs = find_near(hashes[looks], NEAR)
    first, second = np.minimum(pairs.first, pairs.second), np.maximum(pairs.first, pairs.second)
    film, time = film[looks], time[looks]
    votes = pa.table(
        {"a": film[first], "b": film[second], "mirrored": pairs.view, "first": first, "second": second}
    ).filter(film[first] != film[second])
    lasts = np.append(np.flatnonzero(np.diff(film)), len(film) - 1)
    begins = np.append(0, lasts[:-1] + 1)
    spans = dict(zip(film[lasts].tolist(), (time[lasts] - time[begins]).tolist(), strict=True))
    texts, found = names.dictionary.to_pylist(), []
    for key, part in _split(votes):
        own, other = part["first"].to_numpy(), part["second"].to_numpy()
        for begin, end, shift in _trace(own, time[other] - time[own]):
            if time[end] - time[begin] >= min(least_s, 0.8 * spans[key[0]], 0.8 * spans[key[1]]):
                place = {"media_id": texts[key[0]], "start_s": time[begin], "end_s": time[end]}
                there = {
                    "other_media_id": texts[key[1]],
                    "other_start_s": time[begin] + shift,
                    "mirrored": bool(key[2]),
                }
                found.append(place | there)
    return sorted(found, key=lambda part: (part["media_id"], part["start_s"]))


def choose_kept(rows: pa.Table, parts: Sequence[Part]) -> pa.Table:
    """Return the shared parts with the video of each pair to keep, by the medians of the shared frames.

    Videos that share parts, directly or indirectly, have one order, so that one of them always keeps its part.

    `rows`: as in `find_parts`, with the deciding columns.
    """
    if not parts:
        return FILMS.empty_table()
    spans: dict[str, list[tuple[float, float]]] = {}
    for part in parts:
        length = part["end_s"] - part["start_s"]
        for end in ("", "other_"):
            start = part[f"{end}start_s"]
            spans.setdefault(part[f"{end}media_id"], []).append((start, start + length))
    names = sorted(spans)
    rows = rows.filter(pc.is_in(rows["media_id"], pa.array(names, pa.string())))
    place = {name: at for at, name in enumerate(names)}
    first, second = (np.array([place[part[name]] for part in parts]) for name in ("media_id", "other_media_id"))
    labels = label_linked(first, second, len(names))
    films = Copies.concat([Copies.measure(_cut(rows, name, spans[name])).median() for name in names])
    order: dict[int, str] = {}
    for number in range(labels.max() + 1):
        order |= films.order(np.flatnonzero(labels == number).tolist())
    rank = {at: number for number, at in enumerate(order)}
    found = []
    for part in parts:
        own, other = place[part["media_id"]], place[part["other_media_id"]]
        best = min(own, other, key=rank.__getitem__)
        found.append({**part, "keep": best == own, "reason": order[best]})
    return pa.Table.from_pylist(found, schema=FILMS)


def _cut(rows: pa.Table, name: str, spans: Sequence[tuple[float, float]]) -> pa.Table:
    """Return a video's rows inside spans of time."""
    film = rows.filter(pc.equal(rows["media_id"], name))
    time = film["time_s"].to_numpy()
    inside = np.zeros(len(time), np.bool_)
    for start, end in spans:
        inside |= (time >= start) & (time <= end)
    return film.filter(inside if inside.any() else ~inside)


def _choose_looks(film: Ints, time: NDArray[np.float64], hashes: Bytes) -> Ints:
    """Return the rows at which a video begins, or its picture has changed since the last look."""
    words = hashes.view(np.uint64)
    looks: list[int] = []
    for at in range(len(film)):
        if looks and film[at] == film[last := looks[-1]]:
            moved = np.bitwise_count(words[at] ^ words[last]).sum() > MOVED
            if time[at] - time[last] < LOOK_S or not moved:
                continue
        looks.append(at)
    return np.array(looks, np.int64)


def _split(votes: pa.Table) -> Iterator[tuple[tuple[int, int, int], pa.Table]]:
    """Yield the votes of each pair of videos, straight and mirrored."""
    votes = votes.sort_by([(name, "ascending") for name in votes.column_names])
    keys = np.stack([votes[name].to_numpy() for name in ("a", "b", "mirrored")])
    edges = [0, *(np.flatnonzero((np.diff(keys) != 0).any(axis=0)) + 1).tolist(), len(votes)]
    for start, stop in itertools.pairwise(edges):
        if stop > start:
            a, b, mirrored = keys[:, start].tolist()
            yield (a, b, mirrored), votes.slice(start, stop - start)


def _trace(looks: Ints, shifts: NDArray[np.float64]) -> Iterator[tuple[int, int, float]]:
    """Yield each part's first look, last look and shift, the shift with most votes first."""
    left = np.arange(len(looks))
    while len(left) >= LEAST:
        ordered = np.sort(shifts[left])
        counts = np.searchsorted(ordered, ordered + SHIFT_S, side="right") - np.arange(len(ordered))
        low = ordered[int(counts.argmax())]
        chosen = left[(shifts[left] >= low) & (shifts[left] <= low + SHIFT_S)]
        if len(chosen) < LEAST:
            return
        at = np.unique(looks[chosen])
        for run in np.split(at, np.flatnonzero(np.diff(at) > MISSED) + 1):
            if len(run) >= LEAST:
                yield int(run[0]), int(run[-1]), float(np.median(shifts[chosen]))
        left = left[~np.isin(looks[left], at)]
