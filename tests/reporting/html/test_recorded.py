"""Timeline, machines and advice of the report, against the records that they come from."""

from __future__ import annotations

import json
import re

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from framekiln.contract.errors import OutputError
from framekiln.output.object_store import Store
from framekiln.profiling import node_metrics, records
from framekiln.reporting.html import write_report
from framekiln.reporting.html.recorded.activity import (
    HELD,
    IDLE,
    KINDS,
    OTHER,
    SETTING_UP,
    SLICES,
    STARVED,
    read_activity,
)
from framekiln.reporting.html.recorded.timeline import MOST_LANES, MOST_MACHINES, machine_charts, timeline
from framekiln.reporting.kit.lines import POINTS, round_up
from tests.support.media.collections_factory import photo
from tests.support.runs.report_factory import RUN, call_records, figures, node_samples, output, recorded
from tests.support.runs.report_reader import page, parsed, text

WORKERS = {"box:1": ["decode", "lighting"], "box:2": ["faces"]}


@pytest.fixture
def store(tmp_path):
    photo(tmp_path / "in" / "a.png", 1)
    return output(tmp_path / "in", tmp_path / "out")


def kept(tmp_path, lines):
    store = Store(str(tmp_path))
    store.write_table(f"profile/calls-{RUN}.parquet", records.to_table(lines))
    return store


def seconds(worker):
    return dict(zip(KINDS, worker.seconds.sum(axis=1), strict=True))


def test_the_activity_of_a_process_adds_up_its_records(tmp_path):
    activity = read_activity(kept(tmp_path, call_records(WORKERS)), RUN)
    decoding, faces = activity.processes
    assert (decoding.name, decoding.steps, faces.steps) == ("box:1", ("decode", "lighting"), ("faces",))
    assert activity.steps == ["decode", "faces", "lighting"]
    known = seconds(faces)
    # 6 packets of 2 s: 1.2 s of infer, 0.1 s of writing, the rest other; waits of 1 s, handing on 0.5 s, set-up 2 s
    wanted = {"infer": 7.2, "write": 0.6, OTHER: 4.2, STARVED: 6.0, HELD: 3.0, SETTING_UP: 2.0}
    assert {name: known[name] for name in wanted} == pytest.approx(wanted)
    assert sum(known.values()) == pytest.approx(activity.seconds) == pytest.approx(2 + 6 * (1 + 2 + 2 + 0.5))
    assert known[IDLE] == pytest.approx(activity.seconds - 23.0)
    assert seconds(decoding)["decode"] == pytest.approx(6 * 1.8)


def test_a_wait_that_reaches_back_over_work_counts_once(tmp_path):
    about = {"run": RUN, "worker": "box:1", "step": "faces", "unit": "u", "rows": 1}
    lines = [
        about | {"kind": "packet", "started": 0.0, "seconds": 4.0},
        about | {"kind": "packet", "started": 5.0, "seconds": 5.0, "wait": 5.0},
    ]
    (worker,) = read_activity(kept(tmp_path, lines), RUN).processes
    assert (seconds(worker)[OTHER], seconds(worker)[STARVED]) == (pytest.approx(9), pytest.approx(1))


moments = st.floats(0, 1000)
lengths = st.floats(0, 500)


@settings(deadline=None, max_examples=40)
@given(
    st.lists(
        st.fixed_dictionaries(
            {
                "run": st.just(RUN),
                "worker": st.sampled_from(["a:1", "a:2", "b:1"]),
                "kind": st.sampled_from(["call", "packet", "hand-on", "set-up"]),
                "step": st.sampled_from(["decode", "x", "y"]),
                "started": moments,
                "seconds": lengths,
                **dict.fromkeys(("wait", "fetch", "decode", "infer", "write", "seal"), lengths),
            }
        ),
        min_size=1,
        max_size=20,
    )
)
def test_any_records_fill_the_time_and_no_more(tmp_path_factory, lines):
    activity = read_activity(kept(tmp_path_factory.mktemp("out"), lines), RUN)
    for worker in activity.processes:
        assert worker.seconds.shape == (len(KINDS), SLICES) and worker.seconds.min() >= -1e-9
        np.testing.assert_allclose(worker.seconds.sum(axis=0), activity.seconds / SLICES, rtol=1e-6)
    assert timeline(activity) is not None


