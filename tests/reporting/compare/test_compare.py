"""Two runs side by side: differences of work, files and figures."""

from __future__ import annotations

import json

import pytest

from framekiln.contract.errors import ConfigError
from framekiln.output.object_store import Store
from framekiln.profiling import node_metrics
from framekiln.reporting.compare.comparison import compare
from framekiln.reporting.compare.runs import read_sides
from tests.support.media.collections_factory import clip
from tests.support.runs.compare_factory import BEGAN, calls, invoke, line, make, pair
from tests.support.runs.report_factory import figures, step

__all__ = ["make"]


def test_the_same_command_twice_is_the_same_work(make):
    compared = pair(make("a"), make("b", steps={"marked": step(word="here", pair=[1, 2])}))
    work = {work.step: work.verdict for work in compared.work}
    assert work["marked"] == "same"
    assert compared.files.sentence == "The same 2 files."
    assert compared.changes == []


def test_the_differences_of_a_step_are_named(make):
    changed = step(word="there", pair=[1, 2]) | {"fingerprint": "g"}
    compared = pair(make("a"), make("b", steps={"marked": changed, "added": step()}))
    marked, added = (next(work for work in compared.work if work.step == name) for name in ("marked", "added"))
    assert marked.verdict == "different"
    assert marked.why == ("the difference was not recorded",)
    assert added.verdict == "only in B"
    assert any("Not the same work in marked" in note for note in compared.notes)


def test_facts_show_what_has_changed_and_steps_that_are_read(make):
    before, now = make("a"), make("b", steps={"marked": step(word="here", pair=[1, 2]) | {"fingerprint": "g"}})
    facts = {"use": "x", "version": 1, "settings": {"word": "here"}, "weights": ["0a"], "reads": {"decode": "1"}}
    later = {"version": 2, "settings": {"word": "there"}, "weights": ["random net"], "reads": {"decode": "2"}}
    for root, mark, more in ((before, "f", {}), (now, "g", later)):
        Store(root).write(f"facts/marked-{mark}.json", json.dumps(facts | more).encode())
    marked = next(work for work in pair(before, now).work if work.step == "marked")
    told = ("version 1 -> 2", "setting 'word' changed here -> there", "random weights instead of real ones")
    assert marked.why == (*told, "decode rule changed")


def test_files_are_compared_by_name_and_size(make):
    before = make("a")
    (make.folder / "a.png").rename(make.folder / "c.png")
    clip(make.folder / "b.png", 1, 3)
    files = pair(before, make("b")).files
    assert (files.same, *map(tuple, files.other.values())) == (
        0,
        ("b.png",),
        ("a.png",),
        ("c.png",),
    )
    assert files.sentence == "0 files are the same in both, 1 has changed, 1 is only in A, 1 is only in B."


def test_runs_of_different_pipelines_share_what_they_share(make):
    compared = pair(make("a"), make("b", steps={"other": step()}, figures={"decode": figures(12, 1.0)}))
    assert {work.step: work.verdict for work in compared.work}["other"] == "only in B"
    assert any("no step in common" in note for note in compared.notes)
    assert set(compared.figures) == {"run", "decode"}


def test_three_sides_are_each_compared_with_the_first(make):
    done = invoke(make("a"), make("b"), make("c"))
    assert done.exit_code == 0
    assert "B beside A" in done.output and "C beside A" in done.output


# Figures


def test_figures_ratios_and_what_changed_around_them(make):
    place = step(word="here", pair=[1, 2])
    place["placement"] = place["placement"] | {"workers": 4, "device": "cuda"}
    fields = {"decode": figures(12, 1.0), "marked": figures(12, 3.0, 4, infer=1.5) | {"rows_per_s": 40.0}}
    compared = pair(
        make("a", waves=[["marked", "flow"]], choices={"vram_cap": None}, decode_workers={"workers": 2, "cpus": 1.0}),
        make(
            "b",
            figures=fields,
            steps={"marked": place},
            processor="Other",
            versions={"framekiln": "0.1.0", "pillow": "12"},
            waves=[["marked"], ["flow"]],
            choices={"vram_cap": 8.0},
            decode_workers={"workers": 1, "cpus": 1.0},
        ),
    )
    assert (line(compared, "marked", "rate").first, line(compared, "marked", "rate").second) == (20.0, 40.0)
    assert line(compared, "marked", "ms_row").change == pytest.approx(-0.5)
    assert line(compared, "marked", "phase infer").change == pytest.approx(-2 / 3)
    assert line(compared, "marked", "rate").difference == "not known"  # one run each, and no records of calls
    assert line(compared, "marked", "vram").first is None
    changed = {(change.where, change.what): (change.first, change.second) for change in compared.changes}
    assert changed == {
        ("decode", "workers, as planned"): ("2", "1"),
        ("marked", "workers, as planned"): ("2", "4"),
        ("marked", "device"): ("cpu", "cuda"),
        ("profile", "waves"): ("marked, flow", "marked | flow"),
        ("profile", "VRAM cap, GB"): ("–", "8.0"),
        ("machine", "processor"): ("A <Processor>", "Other"),
        ("version", "pillow"): ("–", "12"),
    }


