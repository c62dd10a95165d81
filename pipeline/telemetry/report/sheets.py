"""Contact sheets: tables that hold pictures, shown row by row.

A column is a sheet when it is a list of structs and its field's metadata says under `pictures` which member holds
JPEG bytes; under `no_pictures` it may say how to get some. So a table shows its pictures wherever they came from, and
the report knows no stage by name.
"""

from __future__ import annotations

import base64
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from pipeline.columns import describe
from pipeline.storage import Store
from pipeline.telemetry.report.gallery import said
from pipeline.telemetry.report.rows import Folder, head, is_list, is_number, is_text
from pipeline.telemetry.report.words import shorten

KEY, HINT = b"pictures", b"no_pictures"
ROWS = 20  # of a table, from its top: what matters most comes first
PICTURES = 8  # of a row
LARGEST = 100_000  # bytes of a picture; a face takes 7,000
MOST_BYTES = 1_500_000  # of all pictures of a column: with several such columns the page can still be mailed
FACTS = 6  # said of a row: its first columns
_JPEG = b"\xff\xd8\xff"


@dataclass(frozen=True, kw_only=True)
class Picture:
    """One picture with what is said of it."""

    uri: str
    title: str


@dataclass(frozen=True, kw_only=True)
class Row:
    """One row's pictures."""

    facts: tuple[tuple[str, str], ...]  # name and value of its first columns
    pictures: tuple[Picture, ...]


@dataclass(frozen=True, kw_only=True)
class Sheet:
    """A column of pictures."""

    description: str
    rows: tuple[Row, ...]
    without: str  # where the rows have no picture: what to do about it


def sheets(store: Store, folder: Folder) -> tuple[Sheet, ...]:
    """Every column of pictures of a table, by its first rows; those without an item are not shown."""
    first = head(store, folder, ROWS)
    if first is None:
        return ()
    found = {item.name: member for item in first.schema if (member := pictured(item))}
    if not found:
        return ()
    rows = first.to_pylist()
    return tuple(_sheet(first.schema, name, member, rows) for name, member in found.items())


def pictured(item: pa.Field) -> str | None:
    """The member that holds the pictures of a column; None where it is not a column of pictures."""
    member = (item.metadata or {}).get(KEY, b"").decode()
    if not member or not is_list(item.type) or not pa.types.is_struct(item.type.value_type):
        return None
    return member if item.type.value_type.get_field_index(member) >= 0 else None


def _sheet(schema: pa.Schema, name: str, member: str, rows: list[dict[str, Any]]) -> Sheet:
    plain = [
        item.name for item in schema if is_number(item.type) or is_text(item.type) or pa.types.is_boolean(item.type)
    ]
    made: list[Row] = []
    left = MOST_BYTES
    for row in (one for one in rows if one[name]):
        pictures = _pictures(row[name], member, left)
        left -= sum(len(picture.uri) for picture in pictures)
        made.append(Row(facts=tuple((key, said(row[key])) for key in plain[:FACTS]), pictures=tuple(pictures)))
    (about,) = describe(pa.schema([schema.field(name)]))
    hint = (schema.field(name).metadata or {}).get(HINT, b"").decode()
    shown = any(row.pictures for row in made)
    return Sheet(
        description=about["description"], rows=tuple(made) if shown else (), without="" if shown or not made else hint
    )


def _pictures(items: list[Mapping[str, Any]], member: str, most_bytes: int) -> list[Picture]:
    """The first of a row's pictures, until there are enough of them, or enough bytes."""
    made: list[Picture] = []
    for item in items[:PICTURES]:
        data = item[member]
        if isinstance(data, bytes) and data.startswith(_JPEG) and len(data) <= LARGEST:
            words = ", ".join(f"{key} {said(value)}" for key, value in item.items() if key != member)
            uri = f"data:image/jpeg;base64,{base64.b64encode(data).decode()}"
            most_bytes -= len(uri)
            if most_bytes < 0:
                break
            made.append(Picture(uri=uri, title=shorten(words, 200)))
    return made
