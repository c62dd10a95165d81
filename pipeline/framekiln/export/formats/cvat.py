"""CVAT 1.1: annotations/SPLIT.xml ("for images"), and for tracks tracks/FILM.xml ("for video") for each video.

Shapes are in px, masks are their rows' run lengths inside their box. A track is a box on each frame, with `outside` if
it is missing. The task must have the labels of `meta`. As in CVAT's own files, a skeleton's points are labels with a
`parent`.
"""

from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import chain
from pathlib import PurePosixPath
from typing import Any
from xml.etree.ElementTree import Element, SubElement, tostring

import numpy as np

from framekiln.export.annotation import (
    ABSENT,
    HIDDEN,
    PHOTO,
    Annotation,
    Box,
    ExportedImage,
    Mask,
    decode_mask,
    file_name,
)
from framekiln.export.formats.base import Format, Spool
from framekiln.media.media_ids import as_folder

_END = b"\n</annotations>\n"


class Writer(Format):
    """One file a split, and one a video; only one video's tracks are in memory at a time."""

    kinds = frozenset({"boxes", "masks", "poses", "faces", "tracks", "categories"})
    default = kinds

    def __init__(self, *given: Any) -> None:
        super().__init__(*given)
        self._spool = Spool("\n")
        self._numbers = Counter[str]()  # images so far, by split
        self._tags: dict[str, None] = {}
        self._film, self._size = "", dict[str, int]()
        self._tracks: dict[tuple[str, int], Element] = {}
        self._stems: dict[tuple[str, str], str] = {}  # names without suffix, and their files

    def name_of(self, image: ExportedImage, suffix: str = "") -> str:
        """Return the file's name, with a second suffix if another file has the same name without it.

        CVAT and datumaro find a picture's shapes by its name without the suffix.
        """
        name = file_name(image, suffix)
        return name if self._take(name, image) else file_name(image, suffix, unique_stem=True)

    def _take(self, name: str, image: ExportedImage) -> bool:
        """Return whether no other photo of the split has this name without its suffix, and remember it."""
        stem = (image.split, str(PurePosixPath(name).with_suffix("")))
        return image.media_type != PHOTO or self._stems.setdefault(stem, image.media_id) == image.media_id

    def add(self, image: ExportedImage) -> None:
        if image.media_id != self._film:
            self._end_film()
            self._film = image.media_id
        tracked = [item for item in image.annotations if item.track is not None and image.media_type != PHOTO]
        if tracked or self._tracks:
            self._size = {"width": image.width, "height": image.height}
            self._follow(tracked, image)
        others = [item for item in image.annotations if item.kind != "tracks"]
        self._spool.add(image.split, tostring(self._describe(image, others), "unicode"))

    def end(self) -> None:
        self._end_film()
        for split in self.splits:
            with self.destination.writing(f"annotations/{split}.xml") as stream:
                stream.write(self._make_head())
                self._spool.copy(split, stream)
                stream.write(_END)

    def _make_head(self) -> bytes:
        """Return the beginning of a file, with the labels met so far."""
        meta = Element("meta")
        labels = SubElement(SubElement(meta, "task"), "labels")
        found = dict(self.categories)
        for name in dict.fromkeys([*found, *self._tags]):
            points = found[name].keypoints if name in found else ()
            parts = [{"name": name, "type": "skeleton" if points else "any"}]
            for part in (*parts, *({"name": point, "type": "points", "parent": name} for point in points)):
                label = SubElement(labels, "label")
                for fact, text in part.items():
                    SubElement(label, fact).text = text
        size = SubElement(meta, "original_size") if self._tracks else meta  # datumaro needs the size of a video
        for name, side in self._size.items() if self._tracks else ():
            SubElement(size, name).text = str(side)
        start = b'<?xml version="1.0" encoding="utf-8"?>\n<annotations>\n<version>1.1</version>\n'
        return start + tostring(meta, "utf-8", xml_declaration=False) + b"\n"

    def _describe(self, image: ExportedImage, items: Sequence[Annotation]) -> Element:
        facts = {"name": image.name, "width": image.width, "height": image.height}
        element = _add_element("image", id=self._numbers[image.split], **facts)
        self._numbers[image.split] += 1
        element.extend(chain.from_iterable(self._draw(item, image) for item in items))
        if category := self.category_of(image):
            self._tags[category] = None
            element.append(_add_element("tag", label=category, source="auto"))
        return element

    def _draw(self, item: Annotation, image: ExportedImage) -> Iterator[Element]:
        """Yield the shapes of an object: its mask, else its box, and its keypoints."""
        own = {"label": self.categories.name(item.category), "source": "auto", "z_order": 0}
        if item.mask is not None:
            pixels = decode_mask(item.mask, image.height, image.width)
            if pixels.any():
                yield _add_element("mask", **own, occluded=0, **_run_lengths(pixels))
        else:
            yield _add_element("box", **own, occluded=0, **_list_sides(item.box))
        if any(seen != ABSENT for *_, seen in item.keypoints):
            skeleton = _add_element("skeleton", **own)
            for name, (x, y, seen) in zip(item.category.keypoints, item.keypoints, strict=True):
                flags = {"outside": int(seen == ABSENT), "occluded": int(seen == HIDDEN)}
                skeleton.append(_add_element("points", label=name, source="auto", **flags, points=f"{x:.2f},{y:.2f}"))
            yield skeleton

    def _follow(self, items: Sequence[Annotation], image: ExportedImage) -> None:
        """Add the boxes of a video's frame to its tracks; a missing one ends, or pauses."""
        there = set()
        for item in items:
            key = item.track or ("", 0)
            there.add(key)
            if key not in self._tracks:
                label = self.categories.name(item.category)
                self._tracks[key] = _add_element("track", id=len(self._tracks), label=label, source="auto")
            flags = {"frame": image.frame_index, "outside": 0, "occluded": 0, "keyframe": 1, "z_order": 0}
            self._tracks[key].append(_add_element("box", **flags, **_list_sides(item.box)))
        for key in self._tracks.keys() - there:
            last = self._tracks[key][-1].attrib
            if last["outside"] == "0":
                SubElement(self._tracks[key], "box", {**last, "frame": str(image.frame_index), "outside": "1"})

    def _end_film(self) -> None:
        if self._tracks:
            tracks = b"\n".join(tostring(track) for track in self._tracks.values())
            self.destination.write(f"tracks/{as_folder(self._film)}.xml", self._make_head() + tracks + _END)
        self._tracks = {}


def _add_element(tag: str, **attributes: object) -> Element:
    return Element(tag, {name: str(value) for name, value in attributes.items()})


def _list_sides(box: Box) -> dict[str, str]:
    return {name: f"{side:.2f}" for name, side in zip(("xtl", "ytl", "xbr", "ybr"), box, strict=True)}


def _run_lengths(pixels: Mask) -> dict[str, object]:
    """Return a mask in CVAT's form: alternating lengths of background and mask, row by row inside its box."""
    rows, columns = (np.flatnonzero(pixels.any(axis=axis)) for axis in (1, 0))
    top, left = int(rows[0]), int(columns[0])
    inside = pixels[top : rows[-1] + 1, left : columns[-1] + 1]
    flat = np.concatenate([[0], inside.ravel()])
    changes = np.flatnonzero(np.diff(flat)).tolist()
    lengths = np.diff([0, *changes, inside.size]).tolist()
    height, width = inside.shape
    return {"rle": ", ".join(map(str, lengths)), "left": left, "top": top, "width": width, "height": height}
