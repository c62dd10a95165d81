"""What somebody points at: points and boxes out of a column or a file, as SAM reads them.

A prompt is one or more points with labels; a box is its two corners. Rows of points that share an `object` are one
prompt, so that several points, also of the background, can describe one thing; a row without is a prompt of its own.

Shapes: k points of a prompt, as shares of width and height, k 2; labels k.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from stages.nets.sam2 import CORNERS, POINT

READERS = (".parquet", ".csv", ".jsonl")
_FIELDS = {"points": ("x", "y"), "boxes": ("x0", "y0", "x1", "y1")}
_NESTED = {"points": "point", "boxes": "box"}

Key = tuple[str, int | None]


@dataclass(frozen=True, kw_only=True)
class Prompt:
    """One question to the model."""

    points: NDArray[np.float32]
    labels: NDArray[np.int64]

    @property
    def point(self) -> tuple[float, float] | None:
        """Its first point; None where it is a box."""
        return None if self.labels[0] in CORNERS else (float(self.points[0, 0]), float(self.points[0, 1]))


def centres(points: NDArray[np.float32]) -> list[Prompt]:
    """A prompt for each point (p 2)."""
    label = np.array([POINT])
    return [Prompt(points=point[None], labels=label) for point in points]


def prompts_of(rows: Iterable[Mapping[str, Any]], kind: str) -> list[Prompt]:
    """Prompts in the order in which they first appear.

    Args:
        rows: with x, y and perhaps label (1, or 0 for the background), or x0, y0, x1, y1; or with a struct of these
            called point or box; perhaps object.
        kind: points or boxes.

    Raises:
        ValueError: a coordinate or label is missing or makes no sense.
    """
    found: dict[Any, list[tuple[list[float], list[int]]]] = {}
    for number, row in enumerate(rows):
        group = row.get("object") if kind == "points" else None
        found.setdefault((0, number) if group is None else (1, group), []).append(_read(row, kind))
    return [
        Prompt(
            points=np.array([value for values, _ in parts for value in values], np.float32).reshape(-1, 2).clip(0, 1),
            labels=np.array([label for _, labels in parts for label in labels]),
        )
        for parts in found.values()
    ]


def _read(row: Mapping[str, Any], kind: str) -> tuple[list[float], list[int]]:
    names = _FIELDS[kind]
    place = row.get(_NESTED[kind], row) or {}
    values: list[Any] = [place.get(name) for name in names]
    if any(value is None or not np.isfinite(value) for value in values):
        raise ValueError(f"a prompt lacks a number for one of {', '.join(names)}")
    if kind == "boxes":
        return values, list(CORNERS)
    label = row.get("label")
    if label not in (None, 0, 1):
        raise ValueError(f"a prompt's label must be 0 or 1, not {label}")
    return values, [POINT if label is None else int(label)]


def holds(dtype: pa.DataType, kind: str) -> bool:
    """Whether a column of this type can be read as prompts."""
    if not (pa.types.is_list(dtype) or pa.types.is_large_list(dtype)) or not pa.types.is_struct(dtype.value_type):
        return False
    names = {item.name: item.type for item in dtype.value_type}
    nested = names.get(_NESTED[kind])
    inside = {item.name for item in nested} if nested is not None and pa.types.is_struct(nested) else set(names)
    return set(_FIELDS[kind]) <= inside


class PromptFile:
    """Prompts by media and frame, out of a Parquet file, a CSV or JSON Lines."""

    def __init__(self, path: Path, kind: str) -> None:
        """Read all of it.

        Raises:
            FileNotFoundError: it is not there.
            ValueError: a column is missing, or a coordinate is no share of the frame.
        """
        groups: dict[Key, list[Mapping[str, Any]]] = {}
        for row in _rows(path, ("media_id", *_FIELDS[kind])):
            if not all(row[name] is not None and 0 <= row[name] <= 1 for name in _FIELDS[kind]):
                raise ValueError(f"{path.name}: coordinates must be shares of the frame, 0 to 1: {_short(row)}")
            frame = row.get("frame_index")
            groups.setdefault((row["media_id"], None if frame is None else int(frame)), []).append(row)
        self._prompts = {key: prompts_of(rows, kind) for key, rows in groups.items()}

    def of(self, media_id: str, frame_index: int) -> Sequence[Prompt]:
        """Prompts of all frames of the file, where rows name no frame; then those of this one."""
        return [*self.at(media_id, None), *self.at(media_id, frame_index)]

    def at(self, media_id: str, frame_index: int | None) -> Sequence[Prompt]:
        """Prompts of one frame only; None: those whose rows name no frame."""
        return self._prompts.get((media_id, frame_index), ())


def _rows(path: Path, needed: Sequence[str]) -> list[dict[str, Any]]:
    if path.suffix == ".jsonl":
        lines = path.read_text(encoding="utf-8").splitlines()
        rows = [json.loads(line) for line in lines if line.strip()]
        names = set(needed).intersection(*rows) if rows else set(needed)
    else:
        rows, names = _table(path)
    missing = [name for name in needed if name not in names]
    if missing:
        raise ValueError(f"{path.name} has no column {missing[0]!r}")
    return rows


def _table(path: Path) -> tuple[list[dict[str, Any]], set[str]]:
    if path.suffix == ".csv":
        from pyarrow import csv

        # an id made of digits is still a name
        table = csv.read_csv(path, convert_options=csv.ConvertOptions(column_types={"media_id": pa.string()}))
    else:
        from pyarrow import parquet

        table = parquet.read_table(path)
    return table.to_pylist(), set(table.column_names)


def _short(row: Mapping[str, Any]) -> str:
    return ", ".join(f"{name} {value}" for name, value in row.items())
