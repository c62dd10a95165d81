"""Benches against a base: changes, intervals and conditions; files and history."""

from __future__ import annotations

import csv
import json
from dataclasses import replace

import pytest
from typer.testing import CliRunner

from pipeline.bench.output.cells import MemoryPoint
from pipeline.bench.output.results import Finding, read_report, write_report
from pipeline.bench.output.tables import SUMMARY, write_tables
from pipeline.bench.sweep.knee import curves, knee
from pipeline.cli.app import app
from pipeline.contract.errors import ConfigError, OutputError
from pipeline.reporting.bench.history import append, entry_of, read, steps
from pipeline.reporting.bench.page import render, write_page
from pipeline.reporting.bench.plots import memory_charts
from pipeline.reporting.bench.regression import changes, judge, lost, other_machine
from pipeline.reporting.bench.sections import sections
from pipeline.reporting.formatting import MISSING
from tests.bench.results import layer, memory, noisy, report, result
from tests.support.runs.report_reader import LOADS, Tags

HOSTILE = "<script>alert(1)</script>'\"&"


def judged(conditions, first, second):
    return judge(conditions, changes(report(first), report(second)))


@pytest.mark.parametrize("seed", range(8))
def test_equal_benches_pass(seed):
    (verdict,) = judged("p50>+1%", result(noisy(10, seed=seed)), result(noisy(10, seed=seed + 100)))
    assert not verdict.failed


@pytest.mark.parametrize("seed", range(8))
def test_five_percent_more_are_found_in_fifty_calls_with_a_spread_of_three(seed):
    (verdict,) = judged("mean>+1%", result(noisy(10, seed=seed)), result(noisy(10.5, seed=seed + 100)))
    assert verdict.failed


def test_too_few_calls_are_inconclusive():
    (verdict,) = judged("p50>+5%", result(noisy(10, calls=20)), result(noisy(20, calls=20)))
    assert verdict.unclear and not verdict.failed


def test_memory_needs_no_interval():
    more = result(memory=memory(peak=1_030_000_000))
    assert [verdict.failed for verdict in judged("peak_gb>+2%,peak_gb>+4%", result(), more)] == [True, False]


@pytest.mark.parametrize(
    ("conditions", "code"),
    [
        ("p51>+5%", "FM-GATE-FIGURE"),
        ("p50>5%", "FM-GATE-DIRECTION"),
        ("p99>+5%", "FM-GATE-NOT-MEASURED"),
        ("faces.p50>+5%", "FM-GATE-FORM"),
    ],
)
def test_conditions_that_cannot_be_judged_are_mistakes(conditions, code):
    with pytest.raises(ConfigError) as error:
        judged(conditions, result(), result())
    assert error.value.code == code


def test_benches_of_other_cells_cannot_be_compared():
    with pytest.raises(ConfigError) as error:
        changes(report(result()), report(result(batch=2)))
    assert error.value.code == "FM-BENCH-NOTHING-COMMON"


def test_a_report_is_read_as_it_was_written(tmp_path):
    written = report(result(layers=(layer("a", 0.5),)), result(outcome="oom", why="full", latency_ms=None))
    path = write_report(written, tmp_path / "profile_stats.json")
    assert read_report(path) == read_report(tmp_path) == written


@pytest.mark.parametrize("text", ["", "{}", '{"format": 2}'])
def test_another_file_is_no_report(tmp_path, text):
    (tmp_path / "a.json").write_text(text)
    with pytest.raises(ConfigError) as error:
        read_report(tmp_path / "a.json")
    assert error.value.code == "FM-BENCH-REPORT"


def test_the_summary_says_where_calls_were_too_few(tmp_path):
    write_tables([result(), replace(result(batch=2), outcome="oom", latency_ms=None, why="full")], tmp_path)
    with (tmp_path / SUMMARY).open() as file:
        first, second = csv.DictReader(file)
    assert (first["latency_p50"], first["latency_p99"], first["memory_peak"]) == ("10.0", "too few", "1000000000")
    assert (second["outcome"], second["why"], second["latency_p50"]) == ("oom", "full", "")


def test_a_folder_that_is_a_file_is_refused_for_each_file(tmp_path):
    (tmp_path / "out").write_text("")
    made = report(result())
    for write in (write_report, lambda *args: write_page(*args[::-1]), lambda *args: write_tables(made.cells, args[1])):
        with pytest.raises(OutputError) as error:
            write(made, tmp_path / "out" / "x")
        assert error.value.code == "FM-BENCH-NOT-WRITABLE"


def test_the_knee_is_the_smallest_batch_near_the_best_rate():
    cells = [result((batch / rate,) * 5, batch) for batch, rate in ((1, 50.0), (4, 98.0), (8, 100.0), (2, 80.0))]
    (curve,) = curves([*cells, result(batch=16, outcome="oom")]).values()
    assert [cell.cell.batch for cell in curve] == [1, 2, 4, 8] and knee(curve).cell.batch == 4


