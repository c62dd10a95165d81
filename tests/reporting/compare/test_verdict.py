"""The sentence that a comparison begins with, and where its page is written."""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path

import pytest
from typer.testing import CliRunner

from framekiln.cli.app import app
from framekiln.reporting.compare.comparison import compare
from framekiln.reporting.compare.drift import StepDrift, TableDrift
from framekiln.reporting.compare.page import default_path, render, verdict
from framekiln.reporting.compare.runs import read_sides
from framekiln.runtime.run.change_report import differences
from framekiln_stages.faces import Faces
from tests.support.media.collections_factory import photo
from tests.support.runs.compare_factory import calls, invoke, make, pair
from tests.support.runs.report_factory import step
from tests.support.runs.report_reader import text

__all__ = ["make"]


DECODE = {"decode": {"every_nth": 1, "max_pixels": 10**8, "fingerprint": "d"}}


def judged(a, b):
    (only,) = compare(read_sides([a, b]), {}, drift_rows=100).pairs
    return verdict(only)


def test_the_same_work_at_the_same_speed(make):
    sentence = judged(make("a", calls(400), **DECODE), make("b", calls(400, seed=2), **DECODE))
    assert sentence == (
        "B beside A: the same work on the same files; equal results; no difference in speed beyond chance in marked."
    )


@pytest.mark.parametrize(
    ("alone", "every", "words"),
    [
        (0, 1, "; equal results;"),
        (1, 1, "; equal results where both have rows, 1 row on one side only;"),
        (9, 2, "; equal results where both have rows, rows on one side only;"),
    ],
)
def test_rows_that_one_side_lacks_are_no_equal_results(make, alone, every, words):
    table = TableDrift(
        name="frames", rows=3, only_first=alone, only_second=0, every=every, value=0.0, figures={}, columns=()
    )
    compared = pair(make("a"), make("b"))
    assert words in verdict(replace(compared, drift={"marked": StepDrift(step="marked", tables=[table])}))


def test_tables_that_are_empty_on_both_sides_are_no_equal_results(make):
    table = TableDrift(name="frozen", rows=0, only_first=0, only_second=0, every=1, value=0.0, figures={}, columns=())
    compared = replace(pair(make("a"), make("b")), drift={"frozen": StepDrift(step="frozen", tables=[table])})
    assert "; results not compared;" in verdict(compared)


def test_a_slower_run_of_other_work(make):
    steps = {"marked": step(word="x") | {"fingerprint": "g"}, "added": step()}
    a = make("a", calls(400), **DECODE)
    photo(make.folder / "c.png", 3)
    figures = {"decode": {"busy_s": 1.0}, "marked": {"busy_s": 2.0, "rows_per_s": 10.0}}
    figures = {name: {"rows": 12, "workers": 1, **known} for name, known in figures.items()}
    sentence = judged(a, make("b", calls(400, ms=40.0, seed=1), steps=steps, figures=figures, **DECODE))
    assert "other work in marked and added on one side only and other files;" in sentence
    assert "marked 50% slower." in sentence


def test_without_records_speed_is_not_judged_and_without_rows_results_are_not(make):
    compared = pair(make("a"), make("b"))
    assert "results not compared; speeds without an interval." in verdict(compared)


def test_the_sentence_comes_first(make):
    a, b = make("a", calls(100)), make("b", calls(100, seed=2))
    printed, page = invoke(a, b).output, text(render(compare(read_sides([a, b]), {}, drift_rows=0), []))
    assert printed.startswith("B beside A: ") and page.startswith("Runs side by side B beside A: ")


def test_the_page_lies_beside_the_outputs_and_not_where_the_command_runs(make, tmp_path, monkeypatch):
    a, b, elsewhere = make("a"), make("b"), tmp_path / "elsewhere"
    elsewhere.mkdir()
    monkeypatch.chdir(elsewhere)
    done = CliRunner().invoke(app, ["compare", a, b], env={"COLUMNS": "400"})
    assert done.exit_code == 0 and f"Page: {tmp_path / 'compare-a-b.html'}" in done.output
    assert (tmp_path / "compare-a-b.html").exists() and not list(elsewhere.iterdir())


@pytest.mark.parametrize("given", ["a", "./a/", "../inside/a"])
def test_relative_paths_are_of_the_output_too(make, tmp_path, monkeypatch, given):
    inside = tmp_path / "inside"
    inside.mkdir()
    for name in "ab":
        shutil.move(make(name), inside / name)
    monkeypatch.chdir(inside)
    sides = read_sides([given, "b"])
    assert Path(default_path(compare(sides, {}, drift_rows=0))) == inside / "compare-a-b.html"


def test_the_page_of_buckets_is_named_by_their_keys(make):
    (a,), (b,) = read_sides([make("a"), make("b")])
    runs = [[replace(a, path="s3://x/y?z/?region=here")], [replace(b, path="s3://x/b")]]
    assert default_path(compare(runs, {}, drift_rows=0)) == "compare-y?z-b.html"


def test_a_setting_that_was_left_open_has_the_value_in_use():
    before, now = Faces.Config(detector="yunet"), Faces.Config(detector="scrfd", min_score=0.9)
    phrases = differences({"settings": vars(before)}, {"settings": vars(now)}, "setting")
    assert phrases[0] == "setting 'detect_side' changed 1280 -> 640"
    assert not differences({"files": []}, {"files": ["1"]}, "setting")  # it is named by a setting that is new
    assert len(differences({"files": ["2"]}, {"files": ["1"]}, "setting")) == 1
    assert phrases[2].startswith("setting 'min_score' changed 0.") and phrases[2].endswith("-> 0.9")
