"""Frames with all steps' results, and with each step's alone, drawn by the stages' own `draw`; and images in tables.

A column is a contact sheet if it is a list of structs and its field's metadata names the member with JPEG bytes under
`pictures`. Under `no_pictures` the metadata may hold a hint on how to get some. The report knows no stage. All
functions return values for the templates.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any, TypeVar

import pyarrow as pa
from markupsafe import Markup

from framekiln.contract.columns import FrameKey, describe
from framekiln.contract.drawing import Drawing
from framekiln.contract.stage import Stage
from framekiln.output.kept_tables import spread
from framekiln.output.object_store import Store
from framekiln.reporting.html.gallery.findings import Findings, Pick
from framekiln.reporting.html.gallery.thumbnails import COLOURS, Thumbnail, all_layers, resized_uri, strokes
from framekiln.reporting.kit.pages import image_uri
from framekiln.reporting.kit.texts import MISSING, cell, shorten
from framekiln.reporting.table_rows import TableFiles, head, is_list, is_scalar

T = TypeVar("T")
Values = Mapping[str, Any]

VALUES = 2  # shown for a step without a caption
LONGEST = 160  # characters of a caption


def gallery(
    picks: Sequence[Pick], images: Mapping[FrameKey, Thumbnail], findings: Findings, stages: Mapping[str, Stage]
) -> list[Values]:
    """Return frames with first-pass results; drawings only as strokes, so that none hides another."""
    first_pass = {name: stage for name, stage in stages.items() if stage.scope.first_pass}
    tiles: list[Values] = []
    for pick in (pick for pick in picks if pick.key in images):
        overlay, captions, row, image = Markup(""), [], findings.row(pick.key), images[pick.key]
        for place, (name, stage) in enumerate(first_pass.items()):
            if (results := findings.of(stage, pick.key)) is None:
                continue
            drawing = _draw(stage, results)
            ink = _call_safely(partial(strokes, drawing, image.width, image.height, place), Markup(""))
            overlay += ink
            first = [value for value in _list_values(stage.outputs, results) if value["text"] != MISSING][:VALUES]
            values = ", ".join("{name} {text} {unit}".format(**value).rstrip() for value in first)
            if (text := str(drawing.caption) or values) or ink:
                colour = place % COLOURS if ink else None
                captions.append({"step": name, "text": shorten(text, LONGEST), "colour": colour})
        schema = {item.name: item for stage in first_pass.values() for item in stage.outputs if item.name in row}
        cells = list(_list_values(pa.schema(schema.values()), row))
        tiles.append({"pick": pick, "overlay": overlay, "captions": captions, "cells": cells})
    return tiles


def _draw(stage: Stage, row: Values) -> Drawing:
    return _call_safely(lambda: stage.draw(row), None) or Drawing()


def _call_safely(make: Callable[[], T], otherwise: T) -> T:
    """Return the result of code that depends on a stage; its failure must not prevent the report."""
    try:
        return make()
    except Exception:  # a stage may raise anything
        return otherwise


def _list_values(schema: pa.Schema, row: Values) -> Iterator[Values]:
    for about in describe(schema):
        if is_scalar(schema.field(about["name"]).type):
            yield {**about, "text": cell(row[about["name"]])}


_DRAWN = ("lines", "points", "areas", "labels", "overlay", "result_image")  # parts of a drawing that show something
EACH = 4  # frames of a step
LEGEND = 72  # px


def step_samples(
    picks: Sequence[Pick], images: Mapping[FrameKey, Thumbnail], findings: Findings, stages: Mapping[str, Stage]
) -> list[Values]:
    """Return the samples of every step with something to show, in order."""
    shown = [pick for pick in picks if pick.key in images]
    samples: list[Values] = []
    for colour, (name, stage) in enumerate(stages.items()):
        results = [(pick, row) for pick in shown if (row := findings.of(stage, pick.key)) is not None]
        pairs = [(pick, _draw(stage, row)) for pick, row in results]
        drawn = [pair for pair in pairs if any(getattr(pair[1], part) for part in _DRAWN)]
        telling = drawn or [pair for pair in pairs if pair[1].caption]
        if not telling:
            continue
        firsts = list({pick.media_id: (pick, drawing) for pick, drawing in reversed(telling)}.values())[::-1]
        others = [pair for pair in telling if all(pair[0] != pick for pick, _ in firsts)]
        chosen = spread(firsts, EACH)
        chosen = sorted([*chosen, *spread(others, EACH - len(chosen))], key=lambda pair: pair[0])
        legend = next((drawing.legend for _, drawing in chosen if drawing.legend), None)
        has_lines = any(drawing.lines or drawing.points for _, drawing in chosen)
        sample = {
            "step": name,
            "colour": colour % COLOURS if has_lines else None,  # colour of its lines
            "frames": [_make_sample(pick, drawing, images[pick.key], colour) for pick, drawing in chosen],
            "legend": legend and resized_uri(legend.image, LEGEND, LEGEND, transparent=True),
            "legend_text": legend.text if legend else "",
        }
        samples.append(sample)
    return samples


def _make_sample(pick: Pick, drawing: Drawing, image: Thumbnail, colour: int) -> Values:
    """Return a frame with one step's drawing and, as `after`, the frame changed by the step."""
    size = image.width, image.height
    layers = _call_safely(partial(all_layers, drawing, *size, colour), Markup(""))
    after = _call_safely(partial(resized_uri, drawing.result_image or b"", *size), None)
    return {"pick": pick, "drawing": layers, "after": after, "caption": shorten(str(drawing.caption), LONGEST)}


