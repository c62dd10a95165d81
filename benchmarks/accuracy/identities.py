"""Identities beside hdbscan called directly, and what becomes of single new photos.

People: GRID's five speakers, a president, and a man in a clip, with galleries of three images and more; seven more have
one photo. Each further image, also shrunk, is a new photo on its own. Strangers are those who are not in the gallery,
and each person of the gallery in turn. Settings were chosen on GRID's speakers; the others are the check.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import partial

import hdbscan
import numpy as np
import pyarrow as pa
from sklearn.metrics import adjusted_rand_score

from benchmarks.accuracy import AccuracyFigure
from benchmarks.accuracy.faces import COUPLE, frames, read, real_stage, with_face_of
from framekiln.contract.columns import Image, pack
from framekiln.contract.placement import Placement
from framekiln_stages.faces.stage import Faces
from framekiln_stages.identities.stage import Identities

SPEAKERS = {"bbaf2n": "a", "id2_vcd_swwp2s": "b", "lbax4n": "c", "lrwp9a": "d", "pwij3p": "b", "sbwe5n": "e"}
PORTRAITS = ("obama", "obama2", "obama_partial_face", "obama_partial_face2")
ALONE = (
    *("faces/biden/biden.jpg", "faces/single/astronaut.png", "faces/single/grace_hopper.bmp"),
    *("clip/franz-kafka.jpg", "pose/squat.bmp", *COUPLE),
)
SIDES = (37, 24, 18)  # px of a shrunk face
GALLERY = 3  # images of each person, the others are new photos
FULL = 0
_figure = partial(AccuracyFigure, "identities")


@dataclass(frozen=True, kw_only=True)
class PersonPicture:
    """An image of one person with the faces that were found."""

    person: str
    name: str  # file and frame
    side: int  # of the shrunk face; `FULL` for the image as it is
    rows: pa.Table


def measure() -> list[AccuracyFigure]:
    """Return figures of grouping, of numbers that stay, and of new photos."""
    pictures = list(_pictures())
    figures = [_grouping([p for p in pictures if p.side == FULL]), _stability(pictures)]
    for name in ("chosen", "check"):
        mine = [p for p in pictures if (p.person in SPEAKERS.values()) == (name == "chosen")]
        for side in (FULL, *SIDES):
            figures += _new_photos(name, mine, pictures, side)
    for side in SIDES:
        figures.append(_beside_large(pictures, side))
    return figures


def _pictures() -> Iterable[PersonPicture]:
    images: list[tuple[str, str, int, Image]] = []
    for clip, person in SPEAKERS.items():
        images += [(person, clip, i, frame) for i, frame in enumerate(frames(f"av/grid/{clip}.mpg", 15))]
    images += [("obama", name, 0, read(f"faces/obama/{name}.jpg")) for name in PORTRAITS]
    images += [("player", "player", i, frame) for i, frame in enumerate(frames("vos/06_pingpong.mp4", 30))]
    images += [(name, name, 0, read(name)) for name in ALONE]
    stage = real_stage()
    for person, file, number, image in images:
        for side in (FULL, *SIDES):
            shown = image if side == FULL else with_face_of(image, side)
            if shown is not None:
                name = file if side == FULL else f"{file}@{side}"
                rows = _rows(stage, name, number, shown)
                yield PersonPicture(person=person, name=f"{name}#{number}", side=side, rows=rows)


def _rows(stage: Faces, name: str, number: int, image: Image) -> pa.Table:
    found = stage(pa.table({stage.pixels: pack([image])}))
    size = {side: pa.array([n], pa.int32()) for side, n in zip(("height", "width"), image.shape[:2], strict=True)}
    rows = pa.table({"media_id": [name], "frame_index": pa.array([number], pa.int32()), **size})
    return rows.append_column(found.schema.field("faces"), found["faces"])


def _stage() -> Identities:
    stage = Identities()
    stage.setup({}, Placement())
    return stage


def _numbers(tables: dict[str, pa.Table]) -> list[int]:
    return [-1 if number is None else number for number in tables["identities"]["identity"].to_pylist()]


def _names(tables: dict[str, pa.Table]) -> list[str]:
    """Return the picture of each face."""
    keys = [tables["identities"][name].to_pylist() for name in ("media_id", "frame_index")]
    return [f"{file}#{number}" for file, number in zip(*keys, strict=True)]


def _together(pictures: Sequence[PersonPicture]) -> pa.Table:
    return pa.concat_tables([picture.rows for picture in pictures])


def _people(pictures: Sequence[PersonPicture], tables: dict[str, pa.Table]) -> dict[str, int]:
    """Return the number that most faces of each person have."""
    owner = {picture.name: picture.person for picture in pictures}
    seen: dict[str, list[int]] = {}
    for name, number in zip(_names(tables), _numbers(tables), strict=True):
        seen.setdefault(owner[name], []).append(number)
    return {person: max(set(values), key=values.count) for person, values in seen.items()}


def _grouping(pictures: Sequence[PersonPicture]) -> AccuracyFigure:
    tables = _stage()(_together(pictures))
    owner = {picture.name: picture.person for picture in pictures}
    who = [owner[name] for name in _names(tables)]
    rows = _together(sorted(pictures, key=lambda p: (p.rows["media_id"][0].as_py(), p.rows["frame_index"][0].as_py())))
    vectors = np.array([f["embedding"] for faces in rows["faces"].to_pylist() for f in faces], np.float64)
    library = hdbscan.HDBSCAN(min_cluster_size=3, min_samples=2).fit_predict(vectors)
    scores = [adjusted_rand_score(who, _singles(labels)) for labels in (_numbers(tables), library)]
    data = f"{len(who)} faces of {len(set(who))} people"
    return _figure(data, "adjusted Rand index", scores[0], scores[1])


def _singles(labels: Sequence[int]) -> list[int]:
    return [-1 - i if label < 0 else label for i, label in enumerate(labels)]


def _stability(pictures: Sequence[PersonPicture]) -> AccuracyFigure:
    """Add the people one by one to an output, in an order in which each newcomer sorts first."""
    stage, full = _stage(), [p for p in pictures if p.side == FULL]
    order = [*dict.fromkeys(p.person for p in full if p.person not in ALONE)]
    before: dict[str, pa.Table] = {}
    given: dict[str, int] = {}
    kept = total = 0
    for count in range(1, len(order) + 1):
        here = [
            replace(p, name=f"{first}{p.name}", rows=p.rows.set_column(0, "media_id", [[f"{first}{file}"]]))
            for p in full
            if p.person in order[:count]
            for first, file in [(9 - order.index(p.person), p.rows["media_id"][0].as_py())]
        ]
        before = stage(_together(here), {name: before[name] for name in stage.keeps} if before else None)
        now = _people(here, before)
        kept, total = kept + sum(given[p] == now[p] for p in given), total + len(given)
        given = now
    return _figure(
        f"{len(order)} people, one added in each run", "people with the number of the run before", kept / total
    )


def _new_photos(
    name: str, mine: Sequence[PersonPicture], pictures: Sequence[PersonPicture], side: int
) -> list[AccuracyFigure]:
    gallery = _gallery(pictures)
    inside, owners = {p.name for p in gallery}, {p.person for p in gallery}
    probes = [p for p in mine if p.side == side and p.name not in inside]
    known, strange = [p for p in probes if p.person in owners], probes
    tables = _stage()(_together(gallery))
    right = wrong = taken = 0
    for probe in known:
        number = _number(probe, tables)
        right, wrong = right + (number == _people(gallery, tables)[probe.person] != -1), wrong + (number >= 0)
    for probe in strange:
        others = [p for p in gallery if p.person != probe.person]
        taken += _number(probe, _stage()(_together(others))) >= 0
    size = "as they are" if side == FULL else f"face of {side} px"
    data = f"{name}: {len(known)} single new photos, {size}"
    return [
        _figure(data, "share with the right identity", right / max(len(known), 1)),
        _figure(data, "share with a wrong identity", (wrong - right) / max(len(known), 1), better="lower"),
        _figure(
            f"{name}: {len(strange)} single photos of strangers, {size}",
            "share with an identity",
            taken / max(len(strange), 1),
            better="lower",
        ),
    ]


def _gallery(pictures: Sequence[PersonPicture]) -> list[PersonPicture]:
    full = [p for p in pictures if p.side == FULL]
    often = {p.person for p in full if sum(q.person == p.person for q in full) > GALLERY}
    return [p for person in sorted(often) for p in [q for q in full if q.person == person][:GALLERY]]


def _number(probe: PersonPicture, known: dict[str, pa.Table]) -> int:
    """Return the identity that the largest face of a photo gets in a run of its own; -1 for none."""
    stage = _stage()
    if not probe.rows["faces"][0].as_py():
        return -1
    tables = stage(probe.rows, {name: known[name] for name in stage.keeps})
    return _numbers(tables)[0]


def _beside_large(pictures: Sequence[PersonPicture], side: int) -> AccuracyFigure:
    """Give one run the galleries and all shrunk images."""
    gallery = _gallery(pictures)
    people = {p.person for p in gallery}
    small = [p for p in pictures if p.side == side and p.person in people]
    tables = _stage()(_together([*gallery, *small]))
    named = _people(gallery, _stage()(_together(gallery)))
    found = dict(zip(_names(tables), _numbers(tables), strict=True))
    own = {person: found[next(p.name for p in gallery if p.person == person)] for person in named}
    right = sum(found.get(p.name, -1) == own[p.person] != -1 for p in small)
    return _figure(
        f"{len(small)} faces of {side} px beside {len(gallery)} large ones",
        "share with the right identity",
        right / len(small),
    )
