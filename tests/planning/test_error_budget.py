"""A step that fails on too many rows stops the run early, with the reasons."""

from __future__ import annotations

import pytest

from framekiln.contract.errors import BudgetError
from framekiln.job import Job
from framekiln.planning.error_budget import Budget, Budgets
from framekiln.planning.manifest import PipelineFile, ProfileFile
from framekiln.planning.plan import make_plan
from framekiln.planning.plan_options import PlanOptions
from tests.support.errors import fails
from tests.support.media.collections_factory import clip
from tests.support.runs.engine_factory import order
from tests.support.runs.plan_factory import BOX, toy


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
    assert Budget.read(text).exceeded(failures, seen) is spent


@pytest.mark.parametrize("text", ["-1", "1.5", "101%", "many", "", "%"])
def test_other_forms_are_refused(text):
    with fails("FK-MAX-ERRORS-FORM"):
        Budget.read(text)


def test_the_most_frequent_reasons_come_first():
    budgets = Budgets({"faces": Budget.read("5")})
    assert budgets.spend("faces", 100, {"ValueError: a": 2}) is None
    assert budgets.spend("flow", 100, {"ValueError: a": 99}) is None
    error = budgets.spend("faces", 100, {"ValueError: b": 3, "KeyError: c": 1})
    assert error.code == "FK-TOO-MANY-ERRORS" and "6 of 200" in str(error)
    assert "3 x ValueError: b; 2 x ValueError: a; 1 x KeyError: c." in str(error)


def test_the_command_line_overrides_the_step_and_the_step_the_pipeline():
    steps = {"crc": toy("Checksum") | {"max_errors": "7"}, "near": toy("Neighbours")}
    pipeline = {"steps": steps, "max_errors": "20%", "decode": {"max_errors": 3}}

    def budgets(**choices):
        result = make_plan(PipelineFile.model_validate(pipeline), ProfileFile(), PlanOptions(**choices), BOX)
        return {name: str(budget) for name, budget in result.budgets.items()}

    assert budgets() == {"crc": "7", "near": "20 %", "decode": "3"}
    assert budgets(max_errors="1%") == {"crc": "1 %", "near": "1 %", "decode": "1 %"}


@pytest.mark.slow
def test_a_run_stops_early_and_continues_with_a_larger_budget(tmp_path, local):
    for i in range(6):
        clip(tmp_path / "in" / f"clip{i:02}.png", i, 30)
    steps = {"crc": ("Picky", {"refuse": tuple(range(4, 9))})}
    with pytest.raises(BudgetError) as error:
        Job(order(tmp_path / "in", tmp_path / "out", steps, max_errors="11")).run()
    assert error.value.code == "FK-TOO-MANY-ERRORS"
    assert all(value in str(error.value) for value in ("'crc'", " 11: ", "taste"))
    result = Job(order(tmp_path / "in", tmp_path / "out", steps)).run()
    assert result.frames == 180 and result.errors == {"ValueError": 30}
