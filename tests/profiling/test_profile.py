"""Statistics of steps agree with records of known truth, and the command and the report show them."""

from __future__ import annotations

import json
import re

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from framekiln.contract.output_names import PROFILE
from framekiln.output.lease import Lease
from framekiln.output.object_store import Store
from framekiln.profiling.record_log import gather
from framekiln.profiling.records import DEATH, PACKET, StepEvent
from framekiln.profiling.run_profile import profile_of
from framekiln.profiling.stats.progress import RunTotals
from framekiln.profiling.stats.speed import steady_rows_per_s
from framekiln.reporting.bench.history import read, steps
from framekiln.reporting.html import write_report
from framekiln.runtime.run.record import sealed
from tests.support.machine.command_line import command
from tests.support.media.collections_factory import photo
from tests.support.runs.report_factory import output
from tests.support.runs.run_records import GPU, LOOP, Made


def test_statistics_of_a_step():
    measured_steps = Made().step("decode", 9.0, seal=1.0).step("faces", 4.0, wait=6.0, device="cuda").measured()
    span = 5 * LOOP + 4.0
    faces = measured_steps["faces"]
    assert (faces.rows, faces.packets, faces.calls, len(faces.workers)) == (60, 6, 6, 1)
    assert faces.busy == faces.process_busy == pytest.approx(24 / span)
    assert faces.starved == pytest.approx(5 * 6 / span)  # the first wait is start-up
    assert faces.rows_per_s == pytest.approx(60 / span)
    assert faces.steady_rows_per_s == pytest.approx(30 / (3 * LOOP))  # from the second packet's end to the fifth's
    assert faces.call_ms == (4000, None, None) and faces.row_ms == (400, None, None)  # of too few calls
    assert faces.phases == pytest.approx({"infer": 1.0, "other": 0.0})
    assert faces.vram_peak_gb == 6.0 and faces.set_up_s == 0.5 and faces.gpu_use is None
    decode = measured_steps["decode"]
    assert decode.held == pytest.approx(5 / (5 * LOOP + 9.0)) and decode.vram_peak_gb is None
    assert decode.calls == 6 and decode.call_ms[0] == pytest.approx(9000)


def test_steps_of_one_process_share_its_waiting_but_not_their_work():
    made = Made().step("decode", 3.0, worker="h:1", wait=1.0).step("light", 5.0, worker="h:1", at=3.0)
    measured_steps = made.measured()
    assert measured_steps["light"].beside_decode and not measured_steps["decode"].beside_decode
    assert measured_steps["light"].busy == pytest.approx(30 / 55)
    assert measured_steps["light"].process_busy == pytest.approx((30 + 15) / 55)
    assert measured_steps["light"].starved == pytest.approx(5 / 55)


@given(st.lists(st.integers(1, 50), min_size=5, max_size=40), st.floats(0.1, 20))
@settings(deadline=None)
def test_a_steady_process_has_its_own_rate_whatever_its_packets(sizes, rate):
    assume(max(sizes) < 0.4 * sum(sizes))  # else one packet lies over all that is steady
    rows = np.array(sizes, float)
    assert steady_rows_per_s(np.cumsum(rows) / rate, rows, rows / rate) == pytest.approx(rate)
    with_start = np.concatenate([[1e-9], rows])
    slow_start = steady_rows_per_s(np.concatenate([[0.0], 1e6 + np.cumsum(rows) / rate]), with_start, with_start / rate)
    assert slow_start == pytest.approx(rate, rel=1e-3)


def test_too_few_packets_or_packets_that_end_together_have_no_steady_rows_per_s():
    assert Made().step("a", 1.0, packets=4).measured()["a"].steady_rows_per_s is None
    ends, rows = 72 + np.array([0.0, 0.002, 0.004, 0.006, 0.008]), np.full(5, 10.0)  # 3,000 rows/s by their ends
    assert steady_rows_per_s(ends, rows, np.full(5, 20.0)) is None


