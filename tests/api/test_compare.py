"""`framekiln.compare`: the comparison of the command as a value."""

from __future__ import annotations

import json

import framekiln
from tests.support.errors import fails
from tests.support.runs.compare_factory import calls, invoke, make

__all__ = ["make"]


def test_two_outputs_are_compared_as_by_the_command(make, tmp_path):
    a, slow = make("a", calls(400)), make("slow", calls(400, ms=40.0, seed=1))
    compared = framekiln.compare(framekiln.open(a), slow, fail_if="marked.p50>+50%, marked.drift>0.01")
    assert compared.failed and compared.verdicts == [compared.to_dict()["pairs"][0]["verdict"]]
    assert [finding.outcome for finding in compared.findings] == ["Failed", "Passed"]
    done = invoke(a, slow, "--fail-if", "marked.p50>+50%, marked.drift>0.01")
    assert done.exit_code == 1
    assert all(f"{finding.outcome}: {finding.sentence}" in done.output for finding in compared.findings)
    assert all(text in str(compared) for text in (*compared.verdicts, "Failed: marked.p50>+50%", "The same work in"))
    assert compared.save(tmp_path / "page.html") == str(tmp_path / "page.html")
    assert compared.verdicts[0].partition(":")[0] in (tmp_path / "page.html").read_text()


def test_a_comparison_has_figures_for_json_and_for_notebooks(make):
    a, slow = make("a", calls(400)), make("slow", calls(400, ms=40.0, seed=1))
    compared = framekiln.compare(a, slow, drift_rows=0)
    pair = json.loads(json.dumps(compared.to_dict()))["pairs"][0]
    (rate,) = [figure for figure in pair["figures"]["marked"] if figure["name"] == "p50"]
    assert 0.8 < rate["change"] < 1.2 and rate["interval"][0] < rate["change"] < rate["interval"][1]
    assert pair["sides"] == {"A": [a], "B": [slow]} and pair["drift"] == {} and not compared.failed
    html = compared._repr_html_()
    assert "marked" in html and rate["difference"] in html and compared.verdicts[0] in html


def test_repeated_runs_are_one_side(make):
    outputs = [make(name, calls(40, seed=seed)) for seed, name in enumerate("abc")]
    compared = framekiln.compare([outputs[0], framekiln.open(outputs[1])], outputs[2], price={"A": 1.2, "B": 2})
    assert [len(side.runs) for side in compared.sides.sides] == [2, 1]
    assert [side.price for side in compared.sides.sides] == [1.2, 2]


def test_mistakes_are_raised(make, tmp_path):
    a, b = make("a"), make("b")
    with fails("FK-COMPARE-TOO-FEW"):
        framekiln.compare(a)
    with fails("FK-COMPARE-TWICE"):
        framekiln.compare(a, framekiln.open(a))
    with fails("FK-OUTPUT-MISSING"):
        framekiln.compare(a, tmp_path / "gone")
    with fails("FK-GATE-FORM"):
        framekiln.compare(a, b, fail_if="rate")
    with fails("FK-PRICE-SIDE"):
        framekiln.compare(a, b, price={"C": 1.0})
    with fails("FK-PRICE-FORM"):
        framekiln.compare(a, b, price={"A": -1.0})
