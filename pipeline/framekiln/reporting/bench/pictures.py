"""Pictures of tracked masks on a bench's page: each model's beside the others', at a few frames of each object."""

import base64
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from framekiln.lab.sav.measure import VideoRow
from framekiln.lab.sav.overlays import preview

FRAMES = 3  # of an object: the first, the middle and the last one; a mask that drifts is seen in the last
OBJECTS = 8  # with four models about 100 pictures of 15 to 30 kB: a page that can still be mailed
WIDTH = 420  # px


@dataclass(frozen=True, kw_only=True)
class Picture:
    """A model's mask of an object in one frame."""

    model: str
    uri: str  # a JPEG as a data URI


@dataclass(frozen=True, kw_only=True)
class PictureRow:
    """One frame of an object, with a picture of each model that tracked it."""

    video: str
    object: str
    frame: str  # its stem
    pictures: Sequence[Picture]


def picture_rows(rows: Sequence[VideoRow], folder: Path) -> list[PictureRow]:
    """Return pictures of the first objects from the folder of `--overlays`; those that cannot be read are left out."""
    objects = dict.fromkeys((row.video, row.object) for row in rows if row.outcome == "ok")
    return [line for video, name in list(objects)[:OBJECTS] for line in _of_object(rows, folder, video, name)]


def _of_object(rows: Sequence[VideoRow], folder: Path, video: str, name: str) -> Iterator[PictureRow]:
    models = dict.fromkeys(row.model for row in rows if (row.video, row.object, row.outcome) == (video, name, "ok"))
    files = {model: {path.stem: path for path in (folder / model / video / name).glob("*.jpg")} for model in models}
    stems = sorted({stem for of_model in files.values() for stem in of_model})
    places = np.linspace(0, len(stems) - 1, FRAMES).round().astype(int).tolist() if stems else []
    for stem in dict.fromkeys(stems[place] for place in places):
        paths = {model: of_model[stem] for model, of_model in files.items() if stem in of_model}
        found = {model: preview(path, WIDTH) for model, path in paths.items()}
        pictures = [Picture(model=model, uri=_uri(jpeg)) for model, jpeg in found.items() if jpeg]
        if pictures:
            yield PictureRow(video=video, object=name, frame=stem, pictures=pictures)


def _uri(jpeg: bytes) -> str:
    return f"data:image/jpeg;base64,{base64.b64encode(jpeg).decode()}"
