"""Frames and what the stages say of them, each stage by its own `preview`: the report knows none by name."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
from markupsafe import Markup

from pipeline.columns import describe
from pipeline.stage import Drawing, Stage
from pipeline.storage import Store
from pipeline.telemetry.report.charts import overlay
from pipeline.telemetry.report.rows import Folder, is_number, is_text
from pipeline.telemetry.report.thumbnails import Pick, Thumbnail, choose, rows_of, thumbnails
from pipeline.telemetry.report.words import number, shorten

COLOURS = 6  # of drawings, in the style sheet; with more stages they come round again
VALUES = 2  # shown of a step that has no caption of its own
LONGEST = 160  # characters of a caption


@dataclass(frozen=True, kw_only=True)
class Caption:
    """What a step says of a frame."""

    step: str
    text: str
    colour: int | None  # of its drawing; None without one


@dataclass(frozen=True, kw_only=True)
class Value:
    """One column of a frame."""

    name: str
    text: str
    unit: str


@dataclass(frozen=True, kw_only=True)
class Tile:
    """A frame with what was found in it."""

    pick: Pick
    picture: Thumbnail
    overlay: Markup
    captions: tuple[Caption, ...]
    values: tuple[Value, ...]


@dataclass(frozen=True, kw_only=True)
class Gallery:
    """Some frames of the collection, and a sentence about those that could not be shown."""

    tiles: tuple[Tile, ...]
    note: str


def gallery(store: Store, record: Mapping[str, Any], frames: Folder, stages: Mapping[str, Stage]) -> Gallery:
    """Frames spread over the collection, in the order of their names."""
    picks = choose(store, frames)
    pictures, note = thumbnails(store, picks, record["decode"])
    shown = [pick for pick in picks if pick.key in pictures]
    rows = rows_of(store, shown)
    drawing = {name: stage for name, stage in stages.items() if stage.scope.first_pass}
    return Gallery(tiles=tuple(_tile(pick, rows[pick.key], pictures[pick.key], drawing) for pick in shown), note=note)


def _tile(pick: Pick, row: Mapping[str, Any], picture: Thumbnail, stages: Mapping[str, Stage]) -> Tile:
    drawn, captions = [], []
    for place, (name, stage) in enumerate(stages.items()):
        if not set(stage.outputs.names) <= row.keys():
            continue
        own = {column: row[column] for column in stage.outputs.names}
        colour = place % COLOURS
        ink, said = _preview(stage, own, picture, colour)
        drawn.append(ink)
        words = said or _telling(stage.outputs, own)
        if words or ink:
            captions.append(Caption(step=name, text=shorten(words, LONGEST), colour=colour if ink else None))
    schema = [item for stage in stages.values() for item in stage.outputs if item.name in row]
    values = tuple(_values(pa.schema(schema), row))
    return Tile(pick=pick, picture=picture, overlay=Markup("").join(drawn), captions=tuple(captions), values=values)


def _preview(stage: Stage, row: Mapping[str, Any], picture: Thumbnail, colour: int) -> tuple[Markup, str]:
    """A stage's drawing and caption; a stage that cannot draw its own row goes without."""
    try:
        drawing = stage.preview(row) or Drawing()
        return overlay(drawing, picture.width, picture.height, colour), str(drawing.caption)
    except Exception:  # a stage's fault in drawing must not cost the report
        return Markup(""), ""


def _telling(schema: pa.Schema, row: Mapping[str, Any]) -> str:
    values = [value for value in _values(schema, row) if value.text != "–"][:VALUES]
    return ", ".join(f"{value.name} {value.text} {value.unit}".rstrip() for value in values)


def _values(schema: pa.Schema, row: Mapping[str, Any]) -> Iterator[Value]:
    for about in describe(schema):
        kind = schema.field(about["name"]).type
        if is_number(kind) or is_text(kind) or pa.types.is_boolean(kind):
            yield Value(name=about["name"], text=said(row[about["name"]]), unit=about["unit"])


def said(value: Any, longest: int = 60) -> str:
    """A value of a table as a short text: lists by their length, null as a dash."""
    if value is None:
        return "–"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int | float):
        return number(value)
    if isinstance(value, list):
        return f"[{len(value):,}]"
    return shorten(str(value), longest)
