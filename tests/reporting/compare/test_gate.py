"""Conditions of `--fail-if`: a real change for the worse fails, chance does not, a missing figure is an error."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from framekiln.contract.errors import ConfigError
from framekiln.reporting.compare.gate import judge, parse
from tests.support.runs.compare_factory import calls, invoke, make, pair
from tests.support.runs.report_factory import figures

__all__ = ["make"]


def rated(rate, **more):
    return {"decode": figures(12, 1.0), "marked": figures(12, 6.0) | {"rows_per_s": rate} | more}


@given(
    step=st.sampled_from(["", "faces.", "my-step."]),
    figure=st.sampled_from(["rate", "p95", "vram"]),
    sign=st.sampled_from(["<", "<=", ">", ">="]),
    amount=st.floats(0, 1000).map(lambda value: round(value, 3)),
    way=st.sampled_from("+-"),
    gap=st.sampled_from(["", " "]),
)
def test_conditions_of_the_grammar_are_parsed(step, figure, sign, amount, way, gap):
    change, value = parse(f"{step}{figure}{gap}{sign}{gap}{way}{amount:f}%, {step}{figure}{sign}{amount:f}")
    assert (change.step or "") == step.rstrip(".") and change.figure == figure and change.sign == sign
    assert change.relative and change.number == pytest.approx(float(f"{way}{amount}") / 100)
    assert not value.relative and value.number == pytest.approx(amount)


@pytest.mark.parametrize(
    ("text", "code"),
    [
        ("", "FK-GATE-FORM"),
        ("rate", "FK-GATE-FORM"),
        ("rate<-5%,", "FK-GATE-FORM"),
        ("rate=5", "FK-GATE-FORM"),
        ("rate<-5% or p95>+1%", "FK-GATE-FORM"),
        ("rate<five%", "FK-GATE-FORM"),
        ("rat<-5%", "FK-GATE-FIGURE"),
        ("rate<5%", "FK-GATE-DIRECTION"),
        ("drift>+1%", "FK-GATE-PERCENT"),
    ],
)
def test_other_conditions_are_refused(text, code):
    with pytest.raises(ConfigError) as error:
        parse(text)
    assert error.value.code == code
    assert "'rate'" in str(error.value) or code != "FK-GATE-FIGURE"  # the nearest name


def test_a_condition_fails_with_both_numbers(make):
    base, slower = make("a", figures=rated(20.0)), make("b", figures=rated(18.0))
    done = invoke("--baseline", base, slower, "--fail-if", "rate<-5%")
    assert done.exit_code == 1
    assert "Failed: rate<-5%: rate of marked: A 20, B 18 1/s, -10.0 % (no interval: A has no records" in done.stderr
    assert "Passed: rate<-5%: rate of decode" in done.stdout
    assert invoke("--baseline", base, slower, "--fail-if", "rate<-15%").exit_code == 0
    assert invoke("--baseline", base, slower, "--fail-if", "decode.rate<-5%, marked.rate<10").exit_code == 0
    assert invoke("--baseline", base, slower, "--fail-if", "marked.rate<19").exit_code == 1


def test_noise_fails_nothing_and_a_real_change_does(make):
    base = make("a", calls(60, spread=1.0), figures=rated(20.0))
    noisy = make("b", calls(60, spread=1.0, seed=3), figures=rated(18.0))
    clear = make("c", calls(400, spread=0.1, seed=3), figures=rated(10.0))
    (finding,) = judge(parse("marked.rate<-5%"), pair(base, noisy))
    assert not finding.failed and finding.unclear and "contains 0: take more files" in finding.sentence
    (finding,) = judge(parse("marked.rate<-5%"), pair(make("d", calls(400, spread=0.1), figures=rated(20.0)), clear))
    assert finding.failed and "interval -5" in finding.sentence


def test_inconclusive_conditions_are_printed_with_quiet_too(make, tmp_path):
    base = make("a", calls(60, spread=1.0), figures=rated(20.0))
    noisy = make("b", calls(60, spread=1.0, seed=3), figures=rated(15.0))
    page = tmp_path / "page.html"
    done = invoke(base, noisy, "-q", "--html", str(page), "--fail-if", "marked.rate<-5%, frames<0%")
    assert (done.exit_code, done.stdout) == (0, "")
    assert done.stderr.startswith("Inconclusive: marked.rate<-5%: rate of marked: A 20, B 15 1/s, -25.0 % (interval")
    assert done.stderr.count("\n") == 1
    html = page.read_text()
    assert "None of 2 conditions failed; 1 is inconclusive." in html and "<b>Inconclusive</b>" in html


def test_missing_files_are_printed_with_quiet_too_and_fewer_frames_fail(make):
    base = make("a", frames=12, waves=[["marked"]])
    (make.folder / "b.png").unlink()
    other = make("b", frames=6, waves=[["marked"]])
    done = invoke(base, other, "-q", "--fail-if", "frames<0%")
    assert done.exit_code == 1 and done.stdout == ""
    files, failed = done.stderr.splitlines()
    assert files == "The files of A and B differ: 1 file is the same in both, 1 is only in A."
    assert failed.startswith("Failed: frames<0%: frames of run: A 12, B 6, -50.0 %")
    assert invoke(base, other, "-q").stderr == ""


@pytest.mark.parametrize(
    ("text", "code", "part"),
    [
        ("vram>+10%", "FK-GATE-NOT-MEASURED", "in A and B; name the steps"),
        ("marked.p95>+10%", "FK-GATE-NOT-MEASURED", "p95 of marked was not measured in A and B."),
        ("energy>+10%", "FK-GATE-NOT-MEASURED", "energy of run"),
        ("marked.drift>0.01", "FK-GATE-NOT-MEASURED", "drift of marked"),
        ("marke.rate<-5%", "FK-UNKNOWN-STEP", "Did you mean 'marked'"),
        ("marked.seconds>+5%", "FK-GATE-RUN-FIGURE", "seconds"),
    ],
)
def test_a_figure_that_was_not_measured_is_an_error(make, text, code, part):
    done = invoke(make("a"), make("b"), "--fail-if", text, "--drift-rows", "0")
    assert isinstance(done.exception, ConfigError) and done.exception.exit_code == 2
    assert done.exception.code == code and part in str(done.exception)


def test_a_step_that_the_new_run_lacks_is_not_measured(make):
    base, other = make("a"), make("b", steps={}, figures={"decode": figures(12, 1.0)})
    with pytest.raises(ConfigError) as error:
        judge(parse("rate<-5%"), pair(base, other))
    assert error.value.code == "FK-GATE-NOT-MEASURED"
    assert "rate of marked" in str(error.value) and "in B" in str(error.value)
    assert len(judge(parse("rate<-5%"), pair(other, base))) == 1  # a new step has no base


def test_errors_after_none_are_an_infinite_change(make):
    base, worse = make("a", figures=rated(20.0)), make("b", figures=rated(20.0, errors=3))
    (finding,) = judge(parse("marked.errors>+50%"), pair(base, worse))
    assert finding.failed and finding.sentence == "marked.errors>+50%: errors of marked: A 0, B 3, from none."
    (finding,) = judge(parse("marked.errors>+50%"), pair(base, make("c", figures=rated(20.0))))
    assert not finding.failed
