"""Columns of coordinates, masks and embeddings state their conventions: unit, origin, order, direction, length."""

from __future__ import annotations

import re
from collections.abc import Iterator

import pyarrow as pa
import pytest

from framekiln.cli.commands.steps import _plan
from framekiln.reporting.terminal.tables import schemas
from framekiln.runtime.second_pass.second_pass import frames_schema
from framekiln_stages.categorize import Categorize
from framekiln_stages.faces import Faces
from framekiln_stages.faces.recognizers import NETWORKS
from framekiln_stages.flow import Flow
from framekiln_stages.objects import Objects
from tests.support.machine.command_line import ROOT

BOX, POINT, MASK = {"x0", "y0", "x1", "y1"}, {"x", "y"}, {"size", "counts"}
RULES = {
    "box": r"x0 left, y0 top, x1 right, y1 bottom, in fractions of the image's width and height from its top left",
    "point": r"x, y in fractions of the image's width and height from its top left",
    "points": r"in (the|this) order|in order",
    "metres": r"in metres from .*, x right, y down, z away",
    "mask": r"column by column from the top left, background first; size: height, width",
    "vector": r"L2-normalised to length 1",
    "angle": r"\b0 (right|into)\b.*(up|above 0)",
    "field": r"x right, y down",
}
"""What a description must say, by the kind of value."""


def members(kind: pa.DataType, name: str) -> Iterator[str]:
    """Yield the kinds of coordinates in a column."""
    if pa.types.is_struct(kind):
        names = {kind[i].name for i in range(kind.num_fields)}
        yield from ["box"] * (names >= BOX) + ["mask"] * (names >= MASK)
        yield from ["metres" if name == "world" else "point"] * (names >= POINT)
        for i in range(kind.num_fields):
            yield from members(kind[i].type, kind[i].name)
    elif pa.types.is_list(kind) or pa.types.is_fixed_size_list(kind):
        inner = kind.value_type
        yield from ["points"] * (pa.types.is_fixed_size_list(kind) and pa.types.is_struct(inner))
        yield from ["vector"] * (name in ("embedding", "clip_embedding", "centroid"))
        yield from members(inner, name)
    elif name in ("yaw", "pitch", "light_direction", "motion_direction"):
        yield "angle"
    elif name == "flow_field":
        yield "field"


def stages_besides() -> dict[str, pa.Schema]:
    """Columns that settings or steps outside of the shipped pipeline add."""
    every = [Faces(Faces.Config(model=name)) for name in NETWORKS]
    every += [Categorize(Categorize.Config(of=of, keep_embedding=True)) for of in ("frames", "instances")]
    every += [Flow(Flow.Config(cache=True))]
    return {f"{type(one).__name__} {n}": one.outputs for n, one in enumerate(every)} | {
        f"objects {name}": one.schema for name, one in Objects().tables.items()
    }


def all_columns() -> dict[str, pa.Field]:
    """Return every column by table and name."""
    plan = _plan(None)
    tables = {"frames": frames_schema(plan)} | stages_besides()
    for step in plan.second:
        tables |= {name: table.schema for name, table in step.stage.tables.items()}
    return {f"{table}.{item.name}": item for table, schema in tables.items() for item in schema}


COLUMNS = all_columns()
COORDINATES = {name: set(members(item.type, item.name)) for name, item in COLUMNS.items()}


def test_kinds_are_recognised():
    kinds = {kind for found in COORDINATES.values() for kind in found}
    assert kinds == set(RULES)
    assert COORDINATES["frames.poses"] == {"box", "point", "points", "metres"}
    assert COORDINATES["frames.masks"] == {"box", "mask", "point"}


@pytest.mark.parametrize("column", sorted(name for name, kinds in COORDINATES.items() if kinds))
def test_a_description_states_the_convention(column):
    description = (COLUMNS[column].metadata or {}).get(b"description", b"").decode()
    for kind in sorted(COORDINATES[column]):
        assert re.search(RULES[kind], description), (kind, description)


def test_columns_of_degrees_are_directions_or_deviations():
    degrees = {name: item for name, item in COLUMNS.items() if (item.metadata or {}).get(b"unit") == b"degree"}
    assert degrees
    for name, item in degrees.items():
        words = item.metadata[b"description"]
        is_place = re.match(rb"(north|east) is positive", words)
        assert COORDINATES[name] == {"angle"} or b"deviation" in words or is_place, name


def test_every_column_has_a_description():
    assert [name for name, item in COLUMNS.items() if not (item.metadata or {}).get(b"description")] == []
    assert {"frames", "tracks", "identities"} <= set(schemas(_plan(None)))


CERTAINTIES = re.compile(
    r"^(score|probability|confidence|quality|predicted_iou|cut|consistency)$|_(score|agreement|strength|probability)$"
)


def names_within(kind: pa.DataType) -> Iterator[str]:
    """Yield the names of members of a column, at any depth."""
    if pa.types.is_struct(kind):
        for i in range(kind.num_fields):
            yield kind[i].name
            yield from names_within(kind[i].type)
    elif pa.types.is_nested(kind):
        yield from names_within(kind.value_type)


def test_every_score_and_confidence_is_explained():
    """A column of certainty is in docs/measuring/accuracy.md: a probability with its reliability, or none."""
    table = (ROOT / "docs" / "measuring" / "accuracy.md").read_text("utf-8").partition("## Scores and confidences")[2]
    found = {name.split(".")[1] for name, item in COLUMNS.items() if CERTAINTIES.search(name.split(".")[1])}
    found |= {inner for item in COLUMNS.values() for inner in names_within(item.type) if CERTAINTIES.search(inner)}
    assert {"confidence", "motion_agreement", "predicted_iou", "category_probability", "quality"} <= found
    assert [name for name in sorted(found) if not re.search(rf"[`.]{name}`", table)] == []
