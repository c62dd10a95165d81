"""One value of a column or table made an annotation."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from framekiln.contract.columns import KEYS
from framekiln.export.annotation import ABSENT, HIDDEN, SEEN, Annotation, Box
from framekiln.export.declared import Source, is_plain, is_vector
from framekiln.export.items import Item
from framekiln.export.keypoints import choose_keypoints

_VISIBLE = 0.5
"""Least visibility of a landmark that counts as seen: the threshold of MediaPipe's own drawing_utils."""


class Maker:
    """Makes annotations of the values of one source."""

    def __init__(self, source: Source, keypoints: str) -> None:
        self._source = source
        self._points = choose_keypoints(source, keypoints)
        known = {source.named_by, source.scored_by, source.track, *KEYS}
        self._plain = [item.name for item in source.members if is_plain(item.type) and item.name not in known]
        self._vector = next((item.name for item in source.members if is_vector(item)), "")

    def make(self, item: Item, size: tuple[int, int], *, beside: Item, ids: Item) -> Iterator[Annotation]:
        """Yield the annotation of a value; none where nothing of it is in the picture.

        Args:
            item: the value.
            size: width and height of the frame.
            beside: the value of another column about the same thing, which may name its category.
            ids: its `track` (table and number) and `identity`, as far as they are known.
        """
        mask = item.get("segmentation")
        points = self._make_points(item, size)
        box = find_box(item, mask, item.get(self._source.landmarks) or (), size)
        if box is None:
            return
        source = self._source
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
            attributes={name: item[name] for name in self._plain if item.get(name) is not None},
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
    """Return the box of a value in px: its own, that of its mask, or that round its landmarks; None for none.

    The last is cut at the picture's edges, as boxes of stages are.
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
