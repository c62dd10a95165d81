"""Prompts for Segment Anything: points and boxes from a column or a file.

A prompt is one or more points with labels; a box is its two corners. Rows of points with the same `object` form one
prompt, so that several points, even of the background, can describe one object. A row without `object` is a prompt of
its own.

Shapes: p prompts; k points of a prompt, as shares of width and height, k 2; labels k.
"""

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

POINT = 1  # label of a point on the object; 0 is the background
CORNERS = (2, 3)  # a box is two points: its upper left and its lower right corner
FILE_TYPES = (".parquet", ".csv", ".jsonl")
_FIELDS = {"points": ("x", "y"), "boxes": ("x0", "y0", "x1", "y1")}
_NESTED = {"points": "point", "boxes": "box"}

Key = tuple[str, int | None]


@dataclass(frozen=True, kw_only=True)
class Prompt:
    """The points of one object, or the corners of its box."""

    points: NDArray[np.float32]
    labels: NDArray[np.int64]

    @property
    def point(self) -> tuple[float, float] | None:
        """The first point; None where the prompt is a box."""
        return None if self.labels[0] in CORNERS else (float(self.points[0, 0]), float(self.points[0, 1]))


def parse_prompts(rows: Iterable[Mapping[str, Any]], kind: str) -> list[Prompt]:
    """Return prompts in the order in which they first appear.

    `rows`: with x, y and optionally label (1, or 0 for the background), or with x0, y0, x1, y1. These may lie in a
    struct called point or box. Rows of points optionally have an object. `kind`: points or boxes. Raises ValueError: a
    coordinate is missing or not finite, or a label is not 0 or 1.
    """
    groups: dict[Any, list[tuple[list[float], list[int]]]] = {}
    for number, row in enumerate(rows):
        group = row.get("object") if kind == "points" else None
        groups.setdefault((0, number) if group is None else (1, group), []).append(_parse_row(row, kind))
    return [
        Prompt(
            points=np.array([value for values, _ in parts for value in values], np.float32).reshape(-1, 2).clip(0, 1),
            labels=np.array([label for _, labels in parts for label in labels]),
        )
        for parts in groups.values()
    ]


def _parse_row(row: Mapping[str, Any], kind: str) -> tuple[list[float], list[int]]:
    names = _FIELDS[kind]
    fields = row.get(_NESTED[kind], row) or {}
    values: list[Any] = [fields.get(name) for name in names]
    if any(value is None or not np.isfinite(value) for value in values):
        raise ValueError(f"a prompt has no number for one of {', '.join(names)}")
    if kind == "boxes":
        return values, list(CORNERS)
    label = row.get("label")
    if label not in (None, 0, 1):
        raise ValueError(f"a prompt's label must be 0 or 1, not {label}")
    return values, [POINT if label is None else int(label)]


def check_prompt_file(path: str) -> None:
    """Check the type of a prompt file by its name. Raises ValueError: the type is none of `FILE_TYPES`."""
    if Path(path).suffix not in FILE_TYPES:
        raise ValueError(f"prompt_file must end in one of {', '.join(FILE_TYPES)}, not be {path!r}")


class PromptFile:
    """The prompts of a Parquet, CSV or JSON Lines file, by media and frame."""

    def __init__(self, path: Path, kind: str) -> None:
        """Read the whole file.

        Raises FileNotFoundError: the file is missing; ValueError: a column is missing, or a coordinate is no share of
        the frame.
        """
        groups: dict[Key, list[Mapping[str, Any]]] = {}
        for row in _read_rows(path, ("media_id", *_FIELDS[kind])):
            if not all(isinstance(row[name], int | float) and 0 <= row[name] <= 1 for name in _FIELDS[kind]):
                values = ", ".join(f"{name} {value}" for name, value in row.items())
                raise ValueError(f"{path.name}: coordinates must be shares of the frame, 0 to 1: {values}")
            frame = row.get("frame_index")
            groups.setdefault((row["media_id"], None if frame is None else int(frame)), []).append(row)
        self._prompts = {key: parse_prompts(rows, kind) for key, rows in groups.items()}

    def only_for(self, media_id: str, frame_index: int | None) -> Sequence[Prompt]:
        """Return the prompts for one frame only; None: prompts of rows without a frame."""
        return self._prompts.get((media_id, frame_index), ())


def _read_rows(path: Path, needed: Sequence[str]) -> list[dict[str, Any]]:
    if path.suffix == ".jsonl":
        lines = path.read_text(encoding="utf-8").splitlines()
        rows = [json.loads(line) for line in lines if line.strip()]
        names = set(needed).intersection(*rows) if rows else set(needed)
    else:
        rows, names = _read_table(path)
    missing = [name for name in needed if name not in names]
    if missing:
        raise ValueError(f"{path.name} has no column {missing[0]!r}")
    return rows


def _read_table(path: Path) -> tuple[list[dict[str, Any]], set[str]]:
    if path.suffix == ".csv":
        from pyarrow import csv

        # an id of only digits must stay a string
        table = csv.read_csv(path, convert_options=csv.ConvertOptions(column_types={"media_id": pa.string()}))
    else:
        from pyarrow import parquet

        table = parquet.read_table(path)
    return table.to_pylist(), set(table.column_names)
