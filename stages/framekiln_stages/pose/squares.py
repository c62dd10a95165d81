"""Squares in which to look for people, by columns of other steps."""

from collections.abc import Mapping, Sequence
from typing import Any

import pyarrow as pa

from framekiln.contract.columns import Image
from framekiln_stages.pose.looks import Square

# Around a face, in heights of its box: a person is about nine of them tall, and the detector needs head and hips.
REACH = 6.0
# Around the mask of a person, in longer sides of its box: as in a second look.
MARGIN = 1.4
PEOPLE = "people"  # the category of `Categorize` that counts


def squares(batch: pa.Table, columns: Sequence[str], images: Sequence[Image]) -> list[list[Square]]:
    """Return, for each row, the squares around its faces and its masks of people.

    Args:
        batch: rows with these columns.
        columns: `faces`, `instances`, or both.
        images: the rows' pixels.
    """
    rows = batch.select(list(columns)).to_pylist() if columns else [{} for _ in images]
    return [_of_row(row, *image.shape[:2]) for row, image in zip(rows, images, strict=True)]


def _of_row(row: Mapping[str, Any], height: int, width: int) -> list[Square]:
    result = []
    for face in row.get("faces") or ():
        x0, y0, x1, y1 = _pixels(face["box"], height, width)
        side = (y1 - y0) * REACH
        result.append(Square(int((x0 + x1 - side) / 2), int(y0 - (y1 - y0)), int(side)))
    for instance in row.get("instances") or ():
        if instance["category"] == PEOPLE:
            x0, y0, x1, y1 = _pixels(instance["box"], height, width)
            side = max(x1 - x0, y1 - y0) * MARGIN
            result.append(Square(int((x0 + x1 - side) / 2), int((y0 + y1 - side) / 2), int(side)))
    return result


def _pixels(box: Mapping[str, float], height: int, width: int) -> tuple[float, float, float, float]:
    return box["x0"] * width, box["y0"] * height, box["x1"] * width, box["y1"] * height
