"""Parts that two films share, found from the hashes of their frames over time.

Similar frames of two films vote for the shift between their times. A part is shared if votes for one shift continue for
some seconds. So single similar frames (black, a title) do not count. Only a few frames a second vote. Then a part is
followed frame by frame, up to the first frame that differs, so no frame of a copy is left at its ends. A cropped part
ends at the last frame with hashes of its windows. If a film's end or the next part comes before the next such frame, it
ends there.

Shapes: n frames of all films or of one, p pairs of frames.
"""

import itertools
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from framekiln.contract import MEDIA_ID, field
from framekiln_stages.duplicates.best import Copies
from framekiln_stages.duplicates.film import LOOK_S, MOST_S, MOVED, NEAR, ROUNDED_S, Film, Numbers, Place
from framekiln_stages.duplicates.fingerprint import EACH_S
from framekiln_stages.duplicates.hashes import WINDOWS
from framekiln_stages.duplicates.search import Ints, concat, find_near, label_linked

SharedPart = Mapping[str, Any]
Key = tuple[int, int, int]  # numbers of two films, and the view

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
MISSED = 8  # looks without a match inside a part
LEAST = 4  # matches: fewer for one shift are chance
SHIFT_S = 0.5  # s by which times of one part may differ: a look in each video
FOLLOWED = 0.5  # share of the least length between matches: a part may go on past them, and then counts to its end


def find_parts(rows: pa.Table, least_s: float) -> list[SharedPart]:
    """Return the shared parts, once for each pair of videos: rows of `FILMS`, before one is chosen to keep.

    They last `least_s`, or 0.8 of the shorter video: a copy of a short video counts.

    `rows`: frames of all videos, sorted by `media_id` and `frame_index`.
    """
    names, whole, windowed = _read_films(rows)
    places = defaultdict[Key, list[Place]](list)
    for key, place in itertools.chain(_find(whole, whole, least_s), _find(windowed, whole, least_s)):
        places[key].append(place)
    found = [
        {"media_id": names[a], "other_media_id": names[b], "mirrored": bool(view), **place}
        for (a, b, view), own in places.items()
        for place in _drop_shifted(own)
    ]
    return sorted(found, key=lambda part: (part["media_id"], part["start_s"]))


def _read_films(rows: pa.Table) -> tuple[list[str], list[Film], list[Film]]:
    """Return the names of all videos, their frames, and their frames with hashed windows."""
    names = pc.dictionary_encode(rows["media_id"]).combine_chunks()
    film, time = names.indices.to_numpy(), rows["time_s"].to_numpy()
    whole = np.frombuffer(b"".join(rows["picture_hash"].fill_null(bytes(16)).to_pylist()), np.uint8)
    whole = whole.reshape(-1, 1, 16)
    cut = np.flatnonzero(rows["crop_hashes"].is_valid())
    crops = np.frombuffer(b"".join(rows["crop_hashes"].drop_null().to_pylist()), np.uint8)
    windows = np.concatenate((whole[cut], crops.reshape(len(cut), len(WINDOWS) - 1, 16)), axis=1)
    numbers = np.arange(len(names.dictionary) + 1)
    films = [
        [Film(time=at[a:b], hashes=hashes[a:b]) for a, b in itertools.pairwise(np.searchsorted(of, numbers))]
        for of, at, hashes in ((film, time, whole), (film[cut], time[cut], windows))
    ]
    return names.dictionary.to_pylist(), films[0], films[1]


def _find(films: Sequence[Film], others: Sequence[Film], least_s: float) -> Iterator[tuple[Key, Place]]:
    """Yield the parts that films share with `others`: the same films, by whole frames."""
    looks = [film.look() for film in films]
    time = np.concatenate([np.empty(0), *(own.time for own in looks)])
    for (a, b, view), own, other in _match(looks, films is others):
        least = min(least_s, 0.8 * others[a].seconds, 0.8 * others[b].seconds)
        for begin, end, shift, spread in _trace(own, time[other] - time[own]):
            rest, found = (time[begin], time[end]), list[Place]()
            while rest[1] - rest[0] >= FOLLOWED * least:  # where a film goes on in another window, as beside bars
                places = list(films[a].follow(others[b].turn(view), rest, shift, spread, least))
                rest = (places[-1]["end_s"] + LOOK_S, rest[1]) if places else (rest[1], rest[1])
                found += places
            if films is not others:  # ends of whole frames are exact
                _close(found, others[a], others[b])
            for place in found:
                del place["shift"]
                yield (min(a, b), max(a, b), view), place if a < b else _exchange(place)


