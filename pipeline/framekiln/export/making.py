"""A value of a column or table turned into an annotation."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from framekiln.contract.columns import KEYS
from framekiln.export.annotation import ABSENT, HIDDEN, SEEN, Annotation, Box, Category
from framekiln.export.declared import Source, is_plain, is_vector

Item = dict[str, Any]


def wanted_members(source: Source, *, vectors: bool) -> list[str]:
    """Return the members of a source that annotations need; embeddings only with `vectors`, pictures never."""
    kept = {"box", "segmentation", source.landmarks}
    return [
        item.name
        for item in source.members
        if item.name in kept or is_plain(item.type) or (vectors and is_vector(item))
    ]


def read_lists(column: pa.ChunkedArray, names: Sequence[str]) -> list[list[Item | None] | None]:
    """Return the items of each row, with some members of the structs; None for a row without a value."""
    values = column.combine_chunks()
    lengths = pc.list_value_length(values).to_pylist()
    flat = pc.list_flatten(values)
    members = [flat.field(name) for name in names]
    items = pa.StructArray.from_arrays(members, names=list(names), mask=pc.is_null(flat)).to_pylist()
    found: list[list[Item | None] | None] = []
    start = 0
    for length in lengths:
        found.append(None if length is None else items[start : start + length])
        start += length or 0
    return found


COCO_17 = (
    "nose",
    *(
        f"{side}_{part}"
        for part in ("eye", "ear", "shoulder", "elbow", "wrist", "hip", "knee", "ankle")
        for side in ("left", "right")
    ),
)
"""Names and order of COCO's person_keypoints_*.json."""
_BONES = (
    *((15, 13), (13, 11), (16, 14), (14, 12), (11, 12), (5, 11), (6, 12), (5, 6), (5, 7), (6, 8)),
    *((7, 9), (8, 10), (1, 2), (0, 1), (0, 2), (1, 3), (2, 4), (3, 5), (4, 6)),
)  # within the file, from 0


@dataclass(frozen=True, kw_only=True)
class Keypoints:
    """The exported landmarks of a source, and their names."""

    positions: tuple[int, ...]  # indices of the exported landmarks in the source
    names: tuple[str, ...] = ()
    skeleton: tuple[tuple[int, int], ...] = ()

    def category(self, name: str) -> Category:
        return Category(name=name, keypoints=self.names, skeleton=self.skeleton)


def choose_keypoints(source: Source, wanted: str) -> Keypoints:
    """Return the keypoints of a source: `all`, or with `coco17` COCO's 17 if it has them."""
    places = {name: place for place, name in enumerate(source.keypoints)}
    if wanted == "coco17" and places.keys() >= set(COCO_17):
        return Keypoints(positions=tuple(places[name] for name in COCO_17), names=COCO_17, skeleton=_BONES)
    return Keypoints(positions=tuple(places.values()), names=source.keypoints, skeleton=source.skeleton)


_VISIBLE = 0.5
"""Least visibility of a landmark that counts as seen: the threshold of MediaPipe's own drawing_utils."""


class Maker:
    """Makes annotations from one source's values."""

    def __init__(self, source: Source, keypoints: str) -> None:
        self._source = source
        self._points = choose_keypoints(source, keypoints)
        known = {source.named_by, source.scored_by, source.track, *KEYS}
        known |= {"area"} if "segmentation" in source.members.names else set()  # its mask may be of another size
        self._plain = [item.name for item in source.members if is_plain(item.type) and item.name not in known]
        self._vector = next((item.name for item in source.members if is_vector(item)), "")

    def make(self, item: Item, size: tuple[int, int], *, beside: Item, ids: Item) -> Iterator[Annotation]:
        """Yield the annotation of a value; none if nothing of it is in the picture.

        Args:
            item: the value.
            size: width and height of the frame.
            beside: the value of another column about the same thing, which may name its category.
            ids: its `track` (table and number), `identity` and `person` (a name), as far as they are known.
        """
        mask = item.get("segmentation")
        points = self._make_points(item, size)
        box = find_box(item, mask, item.get(self._source.landmarks) or (), size)
        if box is None:
            return
        source = self._source
        own = {"person": ids.get("person")} | item
        name = beside.get("category") or item.get(source.named_by) or source.category
        yield Annotation(
            kind=source.kind,
            source=source.name,
            category=self._points.category(str(name)),
            box=box,
            score=item.get(source.scored_by),
            mask=mask,
            keypoints=points,
            track=ids.get("track"),
            identity=ids.get("identity"),
            attributes={key: own[key] for key in (*self._plain, "person") if own.get(key) is not None},
            embedding=item.get(self._vector),
        )

    def _make_points(self, item: Item, size: tuple[int, int]) -> list[tuple[float, float, int]]:
        """Return x and y in px, and COCO's visibility; a point outside of the picture is absent."""
        marks = item.get(self._source.landmarks)
        if not marks:
            return [(0.0, 0.0, ABSENT)] * len(self._points.names) if self._source.keypoints else []
        width, height = size
        found = []
        for position in self._points.positions:
            mark: Mapping[str, Any] = marks[position]
            inside = 0 <= mark["x"] <= 1 and 0 <= mark["y"] <= 1
            seen = SEEN if mark.get("visibility", 1.0) >= _VISIBLE else HIDDEN
            found.append((mark["x"] * width, mark["y"] * height, seen) if inside else (0.0, 0.0, ABSENT))
        return found


def find_box(
    item: Item, mask: Mapping[str, Any] | None, marks: Sequence[Mapping[str, float]], size: tuple[int, int]
) -> Box | None:
    """Return the box of a value in px: its own, its mask's, or the one round its landmarks; else None.

    A box round landmarks is cut at the picture's edges, as stages' boxes are.
    """
    width, height = size
    if sides := item.get("box"):
        return sides["x0"] * width, sides["y0"] * height, sides["x1"] * width, sides["y1"] * height
    if mask is not None:
        from pycocotools import mask as coco

        own_height, own_width = mask["size"]
        x, y, w, h = coco.toBbox({"size": [own_height, own_width], "counts": mask["counts"].encode()}).tolist()
        by_x, by_y = width / own_width, height / own_height
        return (x * by_x, y * by_y, (x + w) * by_x, (y + h) * by_y) if w and h else None
    xs, ys = ([min(max(mark[axis], 0.0), 1.0) for mark in marks] for axis in ("x", "y"))
    if not marks or max(xs) == min(xs) or max(ys) == min(ys):
        return None
    return min(xs) * width, min(ys) * height, max(xs) * width, max(ys) * height