def test_the_final_table_and_the_profile_agree_on_files_that_fail_and_on_their_ends():
    made = Made().step("decode", 2.0, packets=6, phases={"decode": 1.5, "write": 0.5})
    about = {"kind": PACKET, "step": "decode", "unit": "u"}
    made.add("h:decode", started=55.0, seconds=15.0, durations={"decode": 15.0}, **about)  # not a media file
    made.add("h:other", started=0.0, seconds=72.0, durations={"decode": 72.0}, **about)  # only such files
    statistics = made.measured()["decode"]
    totals = RunTotals()
    for number, line in enumerate(entry for entry in made.lines if entry["kind"] == PACKET):
        names = ("step", "worker", "started", "seconds")
        totals.add([StepEvent(**{name: line[name] for name in names}, start=number, rows=line.get("rows", 0))])
    step = totals.steps["decode"]
    assert statistics.rows_per_s == pytest.approx(step.rate) == pytest.approx(60 / 72)
    assert statistics.seconds == pytest.approx(step.busy) == 6 * 2.0 + 15.0 + 72.0
    assert (statistics.rows, set(statistics.workers)) == (step.rows, step.workers)
    assert statistics.busy == pytest.approx(step.busy / (70.0 + 72.0))
    assert statistics.phases == pytest.approx({"decode": 96 / 99, "write": 3 / 99, "other": 0.0})
    assert (statistics.packets, statistics.calls) == (6, 6) and statistics.call_ms[0] == pytest.approx(2000)


def test_sums_of_records_are_those_of_events():
    """Waits for other packets are no work; decoding and writing are phases, waiting for input is none."""
    around, phases = {"decode": 1.0, "wait": 5.0}, {"infer": 2.0, "queue": 3.0}
    made, totals = Made(), RunTotals()
    for number in range(6):
        about = {"step": "faces", "started": 100.0 + 20.0 * number, "seconds": 8.0, "rows": 10}
        made.add("h:1", kind=PACKET, unit="u", durations={**around, **phases}, **about)
        totals.add([StepEvent(worker="h:1", start=number, around=around, phases=phases, **about)])
    figures = made.measured()["faces"].totals.to_dict()
    assert figures == totals.steps["faces"].to_dict()
    assert (figures["busy_s"], figures["ms_per_row"], figures["phases_s"]["decode"]) == (30.0, 500.0, 6.0)
    assert "wait" not in figures["phases_s"]


def test_the_last_seconds_and_the_whole_of_a_steady_run_agree():
    made, totals = Made(), RunTotals()
    for number in range(40):
        about = {"step": "faces", "started": 1.0 + number, "seconds": 0.75, "rows": 3}
        phases = {"infer": 0.5}
        made.add("h:1", kind=PACKET, unit="u", durations={"wait": 0.25, **phases}, **about)
        totals.add([StepEvent(worker="h:1", start=number, around={"wait": 0.25}, phases=phases, **about)])
    whole, now = made.measured()["faces"], totals.live.step("faces", 41.0)
    for name in ("rows_per_s", "busy", "process_busy", "starved"):
        assert getattr(whole, name) == pytest.approx(getattr(now, name), rel=0.06), name
    assert whole.phases == pytest.approx(now.phases)
    assert type(whole) is type(now) and set(whole.workers) == set(now.workers)


# The command and the report


def kept(store, made):
    """Write the records as the process of each step leaves them."""
    lines = b"".join(json.dumps(line | {"run": store.run}).encode() + b"\n" for line in made.lines)
    store.append(f"{PROFILE}/calls-{store.run}-h-1.jsonl", lines)


@pytest.fixture
def store(tmp_path):
    measured_steps = Store(str(tmp_path / "out")).of_run("abc123").begin()
    measured_steps.prepare()
    return measured_steps


def test_the_command_shows_a_run_that_goes_on_and_one_that_has_ended(store):
    kept(store, Made().step("decode", 9.7).step("faces", 3.0, wait=6.2, **GPU))
    shown = []
    for _ in range(2):
        shown.append(json.loads(command("profile", store.root, "--json").stdout))
        gather(store, ["abc123"])
    assert shown[0] == shown[1]
    assert shown[0]["verdict"]["step"] == "decode" and shown[0]["steps"]["faces"]["starved"] == 0.5849
    shown = command("profile", store.root, "--workers").stdout
    assert "h:faces" in shown and "faces waits 58 % of its time for input while decode is busy 97 %" in shown


