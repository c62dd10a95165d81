"""Selections of a made output whose right answers are known by its arithmetic."""

from __future__ import annotations

import json
import shutil
from datetime import datetime

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import framekiln
from framekiln.runtime.run.record import sealed
from tests.support.errors import fails


def write_output(folder, frames, tables):
    """The frames in two parts, as a run writes them."""
    for name, table in {**tables, "columns": None, "frames": frames.slice(0, 10)}.items():
        (folder / name).mkdir(parents=True)
        if table is not None:
            pq.write_table(table, folder / name / "part-0.parquet")
    pq.write_table(frames.slice(10), folder / "frames" / "part-1.parquet")


def part(name, other, start, end, other_start, *, keep):
    times = {"start_s": start, "end_s": end, "other_start_s": other_start, "other_end_s": other_start + end - start}
    return {"media_id": name, "other_media_id": other, **times, "keep": keep}


@pytest.fixture(scope="module")
def out(tmp_path_factory):
    """Two films of 12 frames with three shots each, and four photos, two of which are copies."""
    folder = tmp_path_factory.mktemp("selection") / "out"
    films = [
        {"media_id": name, "frame_index": i, "sharpness": 100.0 + 7 * i % 12, "category": "cat" if i % 4 else "dog"}
        for name in "ab"
        for i in range(12)
    ]
    photos = [{"media_id": f"p{i}.jpg", "frame_index": 0, "sharpness": 200.0 + i, "category": "car"} for i in range(4)]
    rows = [
        {
            **row,
            "time_s": None if row["media_id"].startswith("p") else float(row["frame_index"]),
            "repeats": row["media_id"] == "b" and row["frame_index"] < 3,
            "people": [{"score": 0.9}] * (row["frame_index"] % 3),
        }
        for row in films + photos
    ]
    hashes = [np.packbits(np.arange(128) < 5 * number).tobytes() for number in range(len(rows))]
    frames = pa.Table.from_pylist(rows).append_column("picture_hash", pa.array(hashes, pa.binary(16)))
    halves = pa.array(
        [[{"embedding": [1.0, 0.0]}]] * len(rows), pa.list_(pa.struct({"embedding": pa.list_(pa.float16(), 2)}))
    )
    frames = frames.append_column("faces", halves)  # DuckDB does not know float16
    shots = [
        {"media_id": name, "shot": shot, "first_frame": 4 * shot, "last_frame": 4 * shot + 3}
        for name in "ab"
        for shot in range(3)
    ] + [{"media_id": f"p{i}.jpg", "shot": 0, "first_frame": 0, "last_frame": 0} for i in range(4)]
    parts = [part("b", "a", 4.0, 5.0, 8.0, keep=False)]  # frames 4 and 5 of b are 8 and 9 of a
    copies = [{"media_id": f"p{i}.jpg", "frame_index": 0, "group": 0, "keep": i == 1} for i in (0, 1)]
    people = [
        {"media_id": name, "frame_index": i, "face_index": 0, "identity": i // 6 if i != 3 else None}
        for name in "ab"
        for i in range(12)
    ]
    scenes = [{"media_id": f"p{i}.jpg", "frame_index": 0, "scene": "p0.jpg"} for i in range(3)]
    tables = {"scenes": scenes, "shots": shots, "duplicates": copies, "identities": people, "film_copies": parts}
    write_output(folder, frames, {name: pa.Table.from_pylist(rows) for name, rows in tables.items()})
    return framekiln.open(folder)


def keys(selection):
    return list(zip(*selection.rows.to_pydict().values(), strict=True))


def test_a_condition_reads_columns_lists_and_shots(out):
    assert keys(out.select(where="sharpness >= 202")) == [("p2.jpg", 0), ("p3.jpg", 0)]
    assert keys(out.select(where="len(people) = 2 and media_id = 'a'")) == [("a", i) for i in (2, 5, 8, 11)]
    assert keys(out.select(where="shot = 1")) == [(name, i) for name in "ab" for i in range(4, 8)]
    assert len(out.select()) == 28
    assert [name for name, _ in keys(out.select(per={"scene": 1}))] == ["a", "b", "p0.jpg", "p3.jpg"]
    assert keys(out.select(where="duplicate")) == [("b", 4), ("b", 5), ("p0.jpg", 0)]
    assert len(out.select(where="media_id in (select media_id from identities where identity = 1)")) == 24
    assert keys(out.select(where="list_contains(identities, 0)")) == [(n, i) for n in "ab" for i in (0, 1, 2, 4, 5)]
    assert keys(out.select(where="identities = [] and frame_index = 3")) == [("a", 3), ("b", 3)]
    assert len(out.select(where="list_contains(identities, (select max(identity) from identities))")) == 12


def test_order_and_limit_give_the_best_first(out):
    assert keys(out.select(order="sharpness", limit=2)) == [("p3.jpg", 0), ("p2.jpg", 0)]
    for lowest in ("-sharpness", "sharpness asc"):
        assert keys(out.select(order=lowest, limit=2)) == [("a", 0), ("b", 0)]
    assert keys(out.select(order="-category", limit=1)) == [("p0.jpg", 0)]  # of texts and times, the first
    assert keys(out.select(order="-category, sharpness", limit=1)) == [("p3.jpg", 0)]
    assert keys(out.select(order="least(9, length(category)), -sharpness", limit=2)) == [("a", 0), ("b", 0)]
    assert keys(out.select(order="category = 'a,b', sharpness", limit=1)) == [("p3.jpg", 0)]


def test_unique_leaves_the_kept_copy_and_the_last_of_equal_frames(out):
    left = keys(out.select(unique=True))
    assert ("p0.jpg", 0) not in left and ("p1.jpg", 0) in left and ("p2.jpg", 0) in left
    assert [i for name, i in left if name == "b"] == [3, *range(6, 12)]
    assert len([1 for name, _ in left if name == "a"]) == 12
    assert len(out.select(where="media_id = 'b' or frame_index < 8", unique=True)) == 9 + 8 + 3  # nothing of a's part
    assert keys(out.select(where="media_id in ('p0.jpg', 'p2.jpg')", unique=True)) == [("p0.jpg", 0), ("p2.jpg", 0)]


def test_so_many_of_each_shot_file_and_person_are_the_best(out):
    best = keys(out.select(per={"shot": 1}, order="sharpness", where="media_id in ('a', 'b')"))
    right = {(name, max(range(4 * shot, 4 * shot + 4), key=lambda i: 7 * i % 12)) for name in "ab" for shot in range(3)}
    assert set(best) == right and len(best) == 6
    assert len(out.select(per={"media_id": 2})) == 2 + 2 + 4
    people = keys(out.select(per={"identity": 3}))
    assert people == [("a", 0), ("a", 1), ("a", 2), ("a", 6), ("a", 7), ("a", 8)]  # of two people, nobody else
    both = out.select(per={"media_id": 5, "shot": 1})
    assert len(both) == 2 + 2 + 4  # five frames of a film are of two shots


def test_balance_takes_values_in_turns(out):
    def counts(selection):
        return selection.to_pandas(["category"])["category"].value_counts().to_dict()

    assert counts(out.select(balance="category")) == {"cat": 4, "dog": 4, "car": 4}
    assert counts(out.select(balance="category", limit=16)) == {"cat": 6, "dog": 6, "car": 4}
    assert counts(out.select(balance="category", limit=2)) == {"cat": 1, "dog": 1}
    notes = [out.select(balance="category", limit=limit).notes for limit in (None, 2, 16)]
    assert notes[:2] == [[], []] and "4 of 'car', 6 of" in notes[2][0]
    assert len(out.select(balance="people", limit=16)) == 16  # lists are values too


def test_diverse_goes_to_the_farthest(out):
    """Hashes have 5 more set bits in each row, so the ends are farthest apart and the middle comes third."""
    rows = keys(out.select())
    chosen = [rows.index(key) for key in keys(out.select(diverse=3))]
    assert len(out.select(where="false", diverse=3)) == 0
    assert len(out.select(diverse=3).notes) == 1  # hashes, as there are no embeddings
    assert chosen[:2] in ([0, 26], [0, 27], [0, 25]) and abs(chosen[2] - 13) <= 1


def test_diverse_spreads_the_frames_of_each_shot_and_person_unless_an_order_is_given(out):
    """Hashes of neighbouring frames are alike, so the ends of a shot differ most."""
    first, spread = (keys(out.select(where="media_id < 'c'", per={"shot": 2}, diverse=many)) for many in (None, 99))
    assert first == [(name, i) for name in "ab" for i in (0, 1, 4, 5, 8, 9)]
    assert sorted(spread) == [(name, i) for name in "ab" for i in (0, 3, 4, 7, 8, 11)]
    assert sorted(keys(out.select(per={"identity": 2}, diverse=99))) == [("a", 0), ("a", 6), ("b", 5), ("b", 11)]
    best, ordered = (out.select(per={"shot": 2}, order="sharpness", diverse=many) for many in (None, 99))
    assert best.compare(ordered) == (0, 0)


def test_a_selection_is_saved_read_and_compared(out):
    chosen = out.select(where="sharpness > 105", per={"shot": 1}).save("sharp-1")
    assert chosen.notes == []
    (replaced,) = out.select(limit=3).save("sharp-1").notes
    assert f"{datetime.now():%Y-%m-%d}" in replaced and f"{len(chosen)} rows" in replaced
    assert "3 rows" in chosen.save("sharp-1").notes[0]
    again = out.selection("sharp-1")
    assert out.selections == ["sharp-1"] and keys(again) == keys(chosen)
    assert json.loads(again.request) == {"where": "sharpness > 105", "per": {"shot": 1}}
    assert again.compare(chosen) == (0, 0) and f"{len(again)} frames" in repr(again)
    assert keys(again.without(out.select(where="media_id = 'a'"))) == [key for key in keys(again) if key[0] != "a"]
    assert out.select().compare(again) == (28 - len(again), 0)
    assert again.to_arrow(["media_id", "sharpness * 2 AS twice"]).column_names == ["media_id", "twice"]
    names = ("media_id", "frame_index", "sharpness", "category", "time_s", "repeats", "people", "picture_hash", "faces")
    assert set(again.to_pandas().columns) == {*names}
    assert again.to_pandas(["shot", "duplicate"]).columns.tolist() == ["shot", "duplicate"]
    assert "selections" not in out.tables


MISTAKES = {
    "FK-SELECTION-COLUMN": {"where": "sharpnes > 3"},
    "FK-SELECTION-SQL": {"where": "sharpness >"},
    "FK-SELECTION-NUMBER": {"per": {"shot": 0}},
    "FK-SELECTION-BOTH": {"balance": "category", "diverse": 3},
    "FK-SELECTION-PER": {"per": "shot"},
}


@pytest.mark.parametrize("code", MISTAKES)
def test_a_mistake_is_one_sentence(out, code):
    with fails(code):
        out.select(**MISTAKES[code])


@pytest.mark.parametrize(
    "wrong", [{"limit": "x"}, {"limit": 2.5}, {"per": 3}, {"per": {"shot": "x"}}, {"where": 3}, {"unique": "often"}]
)
def test_a_value_of_another_type_is_one_sentence(out, wrong):
    with fails("FK-INVALID-SETTING"):
        out.select(**wrong)
    assert len(out.select(limit=np.int64(3))) == 3 and len(out.select(per=["media_id=1"])) == 6


def test_a_column_that_is_missing_is_told_with_the_step_that_adds_it(out):
    with fails("FK-SELECTION-COLUMN", "'lighting'"):
        out.select(where="exposure > 1")
    with fails("FK-SELECTION-COLUMN", "'first_frame'"):
        out.select(where="media_id in (select media_id from shots where frist_frame > 3)")
    with fails("FK-SELECTION-COLUMN", "list_contains(identities, 0)"):
        out.select(where="identity = 0")


def test_rows_without_a_value_are_of_no_group(out):
    chosen = out.select(per={"nullif(category, 'cat')": 1})
    assert keys(chosen) == [("a", 0), ("p0.jpg", 0)] and "18 frames" in chosen.notes[0]
    assert len(out.select(balance="nullif(category, 'cat')")) == 4 + 4
    people = out.select(per={"identity": 3}, order="sharpness")
    assert len(people) == 6 and [note.split()[0] for note in people.notes] == ["6"]  # two of the films, four photos
    assert len(out.select(where="frame_index = 3", per={"identity": 1, "shot": 1})) == 0
    assert out.select(where="frame_index = 2", per={"identity": 1}).notes == []


def test_doubtful_tables_and_gone_files_are_told(out, tmp_path):
    assert out.select(unique=True).notes == []
    shutil.copytree(out.path, tmp_path / "out")
    copy = framekiln.open(tmp_path / "out")
    chosen = copy.select().save("all")
    assert copy.selection("all").notes == [] and len(chosen) == 28
    (tmp_path / "out" / "frames" / "part-1.parquet").unlink()
    assert "18 of 28" in copy.selection("all").notes[0]
    step = {"use": "framekiln_stages.shots:Shots", "placement": {"device": "cpu"}}
    record = {"steps": {"shots": step}, "figures": {}, "profile": {}, "state": "running", "files": 3, "files_done": 2}
    (tmp_path / "out" / "run.json").write_text(json.dumps(sealed(record | {"run": "one", "dummies": ["shots"]})))
    first, random, second = copy.select(where="not duplicate and shot >= 0").notes
    assert "2 of 3" in first and "shots" in random and second.endswith("duplicates, film_copies.")


@pytest.mark.parametrize(
    "attack",
    [
        "1) ; drop table frames; --",
        "(select count(*) from read_csv('/etc/passwd')) > 0",
        "(select count(*) from '/etc/passwd') > 0",
        "getenv('HOME') = 'x'",
    ],
)
def test_an_expression_reads_nothing_but_the_tables(out, attack):
    with fails("FK-SELECTION-SQL"):
        out.select(where=attack)


def test_names_and_tables_that_are_missing_are_told(out, tmp_path):
    for name in ("", "../x", "a b"):
        with fails("FK-SELECTION-NAME"):
            out.select().save(name)
    with fails("FK-UNKNOWN-SELECTION"):
        out.selection("sharp")
    (tmp_path / "columns").mkdir()
    (tmp_path / "frames").mkdir()
    pq.write_table(
        pa.table({"media_id": ["a"], "frame_index": pa.array([0], pa.int32())}), tmp_path / "frames" / "part.parquet"
    )
    bare = framekiln.open(tmp_path)
    with fails("FK-SELECTION-TABLE", "the step 'shots'"):
        bare.select(per={"shot": 1})
    with fails("FK-SELECTION-VECTORS"):
        bare.select(diverse=1)


def test_the_command_does_the_same(out, framekiln, tmp_path):
    shown = framekiln("select", out.path, "--where", "sharpness >= 202", "--save", "top")
    assert "2 of 28 frames, saved as top." in shown
    assert json.loads(framekiln("select", out.path, "--order", "sharpness", "--limit", "1", "--json")) == [
        {"media_id": "p3.jpg", "frame_index": 0}
    ]
    both = ("--where", "media_id = 'a'", "--where", "frame_index = 5 or media_id = 'b'")
    assert "1 of 28 frames." in framekiln("select", out.path, *both)
    words = ("--per", "media_id=1", "--where", "media_id in ('a', 'b', 'p1.jpg', 'p2.jpg')", "--against", "top")
    shown = framekiln("select", out.path, *words)
    assert "3 frames more, 1 fewer" in shown and "- p3.jpg  frame 0" in shown and "+ p1.jpg  frame 0" in shown
    framekiln("select", out.path, *words[:4], "--save", "each")
    compared = json.loads(framekiln("select", out.path, "--selection", "each", "--against", "top", "--json"))
    names = {part: [row["media_id"] for row in rows] for part, rows in compared.items()}
    assert names == {"rows": ["a", "b", "p1.jpg", "p2.jpg"], "more": ["a", "b", "p1.jpg"], "fewer": ["p3.jpg"]}
    framekiln("select", out.path, "--selection", "each", "--limit", "1", code=2)
    framekiln("select", out.path, "--per", "shot", code=2)
    framekiln("select", out.path, "--where", "sharpness", code=2)


def test_words_in_texts_and_comments_ask_for_no_table(out, tmp_path):
    shutil.copytree(out.path, tmp_path / "out", ignore=shutil.ignore_patterns("shots", "duplicates", "scenes"))
    few = framekiln.open(tmp_path / "out")
    assert len(few.select(where="media_id not in ('scene', 'duplicate') -- shot")) == 28
    assert len(few.select(where="category = 'car'", order="media_id = 'identities', sharpness desc")) == 4
    with fails("FK-SELECTION-TABLE", "'shot'"):
        few.select(order="shot desc")
    assert out.select(order="shot desc", limit=1).to_arrow("shot").to_pydict() == {"shot": [2]}
