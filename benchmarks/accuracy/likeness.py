"""How right the probability of `identities` is, by size, blur and covering of the face, on Labeled Faces in the Wild.

The photos (NAME/NAME_0001.jpg, a copy of 150 x 150 px, with faces of 56 px) are not in the test material:
`FRAMEKILN_LFW` names their folder, and without it nothing is measured. Of a seeded choice of 700 people the
coefficients were chosen on some of 467; here are the other 233.
Who has several photos has a gallery of all but one, as they are. The last one, and the photos of strangers, are
degraded and compared with all galleries at once. They are also put into a collection of their own: all are strangers.
"""

from __future__ import annotations

import os
import random
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from pathlib import Path

import cv2
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from sklearn.metrics import roc_auc_score

from benchmarks.accuracy import AccuracyFigure
from benchmarks.accuracy.faces import real_stage
from framekiln.contract.columns import Image, pack
from framekiln.contract.placement import Placement
from framekiln_stages.faces.stage import Faces
from framekiln_stages.identities.evidence import Evidence
from framekiln_stages.identities.face_table import FaceTable
from framekiln_stages.identities.known import Rule, compare
from framekiln_stages.identities.stage import Identities

PEOPLE, STRANGERS, PHOTOS, ASIDE = 300, 400, 4, 3  # every third person was kept aside
EYES = (63, 67, 89, 68)  # px, about, in photos of this set
RULE = Rule(probability=0.95, cosine=0.45, margin=0.1, quality=0.1)
_figure = partial(AccuracyFigure, "likeness")


def _shrink(side: int) -> Callable[[Image], Image]:
    scale = side / 56  # the median of this set
    return lambda image: np.asarray(cv2.resize(image, None, fx=scale, fy=scale, interpolation=cv2.INTER_AREA), np.uint8)


def _blur(sigma: float) -> Callable[[Image], Image]:
    return lambda image: np.asarray(cv2.GaussianBlur(image, (0, 0), sigma), np.uint8)


def _motion(length: int, angle: float) -> Callable[[Image], Image]:
    kernel, middle = np.zeros((length, length), np.float32), length // 2
    away = np.array([np.cos(np.radians(angle)), -np.sin(np.radians(angle))]) * middle
    start, end = (np.rint(middle + sign * away).astype(int).tolist() for sign in (-1, 1))
    cv2.line(kernel, start, end, 1.0)
    return lambda image: np.asarray(cv2.filter2D(image, -1, kernel / kernel.sum()), np.uint8)


def _noise(image: Image) -> Image:
    return np.asarray((image + np.random.default_rng(0).normal(0, 20, image.shape)).clip(0, 255), np.uint8)


def _sunglasses(image: Image) -> Image:
    other = image.copy()
    for x, y in (EYES[:2], EYES[2:]):
        cv2.ellipse(other, (x, y + 1), (11, 8), 0, 0, 360, (15, 15, 20), -1, cv2.LINE_AA)
    return other


def _mask(image: Image) -> Image:
    corners = np.array([[75, 77], [98, 84], [94, 104], [76, 115], [57, 104], [53, 84]])
    return np.asarray(cv2.fillPoly(image.copy(), [corners], (200, 210, 225), cv2.LINE_AA), np.uint8)


LOOKS: Mapping[str, Callable[[Image], Image]] = {
    "as they are": lambda image: image,
    **{f"face of {side} px": _shrink(side) for side in (40, 24, 18)},
    **{f"blurred by {sigma} px": _blur(sigma) for sigma in (1, 2, 3, 5)},
    **{f"motion of {n} px at {angle} degrees": _motion(n, angle) for n in (7, 13) for angle in (0, 45, 90)},
    "noise of 20 codes": _noise,
    "blurred by 2 px, noise of 20 codes": lambda image: _noise(_blur(2)(image)),
    "sunglasses": _sunglasses,
    "mask": _mask,
}


