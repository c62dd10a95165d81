"""A gate fails for what became worse, says so with both numbers, and never passes what was not measured."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipeline.errors import ConfigError
from pipeline.telemetry.compare.gate import judge, parse
from tests.compare_factory import calls, invoke, make, pair
from tests.report_factory import figures

__all__ = ["make"]


def told(rate, **more):
    return {"decode": figures(12, 1.0), "marked": figures(12, 6.0) | {"rows_per_s": rate} | more}


@given(
    step=st.sampled_from(["", "faces.", "my-step."]),
    figure=st.sampled_from(["rate", "p95", "vram"]),
    sign=st.sampled_from(["<", "<=", ">", ">="]),
    amount=st.floats(0, 1000).map(lambda value: round(value, 3)),
    way=st.sampled_from("+-"),
    gap=st.sampled_from(["", " "]),
)
def test_what_is_written_by_the_grammar_is_read_as_it_says(step, figure, sign, amount, way, gap):
    change, value = parse(f"{step}{figure}{gap}{sign}{gap}{way}{amount:f}%, {step}{figure}{sign}{amount:f}")
    assert (change.step or "") == step.rstrip(".") and change.figure == figure and change.sign == sign
    assert change.relative and change.threshold == pytest.approx(float(f"{way}{amount}") / 100)
    assert not value.relative and value.threshold == pytest.approx(amount)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "no condition"),
        ("rate", "no condition"),
        ("rate<-5%,", "no condition"),
        ("rate=5", "no condition"),
        ("rate<-5% or p95>+1%", "no condition"),
        ("rate<five%", "no condition"),
        ("rat<-5%", "Did you mean 'rate'"),
        ("rate<5%", "+5% or -5%"),
        ("drift>+1%", "give a number"),
    ],
)
def test_what_is_not_of_the_grammar_is_refused(text, said):
    with pytest.raises(ConfigError) as error:
        parse(text)
    assert said in str(error.value)


def test_a_condition_fails_with_both_numbers(make):
    base, slower = make("a", figures=told(20.0)), make("b", figures=told(18.0))
    done = invoke("--baseline", base, slower, "--fail-if", "rate<-5%")
    assert done.exit_code == 1
    assert "Failed: rate<-5%: rate of marked: A 20, B 18 1/s, -10.0 % (no interval: A has no records" in done.stderr
    assert "Passed: rate<-5%: rate of decode" in done.stdout
    assert invoke("--baseline", base, slower, "--fail-if", "rate<-15%").exit_code == 0
    assert invoke("--baseline", base, slower, "--fail-if", "decode.rate<-5%, marked.rate<10").exit_code == 0
    assert invoke("--baseline", base, slower, "--fail-if", "marked.rate<19").exit_code == 1


def test_noise_fails_nothing_and_a_real_change_does(make):
    base = make("a", calls(60, spread=1.0), figures=told(20.0))
    noisy = make("b", calls(60, spread=1.0, seed=3), figures=told(18.0))
    clear = make("c", calls(400, spread=0.1, seed=3), figures=told(10.0))
    (finding,) = judge(parse("marked.rate<-5%"), pair(base, noisy))
    assert not finding.failed and finding.unclear and "holds 0: take more files" in finding.words
    (finding,) = judge(parse("marked.rate<-5%"), pair(make("d", calls(400, spread=0.1), figures=told(20.0)), clear))
    assert finding.failed and "interval -5" in finding.words


def test_what_could_not_be_told_is_said_in_quiet_too(make, tmp_path):
    base = make("a", calls(60, spread=1.0), figures=told(20.0))
    noisy = make("b", calls(60, spread=1.0, seed=3), figures=told(15.0))
    page = tmp_path / "page.html"
    done = invoke(base, noisy, "-q", "--html", str(page), "--fail-if", "marked.rate<-5%, frames<0%")
    assert (done.exit_code, done.stdout) == (0, "")
    assert done.stderr.startswith("Could not tell: marked.rate<-5%: rate of marked: A 20, B 15 1/s, -25.0 % (interval")
    assert done.stderr.count("\n") == 1
    said = page.read_text()
    assert "None of 2 conditions failed; of 1 it could not be told." in said and "<b>Could not tell</b>" in said


def test_files_that_one_side_lacks_are_said_in_quiet_and_fewer_frames_fail(make):
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
    ("text", "said"),
    [
        ("vram>+10%", "was not measured in A and B; name the steps it is for"),
        ("marked.p95>+10%", "p95 of marked was not measured in A and B"),
        ("energy>+10%", "energy of run was not measured"),
        ("marked.drift>0.01", "drift of marked was not measured as no rows"),
        ("marke.rate<-5%", "Did you mean 'marked'"),
        ("marked.seconds>+5%", "of the whole run"),
    ],
)
def test_what_was_not_measured_is_an_error_and_no_pass(make, text, said):
    done = invoke(make("a"), make("b"), "--fail-if", text, "--drift-rows", "0")
    assert isinstance(done.exception, ConfigError) and done.exception.exit_code == 2
    assert said in str(done.exception)


def test_a_step_that_the_new_run_lacks_is_not_measured(make):
    base, other = make("a"), make("b", steps={}, figures={"decode": figures(12, 1.0)})
    with pytest.raises(ConfigError, match="rate of marked was not measured in B"):
        judge(parse("rate<-5%"), pair(base, other))
    assert len(judge(parse("rate<-5%"), pair(other, base))) == 1  # a new step has nothing to be held against


def test_errors_from_none_are_more_without_end(make):
    base, worse = make("a", figures=told(20.0)), make("b", figures=told(20.0, errors=3))
    (finding,) = judge(parse("marked.errors>+50%"), pair(base, worse))
    assert finding.failed and finding.words == "marked.errors>+50%: errors of marked: A 0, B 3, from none."
    (finding,) = judge(parse("marked.errors>+50%"), pair(base, make("c", figures=told(20.0))))
    assert not finding.failed
