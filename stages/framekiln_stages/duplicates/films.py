"""Parts that two films share, found from the hashes of their frames over time.

Similar frames of two films vote for the shift between their times. A part is shared if votes for one shift continue for
some seconds. So single similar frames (black, a title) do not count. Only a few frames a second vote. Then a part is
followed frame by frame, up to the first frame that differs, so no frame of a copy is left at its ends.

Shapes: n frames of all films or of one, p pairs of frames.
"""

import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from framekiln.contract import MEDIA_ID, field
from framekiln_stages.duplicates.best import Copies
from framekiln_stages.duplicates.hashes import BITS, Bytes, turn_hashes
from framekiln_stages.duplicates.search import Ints, find_near, label_linked

Part = Mapping[str, Any]
Numbers = NDArray[np.float64]

FILMS = pa.schema(
    [
        MEDIA_ID,
        field("start_s", pa.float64(), "time of the part's first frame in this film", "s", nullable=False),
        field("end_s", pa.float64(), "time of its last frame", "s", nullable=False),
        field("other_media_id", pa.string(), "the other film with this part", nullable=False),
        field("other_start_s", pa.float64(), "time of its first frame there", "s", nullable=False),
        field("other_end_s", pa.float64(), "time of its last frame there", "s", nullable=False),
        field("mirrored", pa.bool_(), "true if one is the mirror image of the other", nullable=False),
        field("keep", pa.bool_(), "true for the film of the two to keep", nullable=False),
        field(
            "reason",
            pa.string(),
            "why that one is kept: as in `duplicates`, or distinct (fewer of its frames repeat the one before)",
            nullable=False,
        ),
    ]
)
LOOK_S = 0.25  # s between looks; without motion there is one look, however long it lasts
MOVED = 4  # bits that codec noise changes
NEAR = 20  # bits: frames of one shot an eighth of a second apart; one pair of strangers in a billion
SHIFT_S = 0.5  # s by which times of one part may differ: a look in each video
MISSED = 8  # looks without a match inside a part: two seconds of fast motion
LEAST = 4  # matches: fewer for one shift are chance
FLAT = bytes(16)  # hash of frames without one
FOLLOWED = 0.5  # share of the least length between matches: a part may go on past them, and then counts to its end
ROUNDED_S = 0.001  # containers count times in ms
STEP_S, TRIED = 0.01, 1000  # of shifts that are tried for a part; frames of it that are compared for each


@dataclass(frozen=True, eq=False, kw_only=True)
class Film:
    """The frames of a film."""

    time: Numbers  # n
    hashes: Bytes  # n 16

    def turn(self, view: int) -> "Film":
        """Return the film as it is in one of `VIEWS`; flat frames look the same in each."""
        is_flat = (self.hashes == 0).all(axis=1, keepdims=True)
        return Film(time=self.time, hashes=np.where(is_flat, self.hashes, turn_hashes(self.hashes, view)))

    @cached_property
    def gap(self) -> float:
        """Return the usual time from a frame to the next, in s."""
        return float(np.median(np.diff(self.time))) if len(self.time) > 1 else 0.0

    def compare(self, time: Numbers, hashes: Bytes) -> tuple[Ints, Ints]:
        """Return the frame shown at each time (n), and in how many bits it differs from `hashes` (n 16).

        It differs in all bits before the first frame and after the last one.
        """
        own = float(np.median(np.diff(time))) if len(time) > 1 else 0.0
        shown = np.searchsorted(self.time, time + self.gap / 2, side="right") - 1
        spare = 0.9 * max(self.gap, own)  # the frames of the slower film stand as long
        is_beyond = (time < self.time[0] - spare) | (time > self.time[-1] + spare)
        bits = np.bitwise_count(self.hashes[shown.clip(0)] ^ hashes).sum(axis=1, dtype=np.int64)
        return shown.clip(0), np.where(is_beyond, BITS, bits)


def find_parts(rows: pa.Table, least_s: float) -> list[Part]:
    """Return the shared parts, once for each pair of videos: rows of `FILMS`, before one is chosen to keep.

    They last `least_s`, or 0.8 of the time in which the shorter video changes: a copy of a short video counts.

    `rows`: frames of all videos, sorted by `media_id` and `frame_index`.
    """
    hashed = np.flatnonzero(rows["picture_hash"].is_valid())
    if not len(hashed):
        return []
    names = pc.dictionary_encode(rows["media_id"]).combine_chunks()
    film, time = names.indices.to_numpy(), rows["time_s"].to_numpy()
    hashes = np.frombuffer(b"".join(rows["picture_hash"].fill_null(FLAT).to_pylist()), np.uint8).reshape(-1, 16)
    edges = np.searchsorted(film, np.arange(len(names.dictionary) + 1))
    films = [Film(time=time[a:b], hashes=hashes[a:b]) for a, b in itertools.pairwise(edges)]
    looks = hashed[_choose_looks(film[hashed], time[hashed], hashes[hashed])]
    pairs = find_near(hashes[looks][:, None], NEAR)
    first, second = np.minimum(pairs.first, pairs.second), np.maximum(pairs.first, pairs.second)
    film, time = film[looks], time[looks]
    votes = pa.table(
        {"a": film[first], "b": film[second], "mirrored": pairs.view, "first": first, "second": second}
    ).filter(film[first] != film[second])
    lasts = np.append(np.flatnonzero(np.diff(film)), len(film) - 1)
    begins = np.append(0, lasts[:-1] + 1)
    spans = dict(zip(film[lasts].tolist(), (time[lasts] - time[begins]).tolist(), strict=True))
    texts, found = names.dictionary.to_pylist(), list[Part]()
    for (a, b, view), part in _split(votes):
        own, other = part["first"].to_numpy(), part["second"].to_numpy()
        least = min(least_s, 0.8 * spans[a], 0.8 * spans[b])
        places = [
            place
            for begin, end, shift in _trace(own, time[other] - time[own])
            if time[end] - time[begin] >= FOLLOWED * least
            for place in _follow(films[a], films[b].turn(view), (time[begin], time[end]), shift, least)
        ]
        both = {"media_id": texts[a], "other_media_id": texts[b], "mirrored": bool(view)}
        found += [{**both, **place} for place in _drop_shifted(places)]
    return sorted(found, key=lambda part: (part["media_id"], part["start_s"]))


