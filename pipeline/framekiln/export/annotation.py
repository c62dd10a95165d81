"""An exported image, its annotations, and their categories, in one form for all formats.

Coordinates are px of the picture as shown, x to the right and y downwards from its top left corner. The left edge of
the first pixel is 0.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import PurePosixPath
from typing import Any

import numpy as np
from numpy.typing import NDArray

from framekiln.export.request import WHOLE
from framekiln.media.media_ids import as_folder

Mask = NDArray[np.uint8]  # h w, 0 or 1
Box = tuple[float, float, float, float]  # x0, y0, x1, y1
ABSENT, HIDDEN, SEEN = 0, 1, 2
"""COCO's visibility of a keypoint."""


@dataclass(frozen=True, kw_only=True)
class Category:
    """A class of annotations; `keypoints` are their names, `skeleton` pairs of their numbers from 0."""

    name: str
    keypoints: tuple[str, ...] = ()
    skeleton: tuple[tuple[int, int], ...] = ()


@dataclass(frozen=True, kw_only=True)
class Annotation:
    """One box, mask, pose, face or moment of a track."""

    kind: str  # boxes, masks, poses, faces or tracks
    source: str  # the column of `frames/` or the table that it comes from
    category: Category
    box: Box
    score: float | None = None
    mask: Mapping[str, Any] | None = None  # COCO's compressed run lengths, with a size of its own
    keypoints: Sequence[tuple[float, float, int]] = ()  # x, y, visibility: one for each of the category's, or none
    track: tuple[str, int] | None = None  # the table of the track, and its number there within the file
    identity: int | None = None
    attributes: Mapping[str, Any] = field(default_factory=dict)  # numbers, texts and flags
    embedding: Sequence[float] | None = None

    def scaled(self, x: float, y: float) -> "Annotation":
        """Return the annotation on a picture that is `x` times as wide and `y` times as high."""
        x0, y0, x1, y1 = self.box
        points = [(px * x, py * y, seen) for px, py, seen in self.keypoints]
        return replace(self, box=(x0 * x, y0 * y, x1 * x, y1 * y), keypoints=points)


def decode_mask(mask: Mapping[str, Any], height: int, width: int) -> Mask:
    """Return a mask (height width) at its picture's size; another size is scaled by nearest pixels."""
    from pycocotools import mask as coco

    own_height, own_width = mask["size"]
    pixels: Mask = coco.decode({"size": [own_height, own_width], "counts": mask["counts"].encode()})
    if (own_height, own_width) == (height, width):
        return pixels
    rows = ((np.arange(height) + 0.5) * own_height / height).astype(int)
    columns = ((np.arange(width) + 0.5) * own_width / width).astype(int)
    return pixels[rows[:, None], columns]


def scale_mask(mask: Mapping[str, Any], height: int, width: int) -> dict[str, Any]:
    """Return a mask's run lengths at its picture's size; unchanged if it has this size."""
    if list(mask["size"]) == [height, width]:
        return {"size": [height, width], "counts": mask["counts"]}
    from pycocotools import mask as coco

    code = coco.encode(np.asfortranarray(decode_mask(mask, height, width)))
    return {"size": [height, width], "counts": code["counts"].decode("ascii")}


class Categories:
    """Numbers of categories, from 0."""

    def __init__(self) -> None:
        self._found: list[Category] = []
        self._numbers: dict[Category, int] = {}

    def number(self, category: Category) -> int:
        """Return the number of a category, and remember the category.

        Categories of one name are one, such as people's masks and poses, unless their keypoints differ.
        """
        if category in self._numbers:
            return self._numbers[category]
        for number, known in enumerate(self._found):
            if known.name == category.name and () in (known.keypoints, category.keypoints):
                self._found[number] = known if known.keypoints else category
                break
        else:
            number = len(self._found)
            self._found.append(category)
        self._numbers[category] = number
        return number

    def name(self, category: Category) -> str:
        """Return the name of a category, as iteration gives it, and remember the category."""
        number = self.number(category)
        return [name for name, _ in self][number]

    def __iter__(self) -> Iterator[tuple[str, Category]]:
        """Yield names and categories by number; a name already in use gets its number."""
        taken: set[str] = set()
        for number, category in enumerate(self._found):
            name = category.name if category.name not in taken else f"{category.name} {number + 1}"
            taken.add(name)
            yield name, category


PHOTO = "photo"


@dataclass(frozen=True, kw_only=True)
class ExportedImage:
    """A frame. `width` and `height` belong to the exported picture; annotations are in its px."""

    media_id: str
    frame_index: int
    media_type: str  # photo, animation or video
    uri: str
    path: str | None  # of a local file
    width: int
    height: int
    time_s: float | None = None
    split: str = WHOLE
    name: str = ""  # of its file, below images/SPLIT/; a photo's path or address with `--images none`
    annotations: Sequence[Annotation] = ()
    values: Mapping[str, Any] = field(default_factory=dict)  # numbers, texts and flags of its row, by column
    embeddings: Mapping[str, Sequence[float]] = field(default_factory=dict)  # by column; only if requested

    def resized(self, width: int, height: int) -> "ExportedImage":
        x, y = width / self.width, height / self.height
        return replace(self, width=width, height=height, annotations=[item.scaled(x, y) for item in self.annotations])


def file_name(image: ExportedImage, suffix: str = "", *, unique_stem: bool = False) -> str:
    """Return the name of an image's file below images/SPLIT/.

    Photos keep their names; frames of videos and animations are numbers in a folder named after their file.

    Args:
        image: the frame.
        suffix: of the written file, such as .jpg; empty: the photo's own.
        unique_stem: whether `a.jpg` and `a.png` must differ without their suffix.
    """
    folder = as_folder(image.media_id)
    if image.media_type != PHOTO:
        return f"{folder}/{image.frame_index:06d}{suffix or '.jpg'}"
    own = PurePosixPath(image.media_id).suffix
    wanted = suffix or own
    return folder if own == wanted and folder.endswith(own) and not unique_stem else folder + wanted
