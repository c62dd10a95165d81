"""Frames and what the stages say of them, each stage by its own `preview`: the report knows none by name."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeVar

import pyarrow as pa
from markupsafe import Markup

from pipeline.columns import describe
from pipeline.stage import Drawing, Stage
from pipeline.telemetry.report.drawings import COLOURS, strokes
from pipeline.telemetry.report.findings import Findings
from pipeline.telemetry.report.picks import Key, Pick
from pipeline.telemetry.report.rows import is_number, is_text
from pipeline.telemetry.report.thumbnails import Thumbnail
from pipeline.telemetry.report.words import number, shorten

T = TypeVar("T")

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


def gallery(
    picks: Sequence[Pick], pictures: Mapping[Key, Thumbnail], findings: Findings, stages: Mapping[str, Stage]
) -> Gallery:
    """Frames with what each step of the first pass says of them; strokes only, lest one drawing hide another."""
    shown = [pick for pick in picks if pick.key in pictures]
    missing = len(picks) - len(shown)
    note = f"{missing} of {len(picks)} chosen frames are not shown: their files were moved or changed after the run."
    drawing = {name: stage for name, stage in stages.items() if stage.scope.first_pass}
    tiles = tuple(_tile(pick, findings, pictures[pick.key], drawing) for pick in shown)
    return Gallery(tiles=tiles, note=note if missing else "")


def preview(stage: Stage, row: Mapping[str, Any]) -> Drawing:
    """A stage's drawing of what it found; nothing where it cannot draw its own row."""
    return safely(lambda: stage.preview(row), None) or Drawing()


def safely(make: Callable[[], T], otherwise: T) -> T:
    """What a stage's code or drawing gives: a stage's fault in it must not cost the report."""
    try:
        return make()
    except Exception:  # whatever the code of a stage may raise
        return otherwise


def _tile(pick: Pick, findings: Findings, picture: Thumbnail, stages: Mapping[str, Stage]) -> Tile:
    drawn, captions, row = [], [], findings.row(pick.key)
    for place, (name, stage) in enumerate(stages.items()):
        own = findings.of(stage, pick.key)
        if own is None:
            continue
        drawing = preview(stage, own)
        ink = safely(partial(strokes, drawing, picture.width, picture.height, place), Markup(""))
        drawn.append(ink)
        words = str(drawing.caption) or _telling(stage.outputs, own)
        if words or ink:
            colour = place % COLOURS if ink else None
            captions.append(Caption(step=name, text=shorten(words, LONGEST), colour=colour))
    schema = {item.name: item for stage in stages.values() for item in stage.outputs if item.name in row}
    values = tuple(_values(pa.schema(schema.values()), row))
    return Tile(pick=pick, picture=picture, overlay=Markup("").join(drawn), captions=tuple(captions), values=values)


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
