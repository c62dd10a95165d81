"""Benches against a base: changes, intervals and conditions; files and history."""

from __future__ import annotations

import csv
from dataclasses import replace

import pytest

from framekiln.contract.errors import ConfigError, OutputError
from framekiln.lab.output.results import SUMMARY, read_report, write_report, write_tables
from framekiln.reporting.bench.history import append, changes, entry_of, judge, lost, other_conditions, read, steps
from framekiln.reporting.kit.pages import write_page
from tests.lab.report.results import layer, memory, noisy, report, result


def judged(conditions, first, second):
    return judge(conditions, changes(report(first), report(second)))


@pytest.mark.parametrize("seed", range(8))
def test_equal_benches_pass(seed):
    (verdict,) = judged("p50>+1%", result(noisy(10, seed=seed)), result(noisy(10, seed=seed + 100)))
    assert not verdict.failed


def test_a_p90_has_an_interval_too():
    (found,) = (
        one for one in changes(report(result(noisy(10))), report(result(noisy(10, seed=1)))) if one.name == "p90"
    )
    assert found.interval is not None and found.interval.contains_zero and not found.why_unknown


@pytest.mark.parametrize("seed", range(8))
def test_five_percent_more_are_found_in_fifty_calls_with_a_spread_of_three(seed):
    (verdict,) = judged("mean>+1%", result(noisy(10, seed=seed)), result(noisy(10.5, seed=seed + 100)))
    assert verdict.failed


@pytest.mark.parametrize("figure", ["p50", "mean"])
def test_without_an_interval_the_number_alone_decides(figure):
    (verdict,) = judged(f"{figure}>+5%", result(noisy(10, calls=20)), result(noisy(20, calls=20)))
    assert verdict.failed and not verdict.unclear


def test_memory_needs_no_interval():
    more = result(memory=memory(peak=1_030_000_000))
    assert [verdict.failed for verdict in judged("peak_gb>+2%,peak_gb>+4%", result(), more)] == [True, False]


@pytest.mark.parametrize(
    ("conditions", "code"),
    [
        ("p51>+5%", "FK-GATE-FIGURE"),
        ("p50>5%", "FK-GATE-DIRECTION"),
        ("p99>+5%", "FK-GATE-NOT-MEASURED"),
        ("faces.p50>+5%", "FK-GATE-FORM"),
    ],
)
def test_conditions_that_cannot_be_judged_are_mistakes(conditions, code):
    with pytest.raises(ConfigError) as error:
        judged(conditions, result(), result())
    assert error.value.code == code


def test_benches_of_other_cells_cannot_be_compared():
    with pytest.raises(ConfigError) as error:
        changes(report(result()), report(result(batch=2)))
    assert error.value.code == "FK-BENCH-NOTHING-COMMON"


def test_a_report_is_read_as_it_was_written(tmp_path):
    written = report(result(layers=(layer("a", 0.5),)), result(outcome="oom", why="fp32", latency_ms=None))
    path = write_report(written, tmp_path / "profile_stats.json")
    assert read_report(path) == read_report(tmp_path) == written


@pytest.mark.parametrize("text", ["", "{}", '{"format": 2}'])
def test_another_file_is_no_report(tmp_path, text):
    (tmp_path / "a.json").write_text(text)
    with pytest.raises(ConfigError) as error:
        read_report(tmp_path / "a.json")
    assert error.value.code == "FK-BENCH-REPORT"


def test_the_summary_says_where_calls_were_too_few(tmp_path):
    write_tables([result(), replace(result(batch=2), outcome="oom", latency_ms=None, why="fp32")], tmp_path)
    with (tmp_path / SUMMARY).open() as file:
        first, second = csv.DictReader(file)
    assert (first["latency_p50"], first["latency_p99"], first["memory_peak"]) == ("10.0", "too few", "1000000000")
    assert (second["outcome"], second["why"], second["latency_p50"]) == ("oom", "fp32", "")


def test_a_folder_that_is_a_file_is_refused_for_each_file(tmp_path):
    (tmp_path / "out").write_text("")
    made = report(result())
    for write in (
        write_report,
        lambda *args: write_page(args[1], "page"),
        lambda *args: write_tables(made.cells, args[1]),
    ):
        with pytest.raises(OutputError) as error:
            write(made, tmp_path / "out" / "x")
        assert error.value.code == "FK-BENCH-NOT-WRITABLE"


def test_a_history_keeps_what_each_change_brought(tmp_path):
    path = tmp_path / "runs.jsonl"
    append(path, entry_of(report(result((0.01,) * 5)), "base"))
    entries = append(path, entry_of(report(result((0.005,) * 5)), "compiled"))
    (step,) = steps(entries)
    assert (step["cell"], step["bench"].note, step["figures"]["p50"]) == ("net, batch 1, fp32", "compiled", (10.0, 5.0))
    assert read(path) == entries
    path.write_text("no history\n")
    with pytest.raises(ConfigError) as error:
        append(path, entries[0])
    assert error.value.code == "FK-BENCH-HISTORY"


def test_a_change_of_the_cell_is_compared_with_the_fastest_one_that_computes_the_same():
    """Two precisions, then a third: batch 1 has a fastest one before it, batch 4 nothing."""
    first = report(result((0.01,) * 5), result((0.004,) * 5, precision="bf16"), result((0.002,) * 5, 2))
    then = report(result((0.003,) * 5, precision="fp16"), result((0.003,) * 5, 4), result((0.009,) * 5))
    found = steps([entry_of(first, "base"), entry_of(report(result((0.02,) * 5, 8)), ""), entry_of(then, "fp16")])
    assert [(step["cell"], step["bench"].note, step["figures"]["p50"]) for step in found] == [
        ("net, batch 1, bf16 → net, batch 1, fp16", "fp16", (4.0, 3.0)),
        ("net, batch 1, fp32", "fp16", (10.0, 9.0)),
    ]


def test_a_base_of_another_conditions_is_noted():
    here, there = (replace(report(result()), environment={"gpu": gpu, "threads": 2}) for gpu in (None, "L4"))
    assert other_conditions(here, here) == "" and "L4" in other_conditions(there, here)


@pytest.mark.parametrize("name", ["input", "cold_cache", "device"])
def test_a_base_of_another_input_or_setting_is_noted(name):
    base, now = (replace(report(result()), environment={name: value}) for value in ("", "b"))
    assert other_conditions(base, now) == f"{name} none, now b"
    assert other_conditions(base, base) == other_conditions(replace(base, environment={}), now) == ""


def test_a_cell_that_the_base_measured_and_that_fails_now_is_a_failure():
    full = result(batch=8, outcome="oom", why="fp32", latency_ms=None)
    (finding,) = lost(report(result(), result(batch=8)), report(result(), full))
    assert finding.failed and finding.missing and "batch 8" in finding.sentence
    assert lost(report(result(), full), report(result(), full)) == lost(report(result(batch=8)), report(result())) == []
