"""A step that fails too often stops the run early and says why."""

from __future__ import annotations

import pytest

from pipeline.budget import Budget, Budgets
from pipeline.engine import session
from pipeline.errors import BudgetError, ConfigError
from pipeline.job import Job
from pipeline.manifest import PipelineFile, ProfileFile
from pipeline.plan import Choices, make_plan
from pipeline.sample import Sample
from tests.collections_factory import clip
from tests.engine_factory import order
from tests.plan_factory import BOX, toy


@pytest.mark.parametrize(
    ("text", "failures", "seen", "spent"),
    [
        ("0", 0, 10, False),
        ("0", 1, 10, True),
        ("100", 100, 100, False),
        ("100", 101, 1_000_000, True),
        ("1%", 2, 10, False),  # of few rows one by bad luck is a large share
        ("1%", 3, 10, True),
        ("1%", 10, 1000, False),
        ("1 %", 11, 1000, True),
        ("0.5%", 6, 1000, True),
    ],
)
def test_a_budget_is_a_number_of_rows_or_a_share(text, failures, seen, spent):
    assert Budget.read(text).spent(failures, seen) is spent


@pytest.mark.parametrize("text", ["-1", "1.5", "101%", "many", "", "%"])
def test_other_words_are_refused(text):
    with pytest.raises(ConfigError, match="neither a number of rows"):
        Budget.read(text)


def test_the_reasons_are_told_most_frequent_first():
    budgets = Budgets({"faces": Budget.read("5")})
    about = {"step": "faces", "worker": "a:1", "started": 0.0, "seconds": 1.0}
    assert budgets.spend(Sample(**about, rows=100, reasons={"ValueError: a": 2})) is None
    assert budgets.spend(Sample(**about | {"step": "flow"}, rows=100, reasons={"ValueError: a": 99})) is None
    error = budgets.spend(Sample(**about, rows=100, reasons={"ValueError: b": 3, "KeyError: c": 1}))
    assert "failed on 6 of 200 rows" in str(error) and "3 x ValueError: b; 2 x ValueError: a; 1 x KeyError: c." in str(
        error
    )


def test_the_command_line_stands_above_the_step_and_the_step_above_the_pipeline():
    steps = {"crc": toy("Checksum") | {"max_errors": "7"}, "near": toy("Neighbours")}
    pipeline = {"steps": steps, "max_errors": "20%", "decode": {"max_errors": 3}}

    def budgets(**choices):
        made = make_plan(PipelineFile.model_validate(pipeline), ProfileFile(), Choices(**choices), BOX)
        return {name: str(budget) for name, budget in made.budgets.items()}

    assert budgets() == {"crc": "7", "near": "20 %", "decode": "3"}
    assert budgets(max_errors="1%") == {"crc": "1 %", "near": "1 %", "decode": "1 %"}


@pytest.mark.slow
def test_a_run_stops_early_and_goes_on_once_there_is_more_to_spend(tmp_path):
    for i in range(12):
        clip(tmp_path / "in" / f"clip{i:02}.png", i, 30)
    steps = {"crc": ("Picky", {"refuse": tuple(range(4, 9))})}
    with session(None):
        with pytest.raises(BudgetError, match=r"'crc' failed on \d+ of \d+ rows, and its `max_errors` is 11: .*taste"):
            Job(order(tmp_path / "in", tmp_path / "out", steps, max_errors="11")).run()
        result = Job(order(tmp_path / "in", tmp_path / "out", steps)).run()
    assert result.frames == 360 and result.errors == {"ValueError": 60}
