"""Outputs that are unfinished, damaged, or not outputs at all."""

from __future__ import annotations

import json

import pyarrow as pa
import pytest

from framekiln.contract.errors import ConfigError, UserError
from framekiln.output.object_store import Store
from framekiln.reporting.compare.runs import read_run, read_sides
from framekiln.runtime.run.record import sealed
from tests.support.runs.compare_factory import BEGAN, calls, invoke, line, make, pair
from tests.support.runs.report_factory import figures, record, step

__all__ = ["make"]


@pytest.mark.parametrize(
    ("what", "part"),
    [
        ("gone", "FK-OUTPUT-MISSING"),
        ("no run", "FK-NOT-AN-OUTPUT"),
        ("damaged", "is damaged"),
        ("foreign", "not written by"),
    ],
)
def test_a_folder_without_a_run_is_refused_in_a_sentence(make, tmp_path, what, part):
    good, bad = make("a"), tmp_path / "bad"
    if what != "gone":
        bad.mkdir()
    if what in ("damaged", "foreign"):
        (bad / "run.json").write_text('{"steps"' if what == "damaged" else '{"name": "x"}')
    done = invoke(good, str(bad))
    assert isinstance(done.exception, UserError)
    assert part in (done.exception.code if part.startswith("FK-") else str(done.exception))
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
        with pytest.raises(ConfigError) as error:
            read_sides(words)
        assert error.value.code == "FK-COMPARE-TWICE"
    with pytest.raises(ConfigError) as error:
        read_sides([root])
    assert error.value.code == "FK-COMPARE-TOO-FEW"


def test_names_in_the_terminal_are_no_markup(make):
    name = "x[red]\x1b[2J"
    root = make("a", steps={name: step()}, figures={name: figures(12, 1.0)})
    done = invoke(root, make("b", steps={name: step()}, figures={name: figures(12, 1.0)}))
    assert "x[red]\\x1b[2J" in done.output and "\x1b[2J" not in done.output


def test_an_output_without_a_whole_run_json_is_refused(make):
    a, b = make("a"), make("b")
    fields = record(make.folder, b)
    fields.pop("waves")
    Store(b).write("run.json", json.dumps(sealed(fields)).encode())
    for code in ("FK-OTHER-VERSION", "FK-NOT-AN-OUTPUT"):
        assert invoke(a, b).exception.code == code
        Store(b).remove("run.json")


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
    compared = pair(a, b)
    (note,) = (note for note in compared.notes if note.startswith(f"Earlier runs or other shards made part of {b}"))
    assert f"marked {part.get('marked', {'rows': 0})['rows']}" in note
    assert line(compared, "run", "seconds").second is None and line(compared, "marked", "errors").second is None
    assert line(compared, "run", "frames").second == 12 and line(compared, "run", "seconds").first == 30.0
    for condition in ("seconds>+5%", "seconds>100", "marked.errors>0"):
        error = invoke(a, b, "--fail-if", condition).exception
        assert error.code == "FK-GATE-NOT-MEASURED" and "in B, " in str(error) and b in str(error)


def test_a_run_that_made_all_is_compared_whole_in_waves_and_after_a_killed_process_too(make):
    twice = {"decode": figures(24, 1.0), "marked": figures(12, 1.0)}
    a = make("a", figures=twice, **WHOLE | {"waves": [["marked"], []]})
    parts = {"decode": figures(1000, 1.0), "marked": figures(992, 1.0)}  # the last packet of a process is not counted
    b = make("b", figures=parts, **WHOLE | {"frames": 1000})
    compared = pair(a, b)
    assert not any("Earlier runs" in note for note in compared.notes)
    assert line(compared, "run", "seconds").second == 30.0


def test_rows_that_a_condition_passed_over_were_made_by_no_other_run(make):
    figures_of_a = {"decode": figures(12, 1.0), "marked": figures(3, 1.0)}
    a, b = (make(name, figures=figures_of_a, **WHOLE, chosen={"marked": [3, 12]}) for name in "ab")
    compared = pair(a, b)
    assert not any("Earlier runs" in note for note in compared.notes)
    assert line(compared, "run", "seconds").second == 30.0


def test_records_are_of_the_run_that_run_json_names(make):
    lines = [*calls(50, run="01"), *[record | {"started": record["started"] + 1} for record in calls(60, run="02")]]
    assert len(read_run(make("a", lines, throughput={"run": "01"})).statistics["marked"].timed.rows) == 50
    assert len(read_run(make("b", lines, throughput={"run": "02"})).statistics["marked"].timed.rows) == 60


def test_records_of_another_version_are_none(make):
    root = make("a")
    Store(root).write_table("profile/calls-a1.parquet", pa.table({"started": [BEGAN + 1], "took": [1.0]}))
    assert read_run(root).statistics == {}
