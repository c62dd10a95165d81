"""YOLO: labels/SPLIT/NAME.txt beside images/SPLIT/, and data.yaml, as Ultralytics reads them.

A kind with masks gives a set for segmentation, one with keypoints a set for poses; anything else a set of boxes. A
label file has a line for each object: the class, then shares of width and height.
"""

import json
from collections.abc import Iterable, Sequence
from pathlib import PurePosixPath
from typing import Any

from framekiln.export.annotation import Annotation, ExportedImage, file_name
from framekiln.export.formats.base import Format
from framekiln.export.outlines import join

_MASKS, _POINTS = frozenset({"masks"}), frozenset({"poses", "faces"})


class Writer(Format):
    """One label file an image, empty if nothing was found."""

    kinds = frozenset({"boxes", "masks", "poses", "faces", "tracks"})
    default = frozenset({"boxes", "masks", "poses", "faces"})
    needs_annotations = True

    def __init__(self, *given: Any) -> None:
        super().__init__(*given)
        include = self.request.include or frozenset()
        self._outlined = include == _MASKS
        self._pointed = len(include) == 1 and include <= _POINTS
        self._points: tuple[str, ...] = ()
        self._odd = 0

    def name_of(self, image: ExportedImage, suffix: str = "") -> str:
        """Return a name that differs from all others even without its suffix, which label files replace.

        Ultralytics finds labels by the last folder `images` of a path, so the collection's own one is escaped.
        """
        name = file_name(image, suffix, unique_stem=True)
        return "/".join("%69mages" if part == "images" else part for part in name.split("/"))

    def add(self, image: ExportedImage) -> None:
        lines = [line for item in image.annotations if (line := self._describe(item, image))]
        own = self.name_of(image) if self.request.images == "none" else image.name
        name = PurePosixPath(own).with_suffix(".txt")
        self.destination.write(f"labels/{image.split}/{name}", "".join(f"{line}\n" for line in lines).encode())

    def end(self) -> None:
        places = {split: f"images/{split}" for split in self.splits}
        first = next(iter(places.values()), "")
        paths = {"train": places.get("train", first), "val": places.get("val", first)}
        names = {number: name for number, (name, _) in enumerate(self.categories)}
        facts = [*(paths | places).items(), ("names", names)]
        if self._pointed:
            flip = [self._points.index(_mirror(name, self._points)) for name in self._points]
            facts += [("kpt_shape", [len(self._points), 3]), ("flip_idx", flip)]
            facts += [("kpt_names", {number: list(self._points) for number in names})]
        # JSON is YAML, except for the keys of mappings, which are numbers here
        lines = [f"{name}: {_to_yaml(value)}\n" for name, value in facts if name != "all"]
        self.destination.write("data.yaml", "".join(lines).encode())
        if self.holes:
            self.notes.append(f"{self.holes:,} masks have holes, which YOLO's outlines cannot hold: they are filled.")
        if self._odd:
            self.notes.append(f"{self._odd:,} objects were left out: in YOLO all objects have equally many keypoints.")

    def _describe(self, item: Annotation, image: ExportedImage) -> str:
        """Return the line of an object; empty if it has none."""
        number = self.categories.number(item.category)
        if self._outlined:
            if item.mask is None:
                return ""
            whole = join(self.outline(item, image))  # joined by lines without width, as Ultralytics joins COCO's
            return f"{number} {_join_numbers((whole / (image.width, image.height)).ravel())}"
        x0, y0, x1, y1 = item.box
        middle = (x0 + x1) / 2 / image.width, (y0 + y1) / 2 / image.height
        line = f"{number} {_join_numbers([*middle, (x1 - x0) / image.width, (y1 - y0) / image.height])}"
        if not self._pointed:
            return line
        self._points = self._points or item.category.keypoints
        if len(item.keypoints) != len(self._points):
            self._odd += 1
            return ""
        points = (f"{x / image.width:.6g} {y / image.height:.6g} {seen}" for x, y, seen in item.keypoints)
        return " ".join([line, *points])


def _join_numbers(numbers: Iterable[float]) -> str:
    return " ".join(f"{number:.6g}" for number in numbers)


def _mirror(name: str, names: Sequence[str]) -> str:
    """Return the keypoint that a name becomes in a mirrored image."""
    other = name.replace("left", "~").replace("right", "left").replace("~", "right")
    return other if other in names else name


def _to_yaml(value: object) -> str:
    """Return a value as YAML in one line: JSON, with numbers as keys."""
    if isinstance(value, dict):
        return "{" + ", ".join(f"{key}: {json.dumps(item)}" for key, item in value.items()) + "}"
    return json.dumps(value)