def test_the_run_that_did_most_is_shown_unless_another_is_named(store, tmp_path):
    photo(tmp_path / "in" / "a.png", 1)
    output(tmp_path / "in", tmp_path / "out", run="bbb")
    kept(store, Made().step("decode", 8.0))
    kept(Store(store.root).of_run("bbb").begin(), Made().step("decode", 5.0, at=1000.0))
    kept(Store(store.root).of_run("ccc").begin(), Made().step("decode", 9.0))
    for words, run in ([], "ccc"), (["--run", "bbb"], "bbb"):
        assert json.loads(command("profile", store.root, "--json", *words).stdout)["run"] == run
        report = Store(store.root)
        write_report(report, *words[1:])
        assert f"run <code>{run}</code>" in report.read("report.html").decode()
    assert "It did the most work of 3 runs; --run bbb shows another one." in command("profile", store.root).stdout


def test_records_that_a_dead_node_took_along_are_named(store, tmp_path):
    made = Made().step("decode", 8.0)
    known = {name: one.to_dict() for name, one in made.measured().items()}
    for worker in "lost:7", "lost:8", "lost:8":
        made.add(worker, kind=DEATH, step="", started=20.0)
    kept(store, made)
    photo(tmp_path / "in" / "a.png", 1)
    output(tmp_path / "in", tmp_path / "out", run="abc123", throughput=profile_of(store, "abc123").to_dict())
    assert {name: one.to_dict() for name, one in made.measured().items()} == known
    sentence = "Last records of lost (2 processes) are missing"
    assert sentence in " ".join(command("profile", store.root).stdout.split())
    assert json.loads(command("profile", store.root, "--json").stdout)["lost"] == {"lost": 2}
    write_report(report := Store(store.root))
    assert sentence in report.read("report.html").decode() and "lost:8" not in report.read("report.html").decode()
    assert command("trace", store.root).returncode == 0


def test_what_differed_from_the_profile_follows_the_times_of_that_run_only(store):
    kept(store, Made().step("decode", 9.0))
    measured, sentence = profile_of(store, "abc123").to_dict(), "The model of faces runs uncompiled."
    for run, shown in ("abc123", True), ("another", False):
        values = {"steps": {}, "notes": {"faces": sentence}, "run": run, "throughput": measured}
        store.write("run.json", json.dumps(sealed(values)).encode())
        assert (sentence in command("profile", store.root).stdout) == shown


@pytest.mark.parametrize(
    ("words", "code"),
    [
        ((), 1),  # those of the profile
        (("--json",), 1),
        (("--target", "faces.rate>0.5, faces.p95<401"), 0),
        (("--target", "rate>0.5, p95<399"), 1),  # of every step
        (("--target", "faces.p99<5000"), 1),  # not measured
        (("--target", "gpu_use>80"), 1),
    ],
)
def test_a_target_that_a_run_does_not_meet_is_an_exit_code(store, words, code):
    kept(store, Made().step("faces", 4.0, packets=100))
    aims = ["gpu_use>80", "faces.rate>20000"]
    values = {"steps": {}, "notes": {}, "run": "abc123", "profile": {"targets": aims}}
    store.write("run.json", json.dumps(sealed(values)).encode())
    assert command("profile", store.root, *words).returncode == code


@pytest.mark.parametrize(
    "target", ["vram_percent>+5%", "faces.vram_percent<5", "faces.p95<0", "faces.speed>5", "errors<5", "fast"]
)
def test_a_target_of_another_form_is_a_mistake(store, target):
    assert "[FK-TARGET]" in refused(store.root, "--target", target)


def test_a_target_of_a_step_that_the_run_does_not_have_is_a_mistake(store):
    kept(store, Made().step("faces", 4.0))
    assert "Did you mean 'faces'? [FK-UNKNOWN-STEP]" in refused(store.root, "--target", "face.p95<5")


