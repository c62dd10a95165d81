"""Conditions over columns of any type that stages declare."""

from __future__ import annotations

import pyarrow as pa
import pytest

from framekiln.planning.expression import Expression, find_limits, without_halves
from framekiln_stages.faces.stage import Faces
from tests.support.errors import fails


def test_a_condition_may_read_lists_with_embeddings():
    faces = Faces(Faces.Config()).outputs.field("faces")
    schema = pa.schema([("media_id", pa.string()), ("frame_index", pa.int32()), faces])
    Expression.read("len(faces) = 1 and faces[1].score > 0.5", "where").check(schema, [], "where")
    assert without_halves(schema).field("faces").type.value_type.field("score").type == pa.float32()


@pytest.mark.parametrize(
    ("where", "end"),
    [
        ("a >", "it ends too early"),
        ("(a > 1", "it ends"),
        ("a > 1)", 'near ")"'),
        ("a > 1) or (b < 3", 'near ")"'),
        ("a > 1) --", 'near ")"'),
    ],
)
def test_a_mistake_is_shown_where_the_user_made_it(where, end):
    with fails("FK-SELECTION-SQL", end):
        Expression.read(where, "where")


@pytest.mark.parametrize(
    ("where", "right"),
    [
        ("fraems > 3", "Known: a, shot."),
        ("a in (select shot from shots where fraems > 3)", "Did you mean 'frames'"),
        ("a in (select shot from shots where xyz > 3)", "Known: a, frames, shot."),
    ],
)
def test_a_near_name_is_searched_in_the_tables_that_are_queried(where, right):
    schema = pa.schema([("a", pa.int32()), ("shot", pa.int32())])
    shots = pa.schema([("shot", pa.int32()), ("frames", pa.int32())])
    with fails("FK-SELECTION-COLUMN", right):
        Expression.read(f"shot = 1 and {where}", "where").check(schema, [("shots", shots)], "where")


def test_a_comment_ends_with_its_line():
    schema = pa.schema([("a", pa.int32())])
    Expression.read("a > 1 -- one", "where").check(schema, [], "where")


@pytest.mark.parametrize(
    ("where", "limits"),
    [
        ("a > 1_000 or -.5 <= a or frames.b < 2", [("a", 1000.0), ("a", -0.5)]),
        ("a between 1e-2 and 0.5 and c.d > 3 and e > f and g = '4' and h + 1 > 5", [("a", 0.01), ("a", 0.5)]),
        ("naïve != 'ü' and not (\"a b\" > 3.25)", [("a b", 3.25)]),
        ("a > (select max(b) from tracks where b < 4) and len(faces) = 1", [("b", 4.0)]),
    ],
)
def test_limits_of_a_condition_are_found_by_its_syntax_tree(where, limits):
    assert find_limits(where) == limits