def test_costs_are_of_1000_images(make):
    sides = read_sides([make("a"), make("b")])
    compared = compare(sides, {"A": 1.2}, drift_rows=0).pairs[0]
    cost = line(compared, "run", "cost")
    assert cost.first == pytest.approx(1000 * 1.2 * 133.2 / 3600 / 12) and cost.second is None
    assert line(compared, "run", "energy").first is None
    assert any("--price B=..." in note for note in compared.notes)
    both = compare(sides, {"A": 1.2, "B": 0.4}, drift_rows=0).pairs[0]
    assert not any("--price" in note for note in (*both.notes, *pair(make("c"), make("d")).notes))
    done = invoke(make("e"), make("f"), "--price", "A=1.2")
    assert "cost, per 1,000 images" in done.output and "energy" not in done.output  # which no side has


def test_what_differs_is_printed_and_the_rest_is_asked_for(make):
    slow = {"decode": figures(12, 1.0), "marked": figures(12, 3.0, infer=1.5) | {"rows_per_s": 40.0}}
    a, b = make("a"), make("b", figures=slow)
    brief, full = (" ".join(invoke(a, b, *words).output.split()) for words in ((), ("--all",)))
    assert "marked 20 40 +100 % ?" in brief and "marked 20 40 +100 % ?" in full
    assert "phase infer" in full and "phase infer" not in brief and "not measured" not in brief + full
    assert brief.index("Equal results") < brief.index("Speed") < brief.index("seconds, s")


@pytest.mark.parametrize(
    ("word", "value"),
    [*((word, word) for word in ("A", "A=", "A=x")), ("A=-1", -1.0), ("A=inf", float("inf")), ("C=1", "C")],
)
def test_a_price_is_a_side_and_a_number(make, word, value):
    done = invoke(make("a"), make("b"), "--price", word)
    assert isinstance(done.exception, ConfigError) and repr(value) in str(done.exception)


def test_quantiles_come_from_records_of_this_run_and_a_torn_stream_is_read(make):
    old = [record | {"run": "00", "started": record["started"] - 1e5, "seconds": 99.0} for record in calls(40)]
    a, b = make("a", [*calls(400), *old]), make("b", run="b1")
    lines = [json.dumps(record | {"run": "b1"}) for record in calls(400, ms=30.0, seed=1)]
    Store(b).write("profile/calls-b1-h-1.jsonl", "\n".join([*lines, '{"run": "b1", "ki']).encode())
    compared = pair(a, b)
    assert line(compared, "marked", "p50").first == pytest.approx(20, rel=0.05)
    assert line(compared, "marked", "p50").second == pytest.approx(30, rel=0.05)
    assert line(compared, "marked", "p50").difference.startswith("+")
    assert line(compared, "marked", "p99").interval is None  # of 400 calls, 4 lie beyond it
    assert line(compared, "decode", "rate").difference == "not known"


def test_an_interval_holds_the_truth_and_equal_runs_differ_by_nothing(make):
    compared = pair(make("a", calls(400, 20.0)), make("b", calls(400, 24.0, seed=1)))
    ms = line(compared, "marked", "p50")
    assert ms.interval.low < 0.2 < ms.interval.high and not ms.interval.contains_zero
    assert line(pair(make("c", calls(400)), make("d", calls(400, seed=2))), "marked", "p50").difference == "none"


def test_repeated_runs_are_one_side(make):
    def runs(name, *rates):
        made = [
            make(f"{name}{i}", figures={"decode": figures(12, 1.0), "marked": figures(12, 6.0) | {"rows_per_s": rate}})
            for i, rate in enumerate(rates)
        ]
        return ",".join(made)

    base = runs("a", 20.0, 21.0, 19.5)
    near, far = pair(base, runs("b", 20.5, 19.0, 20.0)), pair(base, runs("c", 30.0, 31.0, 29.0))
    assert line(near, "marked", "rate").difference == "none"
    assert line(far, "marked", "rate").difference.startswith("+4")
    single = pair(base, runs("d", 30.0))  # the spread of the others stands for its own
    assert line(single, "marked", "rate").difference.startswith("+4")
    assert line(far, "marked", "rows").interval is None  # chance does not move a count


def test_energy_is_the_gpus_power_over_time_without_gaps(make):
    def sample(node, at, watts, run="a1"):
        return {"run": run, "node": node, "time": BEGAN + at, "gpus": [{"power_w": watt} for watt in watts]}

    root, idle = make("a", calls(20)), make("b", calls(20))
    # two GPUs of 150 W for 49.5 s, and one of another node for a second before a gap
    samples = [sample("x", i / 2, [150.0, 150.0]) for i in range(100)]
    samples += [sample("y", at, [360.0]) for at in (0, 1, 60)]
    Store(root).write_table("profile/nodes-a1.parquet", node_metrics.to_table(samples))
    Store(root).write_table(
        "profile/nodes-02.parquet", node_metrics.to_table([sample("y", at, [9.0], "02") for at in (0, 1)])
    )
    lines = b"".join(node_metrics.to_line(sample("z", i, [])) for i in range(9))
    Store(idle).write("profile/nodes-a1-z-1.jsonl", lines + b'{"nod')
    compared = line(pair(root, idle), "run", "energy")
    assert compared.first == pytest.approx(1000 * (300 * 49.5 + 360) / 3600 / 12)
    assert compared.second is None