def measure() -> list[AccuracyFigure]:
    """Return figures of known people and strangers for each look, and of what probabilities mean."""
    if not (folder := os.environ.get("FRAMEKILN_LFW")):
        return []
    people = _choose(Path(folder))
    gallery = {name: files[:-1] for name, files in people.items() if len(files) > 1}
    stage, figures, said = real_stage(), list[AccuracyFigure](), list[tuple[float, bool]]()
    known = [(name, row) for name, files in gallery.items() for row in _rows(stage, files, LOOKS["as they are"])]
    for look, change in LOOKS.items():
        probes = [(name, row) for name, files in people.items() for row in _rows(stage, files[-1:], change)]
        figures += [*_compare(look, known, probes, said), _gather(look, probes)]
    for low, high in ((0.05, 0.5), (0.5, 0.95), (0.95, 1.01)):
        inside = [right for probability, right in said if low <= probability < high]
        about = f"{len(inside)} probabilities of {low:g} to {min(high, 1):g}, all looks"
        figures.append(_figure(about, "share that is right", sum(inside) / max(1, len(inside))))
    return figures


def _choose(folder: Path) -> dict[str, list[Path]]:
    """Return the photos of the people who were kept aside."""
    photos: dict[str, list[Path]] = defaultdict(list)
    for path in sorted(folder.glob("*/*_[0-9][0-9][0-9][0-9].jpg")):
        photos[path.parent.name].append(path)
    chance = random.Random(1)
    several, single = ([name for name in sorted(photos) if (len(photos[name]) > 1) == more] for more in (True, False))
    chance.shuffle(several)
    chance.shuffle(single)
    chosen = sorted([*several[:PEOPLE], *single[:STRANGERS]])
    aside = np.random.default_rng(0).permutation(len(chosen))[: len(chosen) // ASIDE]
    return {chosen[i]: photos[chosen[i]][:PHOTOS] for i in sorted(aside.tolist())}


def _rows(stage: Faces, files: list[Path], change: Callable[[Image], Image]) -> Iterator[pa.Table]:
    """Yield a row with the face in the middle of each photo in which one was found."""
    for path in files:
        image = change(cv2.cvtColor(cv2.imread(str(path)), cv2.COLOR_BGR2RGB))
        found = stage(pa.table({stage.pixels: pack([image])}))
        faces = found["faces"].to_pylist()[0]
        away = [abs(face["box"]["x0"] + face["box"]["x1"] - 1) for face in faces]
        if faces:
            field = found.schema.field("faces")
            size = {side: pa.array([n], pa.int32()) for side, n in zip(("height", "width"), image.shape, strict=False)}
            row = pa.table({"media_id": [str(path)], "frame_index": pa.array([0], pa.int32()), **size})
            yield row.append_column(field, pa.array([[faces[int(np.argmin(away))]]], field.type))


def _number(rows: list[tuple[str, pa.Table]]) -> pa.Table:
    """Return rows of one table, as different files in this order."""
    return pa.concat_tables([row.set_column(0, "media_id", pa.array([f"{i:06}"])) for i, (_, row) in enumerate(rows)])


def _gather(look: str, probes: list[tuple[str, pa.Table]]) -> AccuracyFigure:
    """Make a collection of one photo of each person."""
    stage = Identities()
    stage.setup({}, Placement())
    given = pc.is_valid(stage(_number(probes))["identities"]["identity"])
    data = f"{len(probes)} strangers, one photo each, {look}"
    return _figure(data, "share with an identity", pc.mean(given.cast("float64")).as_py(), better="lower")


def _compare(
    look: str,
    known: list[tuple[str, pa.Table]],
    probes: list[tuple[str, pa.Table]],
    said: list[tuple[float, bool]],
) -> list[AccuracyFigure]:
    """Compare probes with all galleries, and note the probability of each nearest person, and whether it is right."""
    evidence = Evidence(FaceTable.from_rows(_number([*known, *probes])))
    names = np.array([name for name, _ in [*known, *probes]])
    people = sorted({name for name, _ in known})
    members = [np.flatnonzero(names[: len(known)] == name) for name in people]
    beside = compare(evidence, [evidence.group(own, len(own) >= 3) for own in members], RULE)
    tried = np.arange(len(known), len(names))
    nearest = np.array(people)[beside.nearest[tried, 0]]
    probability = beside.odds[tried, 0] / (len(people) + beside.odds[tried].sum(axis=1))
    right, mine, given = nearest == names[tried], np.isin(names[tried], people), beside.enough[tried]
    said += zip(probability.tolist(), right.tolist(), strict=True)
    data = f"{mine.sum()} known people and {(~mine).sum()} strangers beside {len(people)}, {look}"
    return [
        _figure(data, "share with the right identity", float((given & right)[mine].mean())),
        _figure(data, "share of all with a wrong identity", float((given & ~right).mean()), better="lower"),
        _figure(data, "AUC of the probability", float(roc_auc_score(mine & right, probability))),
    ]
