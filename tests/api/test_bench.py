"""`framekiln.bench`: the bench of the command as a value; nothing is written that was not asked for."""

from __future__ import annotations

import inspect
import json

import pyarrow as pa
import pytest
import torch
import typer

import framekiln
from framekiln.api.bench_options import BenchOptions
from framekiln.cli.app import app
from framekiln.lab.output.results import write_report
from tests.lab.report.results import noisy, report, result
from tests.support.errors import fails

QUICK = {"device": "cpu", "iterations": 2, "warmup": 0, "warmup_s": 0.0}


def test_a_function_of_ones_own_is_measured(tmp_path, monkeypatch, capfd):
    monkeypatch.chdir(tmp_path)

    def mine():
        return torch.nn.Linear(12, 4), lambda batch=1, size=12: torch.rand(batch, size)

    made = framekiln.bench(mine, batch=[1, 2], **QUICK)
    assert [(cell.cell.batch, cell.outcome) for cell in made.cells] == [(1, "ok"), (2, "ok")]
    assert made.report.models[0].params == 52 and made.cells[0].latency_ms.count == 2
    assert "batch 2" in made._repr_html_() and "2 cells" in repr(made) and not made.failed
    assert list(tmp_path.iterdir()) == [] and capfd.readouterr() == ("", "")


@pytest.mark.heavy
def test_a_stage_of_ones_own_is_measured():
    @framekiln.stage(inputs="frame_224", outputs={"level": pa.float32()})
    def level(image):
        return float(image.mean())

    made = framekiln.bench(level, batch=2, **QUICK)
    assert [(cell.model, cell.outcome, cell.items) for cell in made.cells] == [("level", "ok", 2)]


@pytest.mark.heavy
def test_files_are_those_of_the_command(tmp_path):
    made = framekiln.bench("tests.lab.models:plain", out=tmp_path / "out", save=tmp_path / "base.json", **QUICK)
    names = {"profile_stats.json", "profile_summary.csv", "index.html"}
    assert {path.name for path in (tmp_path / "out").iterdir()} == names
    assert {path.name for path in made.files} == {*names, "base.json"}
    figures = json.loads((tmp_path / "base.json").read_text())
    assert len(figures["cells"]) == len(made.to_dict()["cells"]) == 1
    again = framekiln.bench(tmp_path / "out", against=tmp_path / "base.json", fail_if="p50>+1%")
    assert [verdict.outcome for verdict in again.verdicts] == ["Passed"] and again.base_differs == ""


def test_conditions_fail_a_result(tmp_path):
    base = write_report(report(result(noisy(10))), tmp_path / "base.json")
    new = write_report(report(result(noisy(12))), tmp_path / "new.json")
    assert framekiln.bench(new, against=base, fail_if="p50>+5%").failed
    passed = framekiln.bench(new, against=base, fail_if="p50>+50%")
    assert not passed.failed and {change.name for change in passed.changes} >= {"p50", "rate"}


@pytest.mark.parametrize(
    ("model", "options", "code"),
    [
        ("nothing", {}, "FK-BENCH-MODEL"),
        ("", {}, "FK-BENCH-MODEL"),
        ("tests.lab.models:plain", {"batch": 0}, "FK-BENCH-LIST"),
        ("tests.lab.models:plain", {"precisions": ["fp33"]}, "FK-BENCH-PRECISION"),
        ("tests.lab.models:plain", {"btach": 2}, "FK-UNKNOWN-OPTION"),
        ("tests.lab.models:plain", {"fail_if": "p50>+5%"}, "FK-BENCH-NO-BASE"),
        ("tests.lab.models:plain", {"trace": True, **QUICK}, "FK-BENCH-OPTION"),
    ],
)
def test_mistakes_are_raised(model, options, code):
    with fails(code):
        framekiln.bench(model, **options)


def test_every_option_of_the_command_has_its_name_here():
    theirs = {item.name for item in typer.main.get_group(app).commands["bench"].params}
    assert theirs > set(BenchOptions.__annotations__) and "batch" in theirs
    assert set(inspect.signature(framekiln.bench).parameters) == {"model", *BenchOptions.__annotations__}
