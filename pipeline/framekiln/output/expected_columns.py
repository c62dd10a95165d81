"""Columns that a table is expected to have."""

from collections.abc import Collection

import pyarrow as pa

_OPTIONAL, _EXACT = b"framekiln.optional", b"framekiln.exact"


def exact(schema: pa.Schema) -> pa.Schema:
    """Return a schema for tables that have no other columns.

    If columns of it are optional, a table may have other ones where it lacks none, as later versions write more.
    """
    return schema.with_metadata({_EXACT: b""})


def optional(schema: pa.Schema, keys: Collection[str] = ()) -> pa.Schema:
    """Return a schema for tables that may lack some columns but the keys, as earlier versions wrote fewer."""
    return pa.schema([item if item.name in keys else item.with_metadata({_OPTIONAL: b""}) for item in schema])


def check_types(schema: pa.Schema, expected: pa.Schema | None) -> None:
    """Check that a schema has columns with the expected types, among others; see `optional` and `exact`.

    Raises ArrowInvalid: it has not.
    """
    if expected is None:
        return
    has_all = any(_OPTIONAL in (item.metadata or {}) for item in expected) and set(expected.names) <= set(schema.names)
    if _EXACT in (expected.metadata or {}) and not has_all and (other := set(schema.names) - set(expected.names)):
        raise pa.ArrowInvalid(f"columns {', '.join(sorted(other))} are of no such table")
    for item in expected:
        place = schema.get_field_index(item.name)
        if place < 0 and _OPTIONAL in (item.metadata or {}):
            continue
        if place < 0 or schema.field(place).type != item.type:
            found = "absent" if place < 0 else f"of type {schema.field(place).type}"
            raise pa.ArrowInvalid(f"column {item.name} is {found}, not of type {item.type}")


def check_text(schema: pa.Schema) -> None:
    """Check that the metadata of a schema and of its fields are text; pyarrow checks names itself.

    Raises UnicodeDecodeError: they are not.
    """
    for metadata in (schema.metadata, *(item.metadata for item in schema)):
        for key, value in (metadata or {}).items():
            key.decode(), value.decode()