KEY, HINT = b"pictures", b"no_pictures"
ROWS = 20  # rows of a table, from its top, with the most important rows
IMAGES = 8  # images of a row
LARGEST = 100_000  # bytes of an image; a face takes 7,000
MOST_BYTES = 1_500_000  # bytes of all images of a column, so that a page with several such columns can be mailed
FACTS = 6  # columns named for a row, from the left
_JPEG = b"\xff\xd8\xff"


def contact_sheets(store: Store, table: TableFiles) -> list[Values]:
    """Return every column of images in a table's first rows, without rows lacking images."""
    first, sheets = head(store, table, ROWS), list[Values]()
    scalars = [column.name for column in first.schema if is_scalar(column.type)][:FACTS]
    rows = first.to_pylist() if any(map(_find_member, first.schema)) else []
    for item in filter(_find_member, first.schema):
        kept, left = list[Values](), MOST_BYTES
        for row in (row for row in rows if row[item.name]):
            images, member = list[Values](), _find_member(item)
            for one in row[item.name][:IMAGES]:
                data = one[member]
                if isinstance(data, bytes) and data.startswith(_JPEG) and len(data) <= LARGEST:
                    text = ", ".join(f"{key} {cell(value)}" for key, value in one.items() if key != member)
                    uri = image_uri(data)
                    if len(uri) > left:
                        break
                    left -= len(uri)
                    images.append({"uri": uri, "title": shorten(text, 200)})
            kept.append({"facts": {name: cell(row[name]) for name in scalars}, "images": images})
        (about,) = describe(pa.schema([item]))
        shown = any(row["images"] for row in kept)
        hint = (item.metadata or {}).get(HINT, b"").decode() if kept and not shown else ""
        sheets.append({"description": about["description"], "rows": kept if shown else [], "hint": hint})
    return sheets


def _find_member(item: pa.Field) -> str:
    """Return the member with a column's images; empty if there is none."""
    member = (item.metadata or {}).get(KEY, b"").decode()
    has_structs = is_list(item.type) and pa.types.is_struct(item.type.value_type)
    return member if has_structs and item.type.value_type.get_field_index(member) >= 0 else ""