def test_a_history_keeps_what_each_change_brought(tmp_path):
    path = tmp_path / "runs.jsonl"
    append(path, entry_of(report(result((0.01,) * 5)), "base"))
    entries = append(path, entry_of(report(result((0.005,) * 5)), "compiled"))
    ((name, note, _, figures),) = steps(entries)
    assert (name, note, figures["p50"]) == ("net, batch 1, fp32", "compiled", (10.0, 5.0))
    assert read(path) == entries
    path.write_text("no history\n")
    with pytest.raises(ConfigError) as error:
        append(path, entries[0])
    assert error.value.code == "FM-BENCH-HISTORY"


def test_the_page_escapes_names_and_loads_nothing(tmp_path):
    cells = [result((0.01 / n,) * 5, n, model=HOSTILE, layers=(layer(HOSTILE, 0.6),)) for n in (1, 2)]
    whole = report(*cells, targets=({"clip": HOSTILE},))
    entries = [entry_of(whole, HOSTILE)] * 2
    page = render(whole, changes(whole, whole), judge("p50>+5%", changes(whole, whole)), entries)
    tags = Tags()
    tags.feed(page)
    assert tags.open == [] and "script" not in tags.names and "&lt;script&gt;" in page
    assert [(name, value) for name, value in tags.attributes if name in LOADS and not value.startswith("#")] == []
    ids = [value for name, value in tags.attributes if name == "id"]
    links = {value[1:] for name, value in tags.attributes if name == "href"}
    assert len(ids) == len(set(ids)) and links <= set(ids) and {"throughput", "memory", "layers", "history"} <= links


def test_the_command_compares_two_files(tmp_path):
    base = write_report(report(result(noisy(10))), tmp_path / "base.json")
    new = write_report(report(result(noisy(12))), tmp_path / "new.json")
    words = ["bench", str(new), "--against", str(base), "--out", str(tmp_path / "out")]
    assert CliRunner().invoke(app, [*words, "--fail-if", "p50>+5%"]).exit_code == 1
    assert CliRunner().invoke(app, [*words, "--fail-if", "p50>+50%"]).exit_code == 0
    assert (tmp_path / "out" / "index.html").exists() and not (tmp_path / "out" / "profile_stats.json").exists()


def test_conditions_without_a_base_are_a_mistake(tmp_path):
    done = CliRunner().invoke(app, ["bench", str(tmp_path), "--fail-if", "p50>+5%"])
    assert done.exception.code == "FM-BENCH-NO-BASE"


@pytest.mark.parametrize(
    "words",
    [
        *("--sav . --save x.json", "--test --history x.jsonl", "--clip 4k --against x.json"),
        *("--dry-run --fail-if p50>1", "--sav . --clip 4k", "--sav . --test", "--clip 4k --ncu"),
        *("--target 4k30", "--runs 2", "--overlays", "--stereo", "--note x"),
        *("--test --batch 2", "--clip 4k --layers", "--nsys inline -n 3", "--ncu --find-batch 8"),
        *("-n 3 -d 1", "--batch 1,2 --find-batch 8"),
    ],
)
def test_options_that_would_be_left_out_in_silence_are_mistakes(words):
    done = CliRunner().invoke(app, ["bench", "tests.bench.models:plain", *words.split()])
    assert done.exception.code == "FM-BENCH-OPTION"


@pytest.mark.parametrize("words", ["--layers", "--history runs.jsonl", "--batch 2"])
def test_figures_measured_before_take_no_options_of_a_measurement(tmp_path, words):
    base = write_report(report(result()), tmp_path / "base.json")
    done = CliRunner().invoke(app, ["bench", str(base), *words.split()])
    assert done.exception.code == "FM-BENCH-OPTION"


@pytest.mark.parametrize(
    ("words", "code"),
    [
        ("--precisions fp33", "FM-BENCH-PRECISION"),
        ("--precisions ,", "FM-BENCH-LIST"),
        ("--batch 0", "FM-BENCH-LIST"),
        ("--out FILE", "FM-NOT-A-FOLDER"),
        ("--save FOLDER", "FM-IS-A-FOLDER"),
        ("--history FILE", "FM-BENCH-HISTORY"),
        ("--against FILE", "FM-BENCH-REPORT"),
        ("--against BASE --fail-if p51>1", "FM-GATE-FIGURE"),
        ("--against BASE --fail-if faces.p50>1", "FM-GATE-FORM"),
        ("--lines tests.bench.models:nothing", "FM-BENCH-LINES"),
        ("--device cuda", "FM-BENCH-NO-GPU"),
    ],
)
def test_mistakes_are_found_before_a_model_is_built(tmp_path, monkeypatch, words, code):
    monkeypatch.setattr("pipeline.bench.sweep.runner.ModelBench", None)
    monkeypatch.setattr("torch.cuda.is_available", lambda: False)
    monkeypatch.chdir(tmp_path)
    (tmp_path / "file").write_text("no history")
    base = write_report(report(result()), tmp_path / "base.json")
    words = words.replace("FILE", str(tmp_path / "file")).replace("FOLDER", str(tmp_path)).replace("BASE", str(base))
    done = CliRunner().invoke(app, ["bench", "tests.bench.models:plain", *words.split()])
    assert done.exception.code == code