def test_the_page_draws_lanes_and_machines_with_their_tables(store):
    recorded(store, WORKERS, gpus=1)
    html = page(store)
    parsed(html)
    content = text(html)
    assert 'aria-label="faces, box:2: working 34%, set-up 6%, waiting for input 17%, handing on 9%, idle 34%"' in html
    assert len(re.findall(r'<svg class="lane"', html)) == 2
    assert "Shares of the whole run's time" in content.replace("&#39;", "'")
    for title in ("GPU use", "GPU memory", "CPU", "Memory"):
        assert re.search(rf'aria-label="{title} in (GB|%) over time\.', html)
    assert "GPU 0: 0 to 90, mean 66.5" in html and "faces (2): 2 to 2, mean 2" in html
    assert "full: 8 GB" in content and "No GPU was sampled" not in content
    assert re.search(r'<path class="curve c0" d="M0 [\d.]+h\.5L', html)


def test_without_a_gpu_there_are_two_charts_and_a_sentence(store):
    recorded(store, WORKERS)
    html = page(store)
    assert html.count('<svg class="plot"') == 2 and "No GPU was sampled." in text(html)


def test_memory_by_process_is_torchs_where_the_driver_reports_none(tmp_path):
    lines = [line | {"device": "cuda", "vram_reserved_gb": 1.5} for line in call_records(WORKERS)]
    store = kept(tmp_path, lines)
    samples = [sample | {"gpu_processes_gb": {}} for sample in node_samples(WORKERS, 30, gpus=1)]
    store.write_table(f"profile/nodes-{RUN}.parquet", node_metrics.to_table(samples))
    charts = {chart.title: chart for chart in machine_charts(store, RUN, read_activity(store, RUN))[0]}
    peaks = {name: curve.most for name, curve in charts["GPU memory"].curves.items()}
    assert peaks["faces (2), reserved by torch"] == 1.5 and peaks["GPU 0, all programs"] == 6.0


def test_the_longest_stalls_are_listed(store):
    recorded(store, {"box:1": ["decode"], "box:2": ["faces"]}, packets=2, seconds=8.0)
    content = text(page(store))
    assert " s from 22 s: faces (box:2) ; it waited for input from decode ." in content
    assert "decode (box:1) ; it waited for files to be handed out ." in content
    assert "decode (box:1) ; it handed a packet on to faces: it packed and stored it" in content


def test_what_to_try_and_targets_stand_at_the_top(store):
    recorded(store, WORKERS, targets=["gpu_use<95", "faces.rate>0.1"])
    html = page(store)
    content = text(html).partition("Where the time went")[0]
    verdict = json.loads(store.read("run.json"))["throughput"]["verdict"]
    assert verdict["reason"] in content and verdict["change"][1:] in content.replace("&#39;", "'")
    assert re.search(r"faces.rate &gt; 0.1 [\d.]+ ✓ met", content)
    assert "gpu_use &lt; 95 – ? not measured" in content


def test_without_records_there_is_a_sentence(store):
    content = text(page(store))
    assert "There are no records of the processes, so there is no timeline." in content
    assert "What to try" not in content


def topped_up(store):
    """Write a small run, which run.json is of, after a large one."""
    recorded(store, {"box:9": ["decode", "marked"]}, packets=4, seconds=0.5, began=2_000_000.0)
    lines = call_records(WORKERS, packets=20, run="cd34")
    store.write_table("profile/calls-cd34.parquet", records.to_table(lines))
    return store


def times(html):
    return text(html).partition("Where the time went")[2].partition(" Errors None.")[0]


def test_times_are_of_the_run_that_did_most_and_name_the_others(store):
    shown = times(page(topped_up(store)))
    assert "2 runs into this output kept records" in shown and "an earlier one, which did most, run cd34" in shown
    assert f"{RUN}: 24 January 1970, 03:33 UTC, 40 frames decoded, 4 s of work" in shown
    assert "200 frames in" in shown and "box:2" in shown and "box:9" not in shown
    assert "lighting 200" in shown  # a step that the last run did not have


def test_another_run_can_be_asked_for(store):
    write_report(topped_up(store), RUN)
    shown = times(store.read("report.html").decode())
    assert "the last one, run ab12" in shown and "cd34: 12 January 1970" in shown
    assert "box:9" in shown and "box:2" not in shown
    with pytest.raises(OutputError) as error:
        write_report(store, "ffff")
    assert error.value.code == "FK-UNKNOWN-RUN"


def test_a_single_run_has_no_choice(store):
    recorded(store, WORKERS)
    assert "kept records" not in times(page(store))


