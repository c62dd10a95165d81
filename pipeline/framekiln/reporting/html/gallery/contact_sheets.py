"""Contact sheets: images that tables hold, row by row.

A column is a contact sheet when it is a list of structs and its field's metadata names under `pictures` the member
with JPEG bytes. Under `no_pictures` the metadata may hold a hint how to get some. The report needs no code for any
stage.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import pyarrow as pa

from framekiln.contract.columns import describe
from framekiln.output.object_store import Store
from framekiln.reporting.kit.formatting import cell, shorten
from framekiln.reporting.kit.pages import image_uri
from framekiln.reporting.table_rows import TableFiles, head, is_list, is_scalar

KEY, HINT = b"pictures", b"no_pictures"
ROWS = 20  # of a table, from its top, where the most important rows are
IMAGES = 8  # of a row
LARGEST = 100_000  # bytes of an image; a face takes 7,000
MOST_BYTES = 1_500_000  # of all images of a column, so that a page with several such columns can be mailed
FACTS = 6  # columns named for a row, from the left
_JPEG = b"\xff\xd8\xff"


class SheetImage(NamedTuple):
    """One image with its description."""

    uri: str
    title: str


class SheetRow(NamedTuple):
    """One row's images."""

    facts: Mapping[str, str]  # its first columns
    images: Sequence[SheetImage]


@dataclass(frozen=True, kw_only=True)
class ContactSheet:
    """A column of images."""

    description: str
    rows: tuple[SheetRow, ...]
    hint: str  # how to get images; empty where there are some


def contact_sheets(store: Store, table: TableFiles) -> tuple[ContactSheet, ...]:
    """Return every column of images in a table's first rows, without rows that have no item."""
    first = head(store, table, ROWS)
    members = [(item, member) for item in first.schema if (member := image_member(item))]
    rows = first.to_pylist() if members else []
    return tuple(_make_sheet(first.schema, item, member, rows) for item, member in members)


def image_member(item: pa.Field) -> str | None:
    """Return the member that holds the images of a column; None where it holds none."""
    member = (item.metadata or {}).get(KEY, b"").decode()
    if not member or not is_list(item.type) or not pa.types.is_struct(item.type.value_type):
        return None
    return member if item.type.value_type.get_field_index(member) >= 0 else None


def _make_sheet(schema: pa.Schema, item: pa.Field, member: str, rows: list[dict[str, Any]]) -> ContactSheet:
    scalars = [column.name for column in schema if is_scalar(column.type)][:FACTS]
    sheet_rows: list[SheetRow] = []
    left = MOST_BYTES
    for row in rows:
        if not row[item.name]:
            continue
        images = _choose_images(row[item.name], member, left)
        left -= sum(len(image.uri) for image in images)
        sheet_rows.append(SheetRow({name: cell(row[name]) for name in scalars}, images))
    (about,) = describe(pa.schema([item]))
    hint = (item.metadata or {}).get(HINT, b"").decode()
    shown = any(row.images for row in sheet_rows)
    return ContactSheet(
        description=about["description"],
        rows=tuple(sheet_rows) if shown else (),
        hint="" if shown or not sheet_rows else hint,
    )


def _choose_images(items: list[Mapping[str, Any]], member: str, most_bytes: int) -> list[SheetImage]:
    images: list[SheetImage] = []
    for item in items[:IMAGES]:
        data = item[member]
        if isinstance(data, bytes) and data.startswith(_JPEG) and len(data) <= LARGEST:
            text = ", ".join(f"{key} {cell(value)}" for key, value in item.items() if key != member)
            uri = image_uri(data)
            most_bytes -= len(uri)
            if most_bytes < 0:
                break
            images.append(SheetImage(uri, shorten(text, 200)))
    return images
