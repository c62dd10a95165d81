"""A run is compared as far as it came or can be read, and what is none is said in a sentence."""

from __future__ import annotations

import json
import shutil

import pyarrow as pa
import pytest

from pipeline.errors import ConfigError
from pipeline.storage import Store
from pipeline.telemetry.compare.comparison import compare
from pipeline.telemetry.compare.runs import read_run, read_sides
from tests.compare_factory import BEGAN, calls, invoke, line, make, pair
from tests.report_factory import figures, record, step

__all__ = ["make"]


@pytest.mark.parametrize("what", ["gone", "no run", "damaged", "foreign"])
def test_what_is_no_run_is_said_in_a_sentence(make, tmp_path, what):
    good, bad = make("a"), tmp_path / "bad"
    if what != "gone":
        bad.mkdir()
    if what in ("damaged", "foreign"):
        (bad / "run.json").write_text('{"steps"' if what == "damaged" else '{"name": "x"}')
    done = invoke(good, str(bad))
    assert isinstance(done.exception, ConfigError)
    words = {"gone": "no folder", "no run": "no output", "damaged": "is damaged", "foreign": "none of Framemill's"}
    assert words[what] in str(done.exception)
    assert str(done.exception).count("\n") == 0


def test_the_same_output_twice_is_refused_by_any_name(make, tmp_path):
    root = make("a")
    (tmp_path / "link").symlink_to(root)
    for words in (
        [root, root],
        [root, f"{tmp_path}/./a"],
        [root, str(tmp_path / "link")],
        [f"{root},{root}", make("b")],
    ):
        with pytest.raises(ConfigError, match="given twice"):
            read_sides(words)
    with pytest.raises(ConfigError, match="two outputs or more"):
        read_sides([root])


def test_names_in_the_terminal_are_no_markup(make):
    name = "x[red]\x1b[2J"
    root = make("a", steps={name: step()}, figures={name: figures(12, 1.0)})
    done = invoke(root, make("b", steps={name: step()}, figures={name: figures(12, 1.0)}))
    assert "x[red]\\x1b[2J" in done.output and "\x1b[2J" not in done.output


# As far as it goes


def test_a_run_json_of_another_version_is_compared_as_far_as_it_goes(make, tmp_path):
    a, b = make("a"), make("b")
    told = record(make.folder, b)
    for key in ("machines", "versions", "processor", "decode"):
        told.pop(key)
    told["figures"] = {"marked": {"rows": 12, "rows_per_second": 3}}
    Store(b).write("run.json", json.dumps(told).encode())
    found = pair(a, b)
    assert [note for note in found.notes if "another version" in note and "machines" in note]
    assert line(found, "marked", "rows").second == 12
    assert line(found, "marked", "rate").second is None
    assert invoke(a, b).exit_code == 0


def test_a_run_that_was_killed_is_compared_as_far_as_it_came(make):
    a, b = make("a", calls(100)), make("b", calls(100))
    unit = Store(b).names("frames")[0].split("-")[0]
    Store(b).write(f"columns/marked-f/{unit}.00000000-00000008.parquet", b"")
    Store(b).write("facts/marked-f.json", json.dumps({"use": "x", "version": 1, "settings": {}}).encode())
    Store(b).remove("run.json")
    shutil.rmtree(f"{b}/frames")
    found = pair(a, b)
    assert next(one for one in found.work if one.step == "marked").verdict == "same"
    assert line(found, "marked", "rows").second == 8
    assert line(found, "marked", "p50").interval is not None
    assert found.files.same == 2
    assert any("has come to its end" in note for note in found.notes)
    assert invoke(a, b).exit_code == 0


WHOLE = {"frames": 12, "waves": [["marked"]], "seconds": 30.0}


@pytest.mark.parametrize(
    "part",
    [
        {"decode": figures(5, 1.0), "marked": figures(5, 1.0)},  # resumed, or a shard
        {"decode": figures(12, 1.0), "marked": figures(3, 1.0)},  # a step was added, or retried
        {"decode": figures(12, 1.0)},  # all but decoding was there
        {},
    ],
)
def test_a_run_that_made_a_part_is_not_compared_as_the_whole(make, part):
    figures_of_a = {name: figures(12, 1.0) for name in ("decode", "marked")}
    a, b = make("a", figures=figures_of_a, **WHOLE), make("b", figures=part, **WHOLE)
    found = pair(a, b)
    (note,) = (one for one in found.notes if one.startswith(f"Other runs made part of {b}"))
    assert f"marked {part.get('marked', {'rows': 0})['rows']}" in note
    assert line(found, "run", "seconds").second is None and line(found, "marked", "errors").second is None
    assert line(found, "run", "frames").second == 12 and line(found, "run", "seconds").first == 30.0
    for condition in ("seconds>+5%", "seconds>100", "marked.errors>0"):
        told = invoke(a, b, "--fail-if", condition).exception
        assert isinstance(told, ConfigError) and f"in B, as other runs made part of {b}." in str(told)


def test_a_run_that_made_all_is_compared_whole_in_waves_and_after_a_killed_process_too(make):
    twice = {"decode": figures(24, 1.0), "marked": figures(12, 1.0)}
    a = make("a", figures=twice, **WHOLE | {"waves": [["marked"], []]})
    parts = {"decode": figures(1000, 1.0), "marked": figures(992, 1.0)}  # a process never told of its last packet
    b = make("b", figures=parts, **WHOLE | {"frames": 1000})
    found = pair(a, b)
    assert not any("Other runs" in note for note in found.notes)
    assert line(found, "run", "seconds").second == 30.0


def test_records_are_of_the_run_that_run_json_names(make):
    lines = [*calls(50, run="01"), *[one | {"started": one["started"] + 1} for one in calls(60, run="02")]]
    assert len(read_run(make("a", lines, throughput={"run": "01"})).calls["marked"].rows) == 50
    assert len(read_run(make("b", lines, throughput={})).calls["marked"].rows) == 60


def test_records_of_another_version_are_none(make):
    root = make("a")
    Store(root).write_table("profile/calls-a1.parquet", pa.table({"started": [BEGAN + 1], "took": [1.0]}))
    assert read_run(root).calls == {}


def test_a_record_of_a_killed_run_alone_is_read(make):
    root = make("a", [*calls(50, run="01"), *[one | {"started": one["started"] + 1e6} for one in calls(60, run="02")]])
    Store(root).remove("run.json")
    Store(root).write("facts/marked-f.json", b"{}")
    assert len(read_run(root).calls["marked"].rows) == 60


WRONG = (None, 3, "x", [], {}, {"marked": None}, {"marked": 3})


def test_a_run_json_with_anything_in_it_never_ends_in_a_traceback(make):
    good, bad = make("a", calls(20)), make("b", calls(20))
    told = record(make.folder, bad)
    for key in told:
        for value in WRONG:
            Store(bad).write("run.json", json.dumps(told | {key: value}).encode())
            pair(good, bad), pair(bad, good)
    for key in told["steps"]["marked"]:
        for value in WRONG:
            changed = told["steps"]["marked"] | {"fingerprint": "g", key: value}
            Store(bad).write("run.json", json.dumps(told | {"steps": {"marked": changed}}).encode())
            compare(read_sides([good, bad]), {}, drift_rows=5)
    for value in WRONG:
        Store(bad).write(
            "run.json", json.dumps(told | {"steps": {"marked": value}, "figures": {"marked": value}}).encode()
        )
        assert invoke(good, bad).exit_code == 0
