"""Label Studio: tasks/SPLIT.json with predictions to correct, and config.xml, its labelling interface.

Label Studio finds images through its local storage: its root is the export's folder or one above. Values are
percentages of width and height.
"""

from collections.abc import Iterator
from typing import Any
from urllib.parse import quote
from xml.sax.saxutils import quoteattr

from framekiln.export.annotation import ABSENT, Annotation, ExportedImage
from framekiln.export.formats.base import Format, Spool

_POINT_WIDTH = 0.5  # percent of the width: the drawn size of a keypoint
_TAGS = {"rectanglelabels": "RectangleLabels", "polygonlabels": "PolygonLabels", "keypointlabels": "KeyPointLabels"}


class Writer(Format):
    """One list of tasks a split."""

    kinds = frozenset({"boxes", "masks", "poses", "faces", "categories"})
    default = kinds

    def __init__(self, *given: Any) -> None:
        super().__init__(*given)
        self._spool = Spool()
        self._labels: dict[str, dict[str, None]] = {kind: {} for kind in (*_TAGS, "choices")}

    def add(self, image: ExportedImage) -> None:
        results = [
            {**part, "id": f"{number}", "original_width": image.width, "original_height": image.height}
            for number, part in enumerate(self._describe_all(image))
        ]
        task = {
            "data": {"image": self._find_address(image), "media_id": image.media_id, "frame_index": image.frame_index},
            "predictions": [{"model_version": "framekiln", "result": results}],
        }
        self._spool.add_json(image.split, task)

    def end(self) -> None:
        for split in self.splits:
            with self.destination.writing(f"tasks/{split}.json") as stream:
                stream.write(b"[\n")
                self._spool.copy(split, stream)
                stream.write(b"\n]\n")
        self.destination.write("config.xml", "\n".join(self._list_controls()).encode())
        if self.holes:
            text = f"{self.holes:,} masks have holes, which Label Studio's polygons do not support: they are filled."
            self.notes.append(text)

    def _find_address(self, image: ExportedImage) -> str:
        """Return the address by which Label Studio finds a picture."""
        if self.request.images == "none":
            return image.name if "://" in image.name else f"/data/local-files/?d={quote(image.name.lstrip('/'))}"
        return f"/data/local-files/?d={quote(f'{self.folder_of(image)}/{image.name}')}"

    def _describe_all(self, image: ExportedImage) -> Iterator[dict[str, Any]]:
        for item in image.annotations:
            yield from self._describe(item, image)
        if category := self.category_of(image):
            self._labels["choices"][category] = None
            yield {"from_name": "choices", "to_name": "image", "type": "choices", "value": {"choices": [category]}}

    def _describe(self, item: Annotation, image: ExportedImage) -> Iterator[dict[str, Any]]:
        """Yield the regions of an object: a polygon for each part of its mask, else its box, and its keypoints."""
        x, y = 100 / image.width, 100 / image.height
        if item.mask is not None:
            for part in self.outline(item, image):
                points = [[round(px * x, 6), round(py * y, 6)] for px, py in part.tolist()]
                yield self._make_region("polygonlabels", item.category.name, item, points=points, closed=True)
        else:
            x0, y0, x1, y1 = item.box
            sides = {"x": x0 * x, "y": y0 * y, "width": (x1 - x0) * x, "height": (y1 - y0) * y}
            rounded = {name: round(value, 6) for name, value in sides.items()}
            yield self._make_region("rectanglelabels", item.category.name, item, **rounded, rotation=0)
        for name, (px, py, seen) in zip(item.category.keypoints, item.keypoints, strict=False):
            if seen != ABSENT:
                point = {"x": round(px * x, 6), "y": round(py * y, 6), "width": _POINT_WIDTH}
                yield self._make_region("keypointlabels", name, item, **point)

    def _make_region(self, kind: str, label: str, item: Annotation, **value: Any) -> dict[str, Any]:
        self._labels[kind][label] = None
        score = {} if item.score is None else {"score": round(item.score, 6)}
        names = {"from_name": kind, "to_name": "image", "type": kind, "image_rotation": 0}
        return {**names, **score, "value": {**value, kind: [label]}}

    def _list_controls(self) -> Iterator[str]:
        yield "<View>"
        yield '  <Image name="image" value="$image"/>'
        for kind, labels in self._labels.items():
            tag, child = (_TAGS[kind], "Label") if kind in _TAGS else ("Choices", "Choice")
            if labels:
                yield f'  <{tag} name="{kind}" toName="image">'
                for number, label in enumerate(labels):  # by `model_index` Label Studio orders keypoints for COCO, YOLO
                    order = f' model_index="{number}"' if kind == "keypointlabels" else ""
                    yield f"    <{child} value={quoteattr(label)}{order}/>"
                yield f"  </{tag}>"
        yield "</View>\n"