@pytest.mark.parametrize("model", ["", ","])
def test_no_model_is_a_mistake(model):
    assert CliRunner().invoke(app, ["bench", model]).exception.code == "FM-BENCH-MODEL"


def test_a_folder_with_the_name_of_a_model_is_not_read_instead_of_it(tmp_path, monkeypatch):
    """As `--out lama` makes one."""
    monkeypatch.chdir(tmp_path)
    write_report(report(result()), tmp_path / "lama" / "profile_stats.json")
    done = CliRunner().invoke(app, ["bench", "lama", "--precisions", "fp33"])
    assert done.exception.code == "FM-BENCH-PRECISION"
    assert CliRunner().invoke(app, ["bench", "./lama", "--quiet"]).exit_code == 0


def test_a_base_of_another_machine_is_noted():
    here, there = (replace(report(result()), environment={"gpu": gpu, "threads": 2}) for gpu in (None, "L4"))
    assert other_machine(here, here) == "" and "L4" in other_machine(there, here)


def test_a_cell_that_the_base_measured_and_that_fails_now_is_a_failure():
    full = result(batch=8, outcome="oom", why="full", latency_ms=None)
    (finding,) = lost(report(result(), result(batch=8)), report(result(), full))
    assert finding.failed and "batch 8" in finding.sentence
    assert lost(report(result(), full), report(result(), full)) == lost(report(result(batch=8)), report(result())) == []


def test_cells_before_a_model_that_cannot_be_built_are_kept(tmp_path):
    models = "tests.bench.models:plain,tests.bench.models:raises_two_lines"
    words = f"bench {models} --device cpu -n 1 --warmup 0 --warmup-s 0 --quiet"
    done = CliRunner().invoke(app, [*words.split(), "--out", str(tmp_path)])
    assert done.exception.code == "FM-BENCH-BUILD"
    figures = json.loads((tmp_path / "profile_stats.json").read_text())
    assert [cell["outcome"] for cell in figures["cells"]] == ["ok"]


def test_a_bench_that_measured_nothing_is_no_success(tmp_path):
    words = "bench tests.bench.models:plain --device cpu --size 5 -n 1 --warmup 0 --warmup-s 0 --quiet"
    done = CliRunner().invoke(app, [*words.split(), "--out", str(tmp_path)])
    assert done.exception.code == "FM-BENCH-NOTHING-MEASURED"
    assert json.loads((tmp_path / "profile_stats.json").read_text())["cells"][0]["outcome"] == "error"


def test_only_steps_that_can_be_measured_are_listed():
    done = CliRunner().invoke(app, ["bench", "--list"])
    assert "faces" in done.output and "identities" not in done.output


def test_memory_that_is_reserved_has_a_chart_of_its_own():
    points = tuple(MemoryPoint(ms=n, allocated=n * 10**6, reserved=8 * 10**6) for n in range(3))
    assert [chart.curves["batch 1, fp32"].most for chart in memory_charts([result()])] == [3.0]
    tensors, reserved = memory_charts([result(memory=memory(timeline=points))])
    assert (tensors.curves["batch 1, fp32"].most, reserved.curves["batch 1, fp32"].most) == (2.0, 8.0)


def test_a_rule_is_one_point_of_the_page_with_its_other_cells_folded():
    def finding(rule, where):
        return Finding(rule=rule, where=where, text="a text", fix="do something")

    page = render(report(result(), findings=(finding("a", "x"), finding("b", "y"), finding("a", "z"))))
    assert page.count("<b>a</b>:") == page.count("<b>b</b>:") == page.count("1 more</summary>") == 1
    assert all(f"<bdi>{where}</bdi>" in page for where in "xyz")


def test_the_table_of_times_says_too_few():
    (section,) = [table for table in sections(report(result((0.01,) * 50))) if table.id == "times"]
    row = dict(zip(section.heads, section.rows[0], strict=True))
    assert (row["calls"], row["p90"], row["p95"], row["GPU ms"]) == ("50", "10", "too few", MISSING)


def test_the_command_measures_a_model_of_the_users(tmp_path):
    words = "bench tests.bench.models:plain --device cpu --batch 1,2 -n 3 --warmup 1 --warmup-s 0 --layers --quiet"
    done = CliRunner().invoke(app, [*words.split(), "--out", str(tmp_path), "--save", str(tmp_path / "base.json")])
    assert done.exit_code == 0, done.output
    figures = json.loads((tmp_path / "profile_stats.json").read_text())
    assert [cell["cell"]["batch"] for cell in figures["cells"]] == [1, 2] and figures["models"][0]["params"] == 140
    assert figures["models"][0]["flops_per_item"] == 2 * (12 * 8 + 8 * 4)
    assert figures["models"][0]["weights_bytes"] == 4 * 140
    assert {path.name for path in tmp_path.iterdir()} == {
        "base.json", "profile_stats.json", "profile_summary.csv", "layers.csv", "index.html",
    }  # fmt: skip