def _close(places: Sequence[Place], film: Film, other: Film) -> None:
    """Let cropped parts end where a film ends or the next part begins, if less than `EACH_S` is left: it has no window.

    `places`: of two films, in order of time.
    """
    for place in places:
        place["bits"] += MOVED  # the nearest of 16 windows
        if min(place["start_s"] - film.time[0], place["other_start_s"] - other.time[0]) < EACH_S:
            place["start_s"], place["other_start_s"] = _find_end(film, other, place["shift"], 0)
        if min(film.time[-1] - place["end_s"], other.time[-1] - place["other_end_s"]) < EACH_S:
            place["end_s"], place["other_end_s"] = _find_end(film, other, place["shift"], -1)
    for place, after in itertools.pairwise(places):
        gaps = [after[f"{of}start_s"] - place[f"{of}end_s"] for of in ("", "other_")]
        if max(gaps) < EACH_S + film.gap and abs(after["shift"] - place["shift"]) < film.gap:
            place["end_s"] = film.show(after["start_s"] - film.gap)
            place["other_end_s"] = other.show(after["other_start_s"] - other.gap)


def _find_end(film: Film, other: Film, shift: float, at: int) -> tuple[float, float]:
    """Return where the first of two films ends, in both. `at`: 0 for where the last one begins, else -1."""
    ahead = other.time[at] - shift - film.time[at]
    if abs(ahead) <= max(film.gap, other.gap) + ROUNDED_S:  # a shift may be off by a frame
        return float(film.time[at]), float(other.time[at])
    if (ahead > 0) == (at < 0):
        return float(film.time[at]), other.show(film.time[at] + shift)
    return film.show(other.time[at] - shift), float(other.time[at])


def _match(looks: Sequence[Film], is_symmetric: bool) -> Iterator[tuple[Key, Ints, Ints]]:
    """Yield pairs of films, and the indices of their similar looks among all looks.

    `is_symmetric`: yield each pair in one order. Else yield only matches of a window, not of a whole look.
    """
    film = np.repeat(np.arange(len(looks)), [len(own.time) for own in looks])
    if not len(film):
        return
    pairs = find_near(np.concatenate([own.hashes for own in looks]), NEAR)
    ends = np.stack((pairs.first, pairs.second))
    if is_symmetric:
        ends.sort(axis=0)
    keys = np.stack((*film[ends], pairs.view))
    order = np.lexsort((*ends[::-1], *keys[::-1]))
    order = order[(keys[0, order] != keys[1, order]) & (is_symmetric | (pairs.window[order] > 0))]
    for part in np.split(order, np.flatnonzero(np.diff(keys[:, order]).any(axis=0)) + 1):
        if len(part):
            a, b, view = keys[:, part[0]].tolist()
            yield (a, b, view), ends[0, part], ends[1, part]


def _exchange(place: Place) -> Place:
    """Return a part as the other film has it."""
    names = {name: name[6:] if name.startswith("other_") else f"other_{name}" for name in place if name != "bits"}
    return {names.get(name, name): value for name, value in place.items()}


def choose_kept(rows: pa.Table, parts: Sequence[SharedPart]) -> pa.Table:
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
    films = concat(Copies, [Copies.measure(_cut(rows, name, spans[name])).median() for name in names])
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


def _drop_shifted(places: Sequence[Place]) -> list[Place]:
    """Drop parts that overlap a likelier one in both films: they are the same part by a wrong shift."""
    kept: list[Place] = []
    for place in sorted(places, key=lambda place: place.pop("bits")):
        half = (place["end_s"] - place["start_s"]) / 2
        if not any(all(_overlap(place, other, of) > half for of in ("", "other_")) for other in kept):
            kept.append(place)
    return kept


def _overlap(one: SharedPart, other: SharedPart, of: str) -> float:
    start, end = (f"{of}{name}_s" for name in ("start", "end"))
    return float(min(one[end], other[end]) - max(one[start], other[start]))


def _trace(looks: Ints, shifts: Numbers) -> Iterator[tuple[int, int, float, float]]:
    """Yield first look, last look, shift and its spread of each part, the shift with the most votes first."""
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
                shift = float(np.median(shifts[chosen]))
                spread = np.abs(shifts[np.isin(looks, run)] - shift).max()
                yield int(run[0]), int(run[-1]), shift, float(np.clip(spread, SHIFT_S, MOST_S))
        left = left[~np.isin(looks[left], at)]