def test_a_history_has_a_line_for_each_run_with_what_changed(store, tmp_path):
    """A step is found again by what it computes: its placement may differ."""
    path, rates = tmp_path / "runs.jsonl", []
    for number, seconds in enumerate((4.0, 2.0)):
        run = Store(str(tmp_path / f"out{number}")).of_run("abc123").begin()
        run.prepare()
        kept(run, Made().step("faces", seconds, packets=20))
        step = {"fingerprint": "f1", "placement": {"precision": ("fp32", "bf16")[number], "batch": 8}}
        run.write("run.json", json.dumps(sealed({"steps": {"faces": step}, "notes": {}, "run": "abc123"})).encode())
        done = command("profile", run.root, "--history", str(path), "--note", f"change {number}")
        assert done.returncode == 0
        rates.append(json.loads(command("profile", run.root, "--json").stdout)["steps"]["faces"]["rows_per_s"])
    first, last = read(path)
    assert (first.note, list(first.cells), list(last.cells)) == (
        "change 0",
        ["faces, cpu, precision fp32, batch 8"],
        ["faces, cpu, precision bf16, batch 8"],
    )
    (change,) = steps([first, last])
    assert change["figures"]["rate"] == pytest.approx(rates, abs=1e-4) and change["figures"]["p50"] == (400.0, 200.0)
    assert "change 1" in done.stdout and "[FK-IDLE-OPTION]" in refused(run.root, "--note", "x")
    path.write_text("{}\n")
    assert "[FK-BENCH-HISTORY]" in refused(run.root, "--history", str(path))


def test_a_step_without_records_of_calls_has_no_percentiles(store):
    made = Made().step("decode", 9.0).step("faces", 3.0)
    made.lines = [line for line in made.lines if (line["step"], line["kind"]) != ("faces", "call")]
    kept(store, made)
    (line,) = (entry for entry in command("profile", store.root).stdout.splitlines() if re.match(r" faces +0 ", entry))
    assert re.match(r" faces +0 +– +– +infer", line), line


def refused(*words):
    """Return the one sentence that the command ends with."""
    done = command("profile", *words)
    assert done.returncode == 2 and done.stderr.count("\n") == 1
    return done.stderr


def test_reasons_for_missing_records_have_codes_of_their_own(store, tmp_path):
    assert "[FK-OUTPUT-MISSING]" in refused(str(tmp_path / "gone"))
    assert "[FK-NOT-AN-OUTPUT]" in refused(store.root)
    with Lease(store):
        assert "[FK-RUN-STARTING]" in refused(store.root)
    store.write("facts/decode-1.json", b"{}")
    assert "[FK-NO-RECORDS]" in refused(store.root)
    kept(store, Made().step("decode", 9.0))
    sentence = refused(store.root, "--run", "abd123")
    assert "[FK-UNKNOWN-RUN]" in sentence and "abd123" in sentence


def test_an_ended_run_without_rows_and_a_run_that_has_just_begun_have_different_codes(store):
    made = Made()
    made.add("h:1", kind=PACKET, step="decode", started=5000.0, seconds=1.0)
    with Lease(store) as lease:
        kept(Store(store.root).of_run(lease.run).begin(), made)
        sentence = refused(store.root)
        assert "[FK-NO-ROWS-YET]" in sentence and lease.run in sentence
    store.write("errors/decode-1.parquet", b"")
    sentence = refused(store.root)
    assert "[FK-NO-ROWS]" in sentence and lease.run in sentence and f"{store.root}/errors" in sentence
    assert "--run" not in sentence
    kept(store, Made().step("decode", 9.0))
    assert "--run abc123" in refused(store.root, "--run", lease.run)


def test_the_report_shows_the_profile(tmp_path, store):
    photo(tmp_path / "in" / "a.png", 1)
    kept(store, Made().step("decode", 9.7).step("marked", 3.0, wait=6.2))
    out = output(tmp_path / "in", store.root, throughput=profile_of(store, "abc123").to_dict())
    write_report(out)
    page = " ".join(re.sub(r"<[^>]*>", " ", out.read("report.html").decode()).split())
    assert "decode bottleneck" in page and page.count("marked waits 58 % of its time for input") == 1
    assert "97% / 0% / 0%" in page
