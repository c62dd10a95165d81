"""Declarations of columns and tables for exports, by types and by `framekiln.contract.columns.annotates`.

So a user's stage whose column is a list of structs with a `box` is exported like a shipped one.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from framekiln.contract.columns import KEYS, annotation_facts
from framekiln.contract.output_names import FRAMES
from framekiln.output.object_store import Store
from framekiln.output.recognise import later_tables

_SIDES = {"x0", "y0", "x1", "y1"}
_NAMES = ("category", "label", "class", "name")
"""Members of a struct that name its category."""
_SCORES = ("score", "probability", "confidence", "predicted_iou")
"""Members with a stage's confidence."""


@dataclass(frozen=True, kw_only=True)
class Source:
    """A column of `frames/` with a list of structs, or a table with a row for each object."""

    kind: str  # boxes, masks, poses, faces or tracks
    name: str  # of the column or the table
    members: pa.StructType  # members of a struct, or columns of the table
    category: str  # category of objects that name none
    landmarks: str = ""  # the member with keypoints
    keypoints: tuple[str, ...] = ()
    skeleton: tuple[tuple[int, int], ...] = ()
    of: str = ""  # another source with an item for each of this one's
    track: str = ""  # the table's column with the number of a track

    def first(self, names: tuple[str, ...]) -> str:
        """Return the first of some members that exists; empty if none does."""
        return next((name for name in names if name in self.members.names), "")

    @property
    def named_by(self) -> str:
        """The member that names the category."""
        return self.first(_NAMES)

    @property
    def scored_by(self) -> str:
        return self.first(_SCORES)


@dataclass(frozen=True, kw_only=True)
class Link:
    """A table that gives items of a column their track or identity."""

    table: str
    index: str  # its column with the number of the item
    of: str  # the column of `frames/`
    role: str  # track or identity
    value: str  # its column with the number of the track or identity


@dataclass(frozen=True, kw_only=True)
class Declared:
    """All that an output declares."""

    columns: tuple[Source, ...]  # columns of frames
    tables: tuple[Source, ...]
    links: tuple[Link, ...]
    vectors: tuple[str, ...]  # columns of frames with an embedding
    values: tuple[str, ...]  # columns of frames with a number, a text or a flag

    def kinds(self) -> frozenset[str]:
        """Return the present kinds of `framekiln.export.request.KINDS`."""
        found = {source.kind for source in (*self.columns, *self.tables)}
        found |= {"identities"} if any(link.role == "identity" for link in self.links) else set()
        found |= {"embeddings"} if self.vectors or any(_list_vectors(item.members) for item in self.columns) else set()
        return frozenset(found | ({"categories"} if "category" in self.values else set()))

    def holders(self, kind: str) -> frozenset[str]:
        """Return the kinds of annotations that hold `kind`: it needs one of them. Empty if it needs none."""
        linked = {link.of for link in self.links if link.role == "identity" and kind == "identities"}
        inside = kind == "embeddings" and not self.vectors
        return frozenset(
            item.kind for item in self.columns if item.name in linked or (inside and _list_vectors(item.members))
        )


def read_declared(store: Store) -> Declared:
    """Return the declarations of an output's tables; only their schemas are read."""
    frames = store.dataset(FRAMES, pa.schema([])).schema
    columns = [source for item in frames if (source := _read_column(item))]
    known = {source.name for source in columns}
    names = later_tables(store)
    schemas = {name: store.dataset(name, pa.schema([])).schema for name in names}
    return Declared(
        columns=tuple(source for source in columns if not source.of or source.of in known),
        tables=tuple(source for name in names if (source := _read_table(name, schemas[name]))),
        links=tuple(link for name in names for link in _read_links(name, schemas[name]) if link.of in known),
        vectors=tuple(item.name for item in frames if is_vector(item)),
        values=tuple(item.name for item in frames if is_plain(item.type) and item.name not in KEYS),
    )


def is_vector(item: pa.Field) -> bool:
    """Return whether a field is an embedding: a fixed number of floats, with a suitable name."""
    return pa.types.is_fixed_size_list(item.type) and item.name.endswith("embedding")


def is_plain(dtype: pa.DataType) -> bool:
    """Return whether a type is a number, a text, a time or a flag."""
    texts = pa.types.is_string(dtype) or pa.types.is_large_string(dtype)
    return bool(pa.types.is_primitive(dtype) or texts)


def _list_vectors(members: pa.StructType) -> list[str]:
    return [item.name for item in members if is_vector(item)]


def _is_struct_list(dtype: pa.DataType) -> bool:
    lists = pa.types.is_list(dtype) or pa.types.is_large_list(dtype) or pa.types.is_fixed_size_list(dtype)
    return lists and pa.types.is_struct(dtype.value_type)


def _has_box(members: pa.StructType) -> bool:
    return "box" in members.names and pa.types.is_struct(box := members.field("box").type) and set(box.names) >= _SIDES


def _has_mask(members: pa.StructType) -> bool:
    return "segmentation" in members.names and pa.types.is_struct(members.field("segmentation").type)


def _make_source(name: str, members: pa.StructType, facts: Mapping[str, Any], kind: str, track: str = "") -> Source:
    names = [
        item.name for item in members if _is_struct_list(item.type) and {"x", "y"} <= set(item.type.value_type.names)
    ]
    return Source(
        kind=facts.get("kind", kind),
        name=name,
        members=members,
        category=facts.get("category") or name.removesuffix("s"),
        landmarks=("landmarks" if "landmarks" in names else names[0]) if names and facts.get("keypoints") else "",
        keypoints=tuple(facts.get("keypoints", ())),
        skeleton=tuple((a, b) for a, b in facts.get("skeleton", ())),
        of=facts.get("of", ""),
        track=track,
    )


def _read_column(item: pa.Field) -> Source | None:
    """Return the declaration of a column of `frames/`, or None."""
    facts = annotation_facts(item)
    if not _is_struct_list(item.type) or facts.get("kind") == "":
        return None
    members = item.type.value_type
    if not (_has_box(members) or _has_mask(members) or facts.get("keypoints")):
        return None
    return _make_source(item.name, members, facts, "masks" if _has_mask(members) else "boxes")


def _read_table(name: str, schema: pa.Schema) -> Source | None:
    """Return the declaration of a table with a row for each object on a frame, or None."""
    members = pa.struct(list(schema))
    declared = [facts for item in schema if "keypoints" in (facts := annotation_facts(item))]
    if not set(KEYS) <= set(schema.names) or not (_has_box(members) or _has_mask(members) or declared):
        return None
    numbers = [item.name for item in schema if pa.types.is_integer(item.type) and item.name not in KEYS]
    required = [number for number in numbers if not schema.field(number).nullable]
    return _make_source(name, members, declared[0] if declared else {}, "tracks", (required or numbers or [""])[0])


def _read_links(name: str, schema: pa.Schema) -> list[Link]:
    """Return the columns and items for which a table gives the track or identity."""
    pairs = [(item.name, annotation_facts(item)) for item in schema if not _is_struct_list(item.type)]
    return [
        Link(table=name, index=index, of=facts["of"], role=role, value=facts[role])
        for index, facts in pairs
        for role in ("track", "identity")
        if "of" in facts and role in facts
    ]
