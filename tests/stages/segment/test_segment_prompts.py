"""Prompts for masks: the same from columns and from files of any type; invalid ones are refused."""

from __future__ import annotations

import json

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.support.stages.sam.segment_factory import POINTS, call, found, small_photo, stage_of


@pytest.mark.heavy
def test_prompts_in_files_and_columns_are_equal(sam, tmp_path):
    rows = [{"media_id": "a.jpg", "frame_index": index % 2, "x": x, "y": y} for index, (x, y) in enumerate(POINTS)]
    rows.append({"media_id": "007", "frame_index": 0, "x": 0.5, "y": 0.5})
    pq.write_table(pa.Table.from_pylist(rows), tmp_path / "p.parquet")
    lines = ["media_id,frame_index,x,y", *(",".join(map(str, row.values())) for row in rows)]
    (tmp_path / "p.csv").write_text("\n".join(lines))
    (tmp_path / "p.jsonl").write_text("\n".join(map(json.dumps, rows)))
    keys = {"media_id": ["a.jpg", "a.jpg", "007", "b.jpg"], "frame_index": pa.array([1, 0, 0, 0], pa.int32())}
    column = [[rows[1], rows[3]], [rows[0], rows[2]], [rows[4]], None]
    column = [values and [{"x": one["x"], "y": one["y"]} for one in values] for values in column]
    given = {"prompts": "points", "mask_size": "low"}
    expected = found(stage_of(sam, **given, prompt_column="p"), *[small_photo()] * 4, p=column)
    assert [len(masks) for masks in expected] == [2, 2, 1, 0]
    for ending in ("parquet", "csv", "jsonl"):
        stage = stage_of(sam, **given, prompt_file=str(tmp_path / f"p.{ending}"))
        assert stage.files == (str(tmp_path / f"p.{ending}"),)
        assert found(stage, *[small_photo()] * 4, **keys) == expected, ending


def test_prompts_without_a_frame_apply_to_all(sam, tmp_path):
    (tmp_path / "p.csv").write_text("media_id,x0,y0,x1,y1\na,0.1,0.1,0.9,0.8\n")
    stage = stage_of(sam, prompts="boxes", prompt_file=str(tmp_path / "p.csv"), mask_size="low")
    assert call(stage, small_photo(), small_photo(), media_id=["a", "b"], frame_index=[5, 5])[
        "mask_count"
    ].to_pylist() == [1, 0]


@pytest.mark.parametrize(
    ("name", "text", "values"),
    [
        ("p.csv", "media_id,x\na,0.1\n", "no column 'y'"),
        ("p.jsonl", '{"media_id": "a", "x": 0.1}\n', "no column 'y'"),
        ("p.csv", "media_id,x,y\na,200,0.1\n", "x 200"),
        ("p.csv", "media_id,x,y\na,left,0.1\n", "x left"),
        ("p.csv", "media_id,x,y,label\na,0.2,0.1,3\n", "label .* 3"),
    ],
)
def test_invalid_prompt_files_are_refused(sam, tmp_path, name, text, values):
    (tmp_path / name).write_text(text)
    with pytest.raises(ValueError, match=values):
        stage_of(sam, prompts="points", prompt_file=str(tmp_path / name))


def test_a_prompt_without_coordinates_is_refused(sam):
    with pytest.raises(ValueError, match="x, y"):
        call(stage_of(sam, prompts="points", prompt_column="p"), small_photo(), p=[[{"x": 0.5, "y": None}]])
