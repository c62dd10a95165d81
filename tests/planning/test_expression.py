"""Conditions over columns of any type that stages declare."""

from __future__ import annotations

import pyarrow as pa

from framekiln.planning.expression import Expression, without_halves
from framekiln_stages.faces.stage import Faces


def test_a_condition_may_read_lists_with_embeddings():
    faces = Faces(Faces.Config()).outputs.field("faces")
    schema = pa.schema([("media_id", pa.string()), ("frame_index", pa.int32()), faces])
    Expression.read("len(faces) = 1 and faces[1].score > 0.5", "where").check(schema, [], "where")
    assert without_halves(schema).field("faces").type.value_type.field("score").type == pa.float32()
