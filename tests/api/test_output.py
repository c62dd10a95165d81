"""`framekiln.open`: tables, frames, the summary and the report of an output."""

from __future__ import annotations

import json
import shutil

import duckdb
import numpy as np
import pyarrow as pa
import pytest

import framekiln
from framekiln.runtime.run.record import sealed
from tests.support.errors import fails
from tests.support.media.collections_factory import collection, frame, photo


@pytest.fixture
def out(made):
    return framekiln.open(made.path)


def test_tables_are_arrow_datasets(out):
    assert out.tables == ["frames", "errors", "counts"]
    frames = out.table("frames")
    assert isinstance(frames, pa.dataset.Dataset) and frames.count_rows() == 36
    clip = frames.to_table(columns=["frame_index", "crc"], filter=pa.dataset.field("media_id") == "zz.png")
    assert clip.column_names == ["frame_index", "crc"] and clip.num_rows == 30
    counts = dict(zip(*out.table("counts").to_table().to_pydict().values(), strict=True))
    assert counts == {"zz.png": 30} | {f"photo{number}.png": 1 for number in range(6)}
    assert out.errors.count_rows() == 0 and "traceback" in out.errors.schema.names
    with fails("FK-UNKNOWN-TABLE", "Did you mean 'frames'"):
        out.table("frame")


def test_paths_are_opened_as_they_are(out, media):
    rows = out.table("frames").to_table(columns=["media_id", "path"]).to_pylist()
    assert all(row["path"] == str(media / row["media_id"]) for row in rows)


def test_a_frame_is_what_the_stages_saw(out):
    for media_id, seed, index in (("photo3.png", 3, 0), ("zz.png", 100, 0), ("zz.png", 100, 29)):
        assert np.array_equal(out.frame(media_id, index), frame(seed, index))
    assert out.frame("photo0.png", pixels="frame_4").shape == (4, 4, 3)


def test_frames_that_are_not_there_are_one_sentence(tmp_path, serial):
    media = collection(tmp_path / "in", 1, 6)
    crc = {"steps": {"crc": {"use": "tests.toys:Checksum"}}}
    out = framekiln.run(media, tmp_path / "out", pipeline=crc, every_nth=2)
    assert np.array_equal(out.frame("clip.png", 4), frame(100, 4))
    for index in (3, 6):
        with fails("FK-NO-SUCH-FRAME", f"frame {index}"):
            out.frame("clip.png", index)
    with fails("FK-UNKNOWN-FILE", "Did you mean 'photo0.png'"):
        out.frame("photo.png")
    photo(media / "photo0.png", 7)
    with fails("FK-INPUT-CHANGED", "photo0.png"):
        out.frame("photo0.png")
    (media / "photo0.png").unlink()
    with fails("FK-INPUT-MISSING", "photo0.png"):
        out.frame("photo0.png")


def test_tables_with_embeddings_are_read_by_duckdb(media, tmp_path, local):
    half = pa.list_(pa.float16(), 2)

    @framekiln.stage(inputs="frame_index", outputs={"embedding": half, "parts": pa.list_(pa.struct({"of": half}))})
    def embed(frame_index):
        return [0.5, frame_index], [{"of": [0.25, 0.75]}]

    frames = framekiln.run(media, tmp_path / "out", stages=embed).table("frames")
    found = duckdb.sql("SELECT embedding, parts FROM frames WHERE media_id = 'zz.png' AND frame_index = 29").fetchall()
    assert [(list(embedding), [list(part["of"]) for part in parts]) for embedding, parts in found] == [
        ([0.5, 29.0], [[0.25, 0.75]])
    ]
    assert frames.schema.field("embedding").metadata[b"description"] == b"result of embed"


@pytest.mark.parametrize("pixels", ["sound", "frame_", "frame_x", "media_id"])
def test_pixels_of_an_unknown_name_are_told(out, pixels):
    with fails("FK-INVALID-SETTING", pixels):
        out.frame("zz.png", pixels=pixels)


def test_a_summary_is_typed(out):
    summary = out.summary
    assert (summary.files, summary.frames, summary.errors, summary.passed_over) == (7, 36, {}, 0)
    assert summary.finished and summary.left_out == {} and summary.random == () and summary.seconds > 0
    assert summary.started.tzinfo is not None and out.record["frames"] == 36