def test_records_of_a_killed_run_are_read_as_far_as_they_go(store):
    lines = [json.dumps(line).encode() for line in call_records(WORKERS)]
    for worker in WORKERS:
        mine = [line for line in lines if f'"{worker}"'.encode() in line]
        store.write(f"profile/calls-{RUN}-{worker.replace(':', '-')}.jsonl", b"\n".join([*mine[:7], mine[7][:40]]))
    content = text(page(store))
    assert f"These are times of an earlier one, which did most, run {RUN}" in content and "Longest stalls" in content


def test_a_run_with_failed_files_only_has_its_own_timeline_and_no_advice(tmp_path):
    photo(tmp_path / "in" / "a.png", 1)
    idle = figures(0, 0.044) | {"errors": 5, "ms_per_row": None, "rows_per_s": 0.0}
    run = {"run": RUN, "throughput": {}}
    store = output(tmp_path / "in", tmp_path / "out", figures={"decode": idle, "marked": figures(0, 0.0)}, **run)
    lines = [line | {"rows": 0} for line in call_records({"box:1": ["decode"]})]
    store.write_table(f"profile/calls-{RUN}.parquet", records.to_table(lines))
    content = text(page(store))
    assert "What to try" not in content
    assert "Longest stalls" in content or "Timeline" in content


def test_a_run_that_only_removed_rows_shows_the_records_of_the_one_before(tmp_path):
    photo(tmp_path / "in" / "a.png", 1)
    store = output(tmp_path / "in", tmp_path / "out", figures={}, throughput={})
    store.write_table(f"profile/calls-{RUN}.parquet", records.to_table(call_records(WORKERS)))
    shown = text(page(store))
    assert f"1 run into this output kept records. These are times of an earlier one, which did most, run {RUN}" in shown
    assert "nothing to do" not in shown and "run None" not in shown


@pytest.mark.parametrize("torn", [b"", b"PAR1 torn", b"\x00" * 100])
def test_damaged_records_prevent_the_timeline_only(tmp_path, torn):
    photo(tmp_path / "in" / "a.png", 1)
    store = output(tmp_path / "in", tmp_path / "out", run=RUN)
    store.write(f"profile/calls-{RUN}.parquet", torn)
    assert "No timeline: profile/calls-" in text(page(store))


def test_processes_and_machines_are_bounded_with_a_note(store):
    crowd = {f"box{i % 7}:{i}": ["decode"] if i < 80 else [f"step{i % 9}"] for i in range(100)}
    recorded(store, crowd, packets=2)
    for i in range(7):
        samples = [line | {"node": f"box{i}"} for line in node_samples({f"box{i}:1": []}, 5)]
        store.write_table(f"profile/nodes-{RUN}.parquet", node_metrics.to_table(samples)) if i == 0 else store.append(
            f"profile/nodes-{RUN}-box{i}-1.jsonl", b"".join(map(node_metrics.to_line, samples))
        )
    html = page(store)
    content = text(html)
    assert html.count('<svg class="lane"') == MOST_LANES and "60 more processes: not drawn." in content
    assert all(f'aria-label="step{i}, box' in html for i in range(9))  # no step without a lane
    assert html.count('<svg class="plot"') == 2 * MOST_MACHINES and "3 more machines are not drawn" in content


def test_curves_keep_their_gaps_and_ends(tmp_path):
    store = kept(tmp_path, call_records(WORKERS, packets=20))
    activity = read_activity(store, RUN)
    samples = [
        sample for sample in node_samples(WORKERS, activity.seconds) if not 30 < sample["time"] - activity.began < 60
    ]
    store.write_table(f"profile/nodes-{RUN}.parquet", node_metrics.to_table(samples))
    (cpu,) = [chart for chart in machine_charts(store, RUN, activity)[0] if chart.title == "CPU"]
    (cores,) = cpu.curves.values()
    values = cores.values
    gap = slice(int(31 / activity.seconds * POINTS), int(59 / activity.seconds * POINTS))
    assert np.isnan(values[gap]).all() and np.isfinite(values[[0, -1]]).all()
    assert (cores.least, cores.most, cpu.top) == (50.0, 80.0, 100.0)


@pytest.mark.parametrize(("value", "top"), [(0, 1), (0.9, 1), (1, 1), (1.01, 2), (2.4, 2.5), (7.9, 10), (26, 50)])
def test_axes_end_at_round_numbers(value, top):
    assert round_up(value) == pytest.approx(top)