def choose_kept(rows: pa.Table, parts: Sequence[Part]) -> pa.Table:
    """Return the shared parts with the video of each pair to keep, by `Copies.median` of the shared frames.

    Videos that share parts, directly or indirectly, have one order, so that one of them always keeps its part.

    `rows`: as in `find_parts`, with the deciding columns.
    """
    if not parts:
        return FILMS.empty_table()
    spans: dict[str, list[tuple[float, float]]] = {}
    for part in parts:
        for of in ("", "other_"):
            spans.setdefault(part[f"{of}media_id"], []).append((part[f"{of}start_s"], part[f"{of}end_s"]))
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


def _follow(
    own: Film, other: Film, span: tuple[float, float], shift: float, least: float
) -> Iterator[dict[str, float]]:
    """Yield the first and last frame of a part in both films, as far as their frames look alike, and the mean `bits`.

    The part is divided where frames differ for two seconds: one film has something there that the other lacks.

    `span`: of the part in `own`, in s, to within a look; `shift`: of `other`, to within half a second; `least`: s from
    its first frame to the end of its last one.
    """
    begin, end = np.searchsorted(own.time, span)
    some = slice(begin, end + 1, 1 + (end - begin) // TRIED)
    tried = shift + np.arange(-SHIFT_S, SHIFT_S, STEP_S)
    bits = np.array([other.compare(own.time[some] + each, own.hashes[some])[1].sum() for each in tried])
    shift = float(np.median(tried[bits == bits.min()]))
    shown, bits = other.compare(own.time + shift, own.hashes)
    alike, alike_there = bits <= NEAR, own.compare(other.time - shift, other.hashes)[1] <= NEAR
    ends = np.append(own.time[1:], own.time[-1] + own.gap)
    inside = np.arange(begin, end + 1)[alike[begin : end + 1]]
    for part in np.split(inside, np.flatnonzero(np.diff(own.time[inside]) > MISSED * LOOK_S) + 1):
        first, last = _widen(alike, part) if len(part) else (0, 0)
        if len(part) and ends[last] - own.time[first] >= least - ROUNDED_S:
            there = np.arange(shown[first], shown[last] + 1)
            there = there[alike_there[there]]
            other_first, other_last = _widen(alike_there, there) if len(there) else (shown[first], shown[last])
            yield {
                "bits": float(bits[part].mean()),
                "start_s": float(own.time[first]),
                "end_s": float(own.time[last]),
                "other_start_s": float(other.time[other_first]),
                "other_end_s": float(other.time[other_last]),
            }


def _drop_shifted(places: Sequence[dict[str, float]]) -> list[Part]:
    """Return parts without those that overlap a likelier one in both films: the same part by a wrong shift."""
    kept: list[Part] = []
    for place in sorted(places, key=lambda place: place.pop("bits")):
        half = (place["end_s"] - place["start_s"]) / 2
        if not any(all(_overlap(place, other, of) > half for of in ("", "other_")) for other in kept):
            kept.append(place)
    return kept


def _overlap(one: Part, other: Part, of: str) -> float:
    start, end = (f"{of}{name}_s" for name in ("start", "end"))
    return float(min(one[end], other[end]) - max(one[start], other[start]))


def _widen(alike: NDArray[np.bool_], part: Ints) -> tuple[int, int]:
    """Return the first and last frame of a part, after adding the neighbours that are alike (n) without a break."""
    first, last = int(part[0]), int(part[-1])
    before, after = np.flatnonzero(~alike[:first]), np.flatnonzero(~alike[last + 1 :])
    return int(before[-1]) + 1 if len(before) else 0, last + int(after[0]) if len(after) else len(alike) - 1


def _choose_looks(film: Ints, time: Numbers, hashes: Bytes) -> Ints:
    """Return the rows at which a film begins, or its picture has changed since the last look."""
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


def _trace(looks: Ints, shifts: Numbers) -> Iterator[tuple[int, int, float]]:
    """Yield first look, last look and shift of each part, the shift with the most votes first."""
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
