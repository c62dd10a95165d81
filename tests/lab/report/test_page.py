"""The bench's page: its charts, findings and tables; names are escaped, and nothing is loaded."""

from __future__ import annotations

from framekiln.lab.output.cells import Leak, MemoryPoint, SpeedUp
from framekiln.lab.output.results import BenchFinding
from framekiln.lab.sweep.batch_search import curves, knee
from framekiln.reporting.bench.history import changes, entry_of, judge
from framekiln.reporting.bench.page import memory_charts, render
from framekiln.reporting.bench.tables import sections
from tests.lab.report.results import layer, memory, read_tables, report, result
from tests.support.runs.report_reader import LOADS, Tags

HOSTILE = "<script>alert(1)</script>'\"&"


def test_the_knee_is_the_smallest_batch_near_the_best_rate():
    cells = [result((batch / rate,) * 5, batch) for batch, rate in ((1, 50.0), (4, 98.0), (8, 100.0), (2, 80.0))]
    (curve,) = curves([*cells, result(batch=16, outcome="oom")]).values()
    assert [cell.cell.batch for cell in curve] == [1, 2, 4, 8] and knee(curve).cell.batch == 4


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


def test_memory_that_is_reserved_has_a_chart_of_its_own():
    points = tuple(MemoryPoint(ms=n, allocated=n * 10**6, reserved=8 * 10**6) for n in range(3))
    assert [chart.curves["batch 1, fp32"].most for chart in memory_charts([result()])] == [3.0]
    tensors, reserved = memory_charts([result(memory=memory(timeline=points))])
    assert (tensors.curves["batch 1, fp32"].most, reserved.curves["batch 1, fp32"].most) == (2.0, 8.0)


def test_a_rule_is_one_point_of_the_page_with_its_other_cells_folded():
    def finding(rule, where):
        return BenchFinding(rule=rule, where=where, text="a text", fix="do something")

    page = render(report(result(), findings=(finding("a", "x"), finding("b", "y"), finding("a", "z"))))
    assert page.count("<b>a</b>:") == page.count("<b>b</b>:") == page.count("1 more</summary>") == 1
    assert all(f"<bdi>{where}</bdi>" in page for where in "xyz")


def test_the_table_of_times_says_too_few():
    (section,) = [table for table in sections(report(result((0.01,) * 50))) if table.id == "times"]
    row = dict(zip(section.heads, section.rows[0], strict=True))
    assert (row["calls"], row["p90"], row["p95"]) == ("50", "10", "too few")


def test_columns_without_any_value_are_left_out():
    """A CPU has no GPU times, one precision no speed-up, and five calls no p95; the numbers stay under their heads."""
    faster = SpeedUp(factor=2.0, low=1.9, high=2.1, turns=5)
    for more, expected in (({}, set()), ({"speedup": faster}, {"Speed-up"}), ({"item_j": 3.0}, {"J an item"})):
        whole = report(result((0.01,) * 5, **more), result(outcome="oom", why="memory ran out"))
        first, times = read_tables(render(whole))[:2]
        heads, values, failed = first
        assert {"p95", "Speed-up", "Drift", "J an item"} & set(heads) == expected and "GPU ms" not in times[0]
        assert dict(zip(heads, values, strict=True))["Median ms"] == "10"
        assert failed[-1] == "oom: memory ran out"


def test_a_note_of_many_cells_stands_once():
    page = render(report(*(result(batch=n, notes=("a note",)) for n in (1, 2, 4, 8))))
    assert page.count("a note") == 1 and "and 2 more" in page


def test_the_result_of_each_leak_test_is_on_the_page():
    tests = [Leak(calls=200, slope=slope, leaks=leaks, allocated=()) for slope, leaks in ((4e6, True), (0.0, False))]
    found = list(sections(report(result(), *(result(leak=leak) for leak in tests))))
    (rows,) = [section.rows for section in found if section.id == "leaks"]
    assert [row[2:] for row in rows] == [["tensors leak", "4,000,000", "200"], ["no leak of tensors", "0", "200"]]
