"""Lists of structs in a table's column as Python values, without the members that nobody asked for."""

from collections.abc import Sequence
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from framekiln.export.declared import Source, is_plain, is_vector

Item = dict[str, Any]


def wanted_members(source: Source, *, vectors: bool) -> list[str]:
    """Return the members of a source that annotations are made of; embeddings only with `vectors`, pictures never."""
    kept = {"box", "segmentation", source.landmarks}
    return [
        item.name
        for item in source.members
        if item.name in kept or is_plain(item.type) or (vectors and is_vector(item))
    ]


def read_lists(column: pa.ChunkedArray, names: Sequence[str]) -> list[list[Item | None] | None]:
    """Return the items of each row, with some members of the structs; None for a row without a value."""
    values = column.combine_chunks()
    lengths = pc.list_value_length(values).to_pylist()
    flat = pc.list_flatten(values)
    members = [flat.field(name) for name in names]
    items = pa.StructArray.from_arrays(members, names=list(names), mask=pc.is_null(flat)).to_pylist()
    found: list[list[Item | None] | None] = []
    start = 0
    for length in lengths:
        found.append(None if length is None else items[start : start + length])
        start += length or 0
    return found
