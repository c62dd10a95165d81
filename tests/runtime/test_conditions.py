"""A step with a condition computes the rows that meet it: as many as that, the same values, and nulls elsewhere."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from PIL import Image

from framekiln.job import Job
from framekiln.media import samples
from framekiln.media.packets import decode as decoding
from framekiln.planning.condition import FrameRule
from framekiln.planning.manifest import read_pipeline
from framekiln.reporting.compare.drift import find_drift
from framekiln.reporting.compare.runs import read_run
from tests.support.errors import fails
from tests.support.media import photos
from tests.support.media.collections_factory import collection
from tests.support.runs.engine_factory import planned_rows, request, rows, table
from tests.support.runs.serial_engine import without_ray

FRAMES, PHOTOS = 30, 6
STEPS = {
    "crc": {"use": "tests.toys:Checksum"},
    "twice": {"use": "tests.toys:Double"},
    "small": {"use": "tests.toys:Small"},
    "count": {"use": "tests.toys:Count"},
    "all": {"use": "tests.toys:Everything"},
    "maybe": {"use": "tests.toys:Maybe"},
    "near": {"use": "tests.toys:Neighbours"},
    "shares": {"use": "tests.toys:Shares"},
}


@pytest.fixture(autouse=True)
def _serial():
    with without_ray():
        yield


@pytest.fixture
def source(tmp_path):
    return collection(tmp_path / "in", PHOTOS, FRAMES)


def run(source, out, steps=(), *, conditions=None, profile=None, **choices):
    """Run toys with conditions, and return how many rows each step computed."""
    entries = {name: STEPS[name] | (conditions or {}).get(name, {}) for name in steps or ("crc", "twice")}
    asked = request(source, out, {"steps": entries}, profile, **choices)
    planned, result = planned_rows(asked), Job(asked).run()
    rows = {name: totals.rows for name, totals in result.figures.steps.items() if name in entries and totals.rows}
    assert not result.errors and all(planned[name] in (None, rows.get(name, 0)) for name in entries)
    return rows


def values(out, column="crc"):
    """The values by file and frame, without nulls."""
    frames = table(out, "frames")
    keys = zip(frames["media_id"].to_pylist(), frames["frame_index"].to_pylist(), strict=True)
    return {key: value for key, value in zip(keys, frames[column].to_pylist(), strict=True) if value is not None}


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """The values of all rows of such a source, by a run without conditions into another output."""
    folder = tmp_path_factory.mktemp("whole")
    with without_ray():
        run(collection(folder / "in", PHOTOS, FRAMES), folder / "out", ("crc", "twice", "small"))
    return {name: values(folder / "out", name) for name in ("crc", "twice", "small")} | {"out": folder / "out"}


CHOSEN = {
    "every": ({"on": {"every": 5}}, lambda name, i: i % 5 == 0),
    "first": ({"on": {"first": 3}}, lambda name, i: i < 3),
    "per_second": ({"on": {"per_second": 5}}, lambda name, i: i % 5 == 0),  # of 25 a second
    "where": ({"where": "frame_index > 20 or media_type = 'photo'"}, lambda name, i: i > 20 or name != "clip.png"),
    "nothing": ({"where": "time_s > 1000"}, lambda name, i: False),
    "both": ({"on": {"every": 2}, "where": "frame_index < 9"}, lambda name, i: i % 2 == 0 and i < 9),
}


@pytest.mark.parametrize("name", CHOSEN)
def test_chosen_rows_have_their_values_and_others_nulls_in_all_that_reads_them(source, tmp_path, whole, name):
    condition, is_chosen = CHOSEN[name]
    counts = run(source, tmp_path / "out", ("crc", "twice", "small", "count"), conditions={"crc": condition})
    expected = {key: value for key, value in whole["crc"].items() if is_chosen(*key)}
    assert values(tmp_path / "out") == expected and values(tmp_path / "out", "small") == whole["small"]
    assert values(tmp_path / "out", "twice") == {key: 2 * value for key, value in expected.items()}
    assert counts.get("crc", 0) == counts.get("twice", 0) == len(expected) and counts["small"] == FRAMES + PHOTOS
    counted = {row["media_id"]: row["frames"] for row in rows(tmp_path / "out", "counts").to_pylist()}
    assert counted == Counter(key[0] for key in expected)
    drift = find_drift(read_run(str(whole["out"])), read_run(str(tmp_path / "out")), ("crc", "twice"), 5000)
    equal = (0 if expected else None, len(expected), FRAMES + PHOTOS - len(expected))
    assert [(one.value, one.rows, one.tables[0].only_first) for one in drift.values()] == [equal] * 2


def test_a_wider_condition_computes_the_new_rows_alone_and_a_narrower_one_nothing(source, tmp_path, whole, monkeypatch):
    out, opened = tmp_path / "out", watch_files(monkeypatch)
    assert run(source, out, conditions={"crc": {"on": {"every": 5}}})["crc"] == PHOTOS + 6
    assert run(source, out, conditions={"crc": {"on": {"every": 5}}}) == {}
    assert run(source, out, conditions={"crc": {"where": "frame_index % 5 = 0 or frame_index < 3"}})["crc"] == 2
    opened.clear()
    assert run(source, out, conditions={"crc": {"on": {"every": 10}}}) == {} and not opened
    assert values(out) == {key: value for key, value in whole["crc"].items() if key[1] % 10 == 0}
    assert run(source, out)["crc"] == FRAMES - 8
    assert values(out) == whole["crc"] and values(out, "twice") == whole["twice"]
    opened.clear()
    assert run(source, out, conditions={"twice": {"where": "crc % 2 = 0"}}) == {} and not opened
    assert values(out, "twice") == {key: v for key, v in whole["twice"].items() if whole["crc"][key] % 2 == 0}


CONDITIONS = st.one_of(
    st.just({}),
    st.integers(1, 7).map(lambda n: {"on": {"every": n}}),
    st.integers(1, 40).map(lambda n: {"on": {"first": n}}),
    st.integers(0, 40).map(lambda n: {"where": f"frame_index < {n}"}),
    st.integers(2, 5).map(lambda n: {"where": f"small % {n} = 0 and frame_index % {n} = 1"}),
)


@pytest.mark.heavy
@settings(max_examples=4, deadline=None, suppress_health_check=list(HealthCheck))
@given(conditions=st.lists(CONDITIONS, min_size=2, max_size=4))
def test_whatever_was_computed_before_a_run_gives_what_it_gives_alone(tmp_path_factory, conditions):
    folder = tmp_path_factory.mktemp("any")
    source, seen = collection(folder / "in", 3, 20), set()
    for number, condition in enumerate(conditions):
        steps = ("small", "crc", "twice")
        counts = run(source, folder / "out", steps, conditions={"crc": condition})
        run(source, folder / f"alone{number}", steps, conditions={"crc": condition})
        alone = values(folder / f"alone{number}")
        assert values(folder / "out") == alone
        assert values(folder / "out", "twice") == values(folder / f"alone{number}", "twice")
        assert counts.get("crc", 0) == len(alone.keys() - seen)
        seen |= alone.keys()


@pytest.mark.heavy
def test_a_clip_and_a_files_table_are_computed_again_only_where_other_rows_are_chosen(source, tmp_path):
    out, photo, steps = tmp_path / "out", "media_type = 'photo'", ("near", "crc", "count", "shares")
    for condition, near, count in (
        ("media_id = 'photo1.png'", 1, 1),
        (photo, PHOTOS - 1, PHOTOS - 1),
        (f"{photo} or frame_index < 9", 9, 9),
        (f"{photo} or frame_index < 4", 4, 4),  # narrower: the last one's neighbour is another
        (f"{photo} or frame_index < 2 * 2", 0, 0),
        ("media_id != 'clip.png' or frame_index < 9", 0, 9),  # of tables those of the last run are there
        ("true", FRAMES, FRAMES),
    ):
        where = {"where": condition}
        counts = run(source, out, steps, conditions={"near": where, "crc": where})
        assert (counts.get("near", 0), counts.get("count", 0)) == (near, count)
        assert bool(counts.get("shares")) == bool(count)  # it reads the table of `count`
    run(source, tmp_path / "alone", steps)
    assert values(out, "next_crc") == values(tmp_path / "alone", "next_crc")
    for name in ("counts", "shares"):
        found, alone = (sorted(map(str, rows(folder, name).to_pylist())) for folder in (out, tmp_path / "alone"))
        assert found == alone


def test_a_step_computes_rows_without_a_column_that_it_can_do_without(source, tmp_path, whole):
    out, steps = tmp_path / "out", ("crc", "maybe")
    assert run(source, out, ("maybe",))["maybe"] == FRAMES + PHOTOS and set(values(out, "maybe").values()) == {-1}
    for condition in ({"on": {"first": 1}}, {"where": "frame_index < 5"}, {}):
        counts = run(source, out, steps, conditions={"crc": condition})
        assert counts["maybe"] == FRAMES + PHOTOS
        chosen = values(out)
        assert values(out, "maybe") == {key: chosen.get(key, -1) for key in whole["crc"]}
        assert run(source, out, steps, conditions={"crc": condition}) == {}


def test_a_condition_may_ask_for_columns_of_earlier_steps(source, tmp_path, whole):
    conditions = {"small": {"where": "twice % 3 = 0"}}
    counts = run(source, tmp_path / "out", ("crc", "twice", "small"), conditions=conditions)
    expected = {key: value for key, value in whole["small"].items() if whole["twice"][key] % 3 == 0}
    assert values(tmp_path / "out", "small") == expected and counts["small"] == len(expected)


def test_a_step_of_a_later_wave_has_the_same_rows(source, tmp_path, whole):
    conditions = {"crc": {"on": {"every": 3}}, "small": {"where": "crc % 2 = 0"}}
    steps, profile = ("crc", "small"), {"waves": [["crc"], ["small"]]}
    run(source, tmp_path / "out", steps, conditions=conditions, profile=profile)
    chosen = {key: value for key, value in whole["crc"].items() if key[1] % 3 == 0}
    assert values(tmp_path / "out") == chosen
    assert values(tmp_path / "out", "small").keys() == {key for key, value in chosen.items() if value % 2 == 0}


def test_a_second_pass_step_is_given_the_rows_of_its_own_condition(source, tmp_path):
    conditions = {"count": {"where": "frame_index < 4"}, "all": {"on": {"first": 1}}}
    run(source, tmp_path / "out", ("crc", "count", "all"), conditions=conditions)
    assert {row["frames"] for row in rows(tmp_path / "out", "counts").to_pylist()} == {1, 4}
    assert rows(tmp_path / "out", "everything")["frames"].to_pylist() == [PHOTOS + 1]


def watch_files(monkeypatch):
    """The files that a run opens from now on; without `frame` it is the report that reads them."""
    opened, open_file = [], decoding.SourceReader.open

    def watch(reader, media, wanted):
        opened.extend([media.media_id] if "frame" in reader.columns else [])
        return open_file(reader, media, wanted)

    monkeypatch.setattr(decoding.SourceReader, "open", watch)
    return opened


def test_files_without_a_chosen_row_are_not_opened_again(source, tmp_path, whole, monkeypatch):
    opened = watch_files(monkeypatch)
    out, chosen = tmp_path / "out", pa.table({"media_id": ["photo1.png", "clip.png"], "frame_index": [0, 7]})
    run(source, out, ("small",))
    pq.write_table(chosen, tmp_path / "chosen.parquet")
    assert run(source, out, ("small", "crc"), rows=str(tmp_path / "chosen.parquet")) == {"crc": 2}
    assert sorted(opened) == ["clip.png", "photo1.png"]
    assert values(out) == {key: whole["crc"][key] for key in (("photo1.png", 0), ("clip.png", 7))}
    assert values(out, "small") == whole["small"]


@pytest.fixture(scope="module")
def cuts(tmp_path_factory):
    """A film of two shots of 12 frames each, a photo, and a smaller copy of it."""
    (folder := tmp_path_factory.mktemp("cuts") / "in").mkdir()
    china, flower, portrait = (samples.pan(photos.photo(name), 25) for name in photos.PHOTOS)
    samples.write_clip(folder / "film.mp4", [*china[:12], *flower[:12]], samples.tone(1, 440))
    Image.fromarray(portrait[0]).save(folder / "a.png")
    Image.fromarray(portrait[0]).resize((320, 180)).save(folder / "b.png")
    return folder


def test_tables_decide_after_a_pass_of_their_own(cuts, tmp_path):
    shipped = {use: {"use": use} for use in ("features", "shots", "quality", "fingerprint", "metadata", "duplicates")}
    asked = shipped | {
        "crc": {"use": "tests.toys:Checksum", "on": {"shots": "middle"}},
        "big": {"use": "tests.toys:Big", "where": "not duplicate and (shot = 1 or media_type = 'photo')"},
    }
    out, pipeline, said = tmp_path / "out", {"steps": asked}, []
    steps = Job(request(cuts, out, pipeline), on_wait=said.append).run().figures.steps
    assert len([line for line in said if line.startswith("First ")]) == 1  # one reading for both conditions
    assert {"features": 26, "crc": 4, "big": 13}.items() <= {name: each.rows for name, each in steps.items()}.items()
    assert [i for name, i in values(out) if name == "film.mp4"] == [5, 17]
    assert {key for key in values(out) if key[0] != "film.mp4"} == {("a.png", 0), ("b.png", 0)}
    assert values(out, "again").keys() == {("film.mp4", i) for i in range(12, 24)} | {("a.png", 0)}
    assert not Job(request(cuts, out, pipeline)).run().work.left and len([*out.glob("facts/duplicates-*")]) == 1
    with fails("FK-CONDITION-SHARD"):
        Job(replace(request(cuts, tmp_path / "part", pipeline), shard=(0, 2))).run()


WRONG = {
    "FK-SELECTION-COLUMN": {"where": "sharp > 3"},
    "FK-SELECTION-SQL": {"where": "time_s >"},
    "FK-UNKNOWN-TABLE": {"on": {"shots": "middle"}},
}


@pytest.mark.parametrize("code", WRONG)
def test_a_wrong_condition_is_refused_before_anything_runs(source, tmp_path, code):
    with fails(code):
        run(source, tmp_path / "out", conditions={"crc": WRONG[code]})
    with fails("FK-SELECTION-COLUMN", "'crc' is what the step itself computes"):
        run(source, tmp_path / "out", conditions={"crc": {"where": "crc > 3"}})
    for rule in ("{every: 2, first: 3}", "{each: 2}", "{every: 0}", "middle"):
        with fails("FK-INVALID-SETTING" if "each" not in rule else "FK-UNKNOWN-SETTING"):
            run(source, tmp_path / "out", settings=(f"crc.on={rule}",))
    assert not (tmp_path / "out" / "columns").exists()


@pytest.mark.parametrize("where", ["time_s", "time_s > 'late'", "frame_index < cast(media_id as int)"])
def test_a_condition_is_true_or_false_of_each_row(source, tmp_path, where):
    with fails("FK-SELECTION-SQL"):
        run(source, tmp_path / "out", conditions={"crc": {"where": where}})


def test_a_file_says_on_without_quotes_though_yaml_takes_it_for_true(tmp_path):
    (tmp_path / "p.yaml").write_text("steps: {flow: {use: flow, on: {every: 5}}, quality: {use: quality}}")
    assert read_pipeline(str(tmp_path / "p.yaml")).steps["flow"].on == FrameRule(every=5)


def test_rows_that_do_not_exist_are_counted_and_a_selection_that_does_not_is_one_sentence(source, tmp_path):
    asked = {"media_id": ["clip.png", "clip.png", "photo1.png", "gone.png"], "frame_index": [1, 999, 0, 0]}
    pq.write_table(pa.table(asked), tmp_path / "asked.parquet")
    for steps in (("small",), ("small", "crc")):
        result = Job(
            request(
                source,
                tmp_path / "out",
                {"steps": {name: STEPS[name] for name in steps}},
                rows=str(tmp_path / "asked.parquet"),
            )
        ).run()
        assert result.absent_rows == 2
    with fails("FK-UNKNOWN-SELECTION"):
        run(source, tmp_path / "out", rows="best")
    with fails("FK-ROWS-FILE"):
        run(source, tmp_path / "out", rows=str(tmp_path / "none.parquet"))