def test_an_export_tells_of_random_weights_behind_what_it_holds(media, tmp_path, serial, no_weights):
    steps = {"seeded": {"use": "tests.toys:Seeded"}}
    out = framekiln.run(media, tmp_path / "out", pipeline={"steps": steps}, missing_weights="dummy")
    sentence = "Random weights in seeded: results mean nothing."
    assert sentence in out.summary.lines() and sentence in out.export("folder", tmp_path / "all", images="none").notes
    assert sentence in out.export("coco", tmp_path / "by", images="none", where="byte >= 0").notes
    assert sentence in out.select(where="byte >= 0").notes and sentence not in out.select(where="width > 0").notes
    assert sentence not in out.export("coco", tmp_path / "none", images="none").notes


def test_left_out_steps_are_told_with_the_command_that_fetches(media, tmp_path, serial, no_weights):
    steps = {"crc": {"use": "tests.toys:Checksum"}, "seeded": {"use": "tests.toys:Seeded"}}
    with fails("FK-WEIGHTS-MISSING"):
        framekiln.run(media, tmp_path / "out", pipeline={"steps": steps})
    out = framekiln.run(media, tmp_path / "out", pipeline={"steps": steps}, missing_weights="skip")
    assert out.summary.left_out.keys() == {"seeded"} and out.summary.fetch.startswith("framekiln fetch ")
    for text in (str(out), out._repr_html_()):
        assert "Left out: seeded: " in text and out.summary.fetch in text


def test_notebooks_show_a_table_and_texts_are_escaped(out, media, tmp_path, serial):
    html = out._repr_html_()
    assert "7 files, 36 frames, no errors" in html and "counts</td>" in html and ">36</td>" in html
    assert str(out).splitlines()[-1] == f"Report: {out.report()}" and repr(out) == f"Output({out.path!r})"
    crc = {"steps": {"crc": {"use": "tests.toys:Checksum"}}}
    hostile = framekiln.run(media, tmp_path / "<b>out", pipeline=crc)
    assert "<b>" not in hostile._repr_html_() and "&lt;b&gt;out" in hostile._repr_html_()


def test_the_report_is_written_where_it_is_missing(made, tmp_path):
    shutil.copytree(made.path, tmp_path / "out")
    out = framekiln.open(tmp_path / "out")
    page = tmp_path / "out" / "report.html"
    page.write_text("mine")
    assert out.report() == str(page) and page.read_text() == "mine"
    page.unlink()
    assert out.report() == str(page) and "36 frames" in page.read_text()
    page.write_text("mine")
    out.report(again=True)
    assert "36 frames" in page.read_text()
    with fails("FK-UNKNOWN-RUN"):
        out.report("nope")


def test_a_profile_names_steps_and_the_bottleneck(out):
    profile = out.profile()
    assert {"crc", "brightness", "decode"} <= {step.step for step in profile.steps}
    assert profile.to_dict()["run"] == profile.run
    with fails("FK-UNKNOWN-RUN"):
        out.profile("nope")


def test_folders_that_are_no_output_are_told(tmp_path):
    with fails("FK-OUTPUT-MISSING", str(tmp_path / "gone")):
        framekiln.open(tmp_path / "gone")
    with fails("FK-NOT-AN-OUTPUT"):
        framekiln.open(tmp_path)
    (tmp_path / "file").write_text("x")
    with fails("FK-OUTPUT-IS-FILE"):
        framekiln.open(tmp_path / "file")


def test_an_unfinished_run_says_how_far_it_came(made, tmp_path):
    record = json.loads((shutil.copytree(made.path, tmp_path / "out") / "run.json").read_text())
    cut = record | {"state": "stopped", "reason": "interrupted", "files_done": 3}
    (tmp_path / "out" / "run.json").write_text(json.dumps(sealed(cut)))
    out = framekiln.open(tmp_path / "out")
    assert not out.summary.finished and "3 of 7 files" in out.summary.unfinished
    assert out.summary.unfinished in str(out) and out.summary.unfinished in out._repr_html_()


def test_an_output_without_a_record_has_its_tables(made, tmp_path):
    shutil.copytree(made.path, tmp_path / "out")
    (tmp_path / "out" / "run.json").unlink()
    out = framekiln.open(tmp_path / "out")
    assert out.table("frames").count_rows() == 36 and "run.json" in out._repr_html_()
    with fails("FK-NO-RUN-JSON"):
        _ = out.summary
    (tmp_path / "out" / "run.json").write_text(json.dumps({"steps": 3}))
    with fails("FK-RUN-RECORD-DAMAGED"):
        _ = out.record
