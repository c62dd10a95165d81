"""Figures of steps are those of records whose truth is known, and the command and the report show them."""

from __future__ import annotations

import json
import re

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from pipeline.cli import main
from pipeline.lease import Lease
from pipeline.sample import Sample
from pipeline.storage import Store
from pipeline.telemetry.compare.calls import read_calls
from pipeline.telemetry.figures import Figures
from pipeline.telemetry.measures import steady_rate
from pipeline.telemetry.profiles import gathered, profile_of
from pipeline.telemetry.records import PACKET
from pipeline.telemetry.report import write_report
from pipeline.telemetry.streams import FOLDER
from tests.collections_factory import photo
from tests.report_factory import output
from tests.run_records import GPU, LOOP, Made


def test_figures_of_a_step():
    found = Made().step("decode", 9.0, seal=1.0).step("faces", 4.0, wait=6.0, device="cuda").measured()
    span = 5 * LOOP + 4.0
    faces = found["faces"]
    assert (faces.rows, faces.packets, faces.calls, len(faces.workers)) == (60, 6, 6, 1)
    assert faces.busy == faces.process_busy == pytest.approx(24 / span)
    assert faces.starved == pytest.approx(5 * 6 / span)  # the first wait is start-up
    assert faces.rows_per_s == pytest.approx(60 / span)
    assert faces.steady_rows_per_s == pytest.approx(30 / (3 * LOOP))  # from the second packet's end to the fifth's
    assert faces.call_ms == pytest.approx((4000,) * 3) and faces.row_ms == pytest.approx((400,) * 3)
    assert faces.phases == pytest.approx({"infer": 1.0, "other": 0.0})
    assert faces.vram_peak_gb == 6.0 and faces.set_up_s == 0.5 and faces.gpu_use is None
    decode = found["decode"]
    assert decode.held == pytest.approx(5 / (5 * LOOP + 9.0)) and decode.vram_peak_gb is None
    assert decode.calls == 6 and decode.call_ms == pytest.approx((9000,) * 3)


def test_steps_of_one_process_share_its_waiting_but_not_their_work():
    made = Made().step("decode", 3.0, worker="h:1", wait=1.0).step("light", 5.0, worker="h:1", at=3.0)
    found = made.measured()
    assert found["light"].beside_decode and not found["decode"].beside_decode
    assert found["light"].busy == pytest.approx(30 / 55)
    assert found["light"].process_busy == pytest.approx((30 + 15) / 55)
    assert found["light"].starved == pytest.approx(5 / 55)


@given(st.lists(st.integers(1, 50), min_size=5, max_size=40), st.floats(0.1, 20))
@settings(deadline=None)
def test_a_steady_process_has_its_own_rate_whatever_its_packets(sizes, rate):
    assume(max(sizes) < 0.6 * sum(sizes))  # else one packet lies over all that is steady
    rows = np.array(sizes, float)
    assert steady_rate(np.cumsum(rows) / rate, rows) == pytest.approx(rate)
    slow_start = steady_rate(np.concatenate([[0.0], 1e6 + np.cumsum(rows) / rate]), np.concatenate([[1e-9], rows]))
    assert slow_start == pytest.approx(rate, rel=1e-3)


def test_too_few_packets_have_no_steady_rate():
    assert Made().step("a", 1.0, packets=4).measured()["a"].steady_rows_per_s is None


def test_the_table_at_the_end_and_the_profile_say_the_same_of_files_that_fail_and_of_their_ends():
    made = Made().step("decode", 2.0, packets=6, phases={"decode": 1.5, "write": 0.5})
    about = {"kind": PACKET, "step": "decode", "unit": "u"}
    made.add("h:decode", started=55.0, seconds=15.0, durations={"decode": 15.0}, **about)  # a file that is none
    made.add("h:other", started=0.0, seconds=72.0, durations={"decode": 72.0}, **about)  # all of whose files are none
    told = made.measured()["decode"]
    figures = Figures()
    for line in (one for one in made.lines if one["kind"] == PACKET):
        names = ("step", "worker", "started", "seconds")
        figures.add([Sample(**{name: line[name] for name in names}, rows=line.get("rows", 0))])
    step = figures.steps["decode"]
    assert told.rows_per_s == pytest.approx(step.rate) == pytest.approx(60 / 72)
    assert told.seconds == pytest.approx(step.busy) == 6 * 2.0 + 15.0 + 72.0
    assert (told.rows, set(told.workers)) == (step.rows, step.workers)
    assert told.busy == pytest.approx(step.busy / (70.0 + 72.0))
    assert told.phases == pytest.approx({"decode": 96 / 99, "write": 3 / 99, "other": 0.0})
    assert (told.packets, told.calls) == (6, 6) and told.call_ms == pytest.approx((2000,) * 3)  # they were no calls


def test_a_comparison_by_records_alone_counts_the_time_of_files_that_fail(store):
    made = Made().step("decode", 2.0, packets=6)
    made.add("h:decode", kind=PACKET, step="decode", unit="u", started=55.0, seconds=15.0)
    kept(store, made)
    gathered(store, ["abc123"])
    calls, told = read_calls(store, "abc123")["decode"], made.measured()["decode"]
    assert calls.packet_rows / calls.span_s == pytest.approx(told.rows_per_s) == pytest.approx(60 / 70)
    assert calls.packet_s == told.seconds and len(calls.rows) == 6


# The command and the report


def kept(store, made):
    """The records as the process of each step left them."""
    lines = b"".join(json.dumps(line | {"run": store.run}).encode() + b"\n" for line in made.lines)
    store.append(f"{FOLDER}/calls-{store.run}-h-1.jsonl", lines)


@pytest.fixture
def store(tmp_path):
    found = Store(str(tmp_path / "out")).of_run("abc123")
    found.prepare()
    return found


def test_the_command_tells_of_a_run_that_goes_on_and_of_one_that_has_ended(store, capsys):
    kept(store, Made().step("decode", 9.7).step("faces", 3.0, wait=6.2, **GPU))
    shown = []
    for _ in range(2):
        with pytest.raises(SystemExit) as end:
            main(["profile", store.root, "--json"])
        assert end.value.code == 0
        shown.append(json.loads(capsys.readouterr().out))
        gathered(store, ["abc123"])
    assert shown[0] == shown[1]
    assert shown[0]["verdict"]["step"] == "decode" and shown[0]["steps"]["faces"]["starved"] == 0.5849
    with pytest.raises(SystemExit):
        main(["profile", store.root, "--workers"])
    said = capsys.readouterr().out
    assert "h:faces" in said and "faces waits 58 % of its time for input while decode is busy 97 %" in said


def test_the_run_that_began_last_is_told_of_unless_another_is_named(store, capsys):
    kept(store, Made().step("decode", 9.0))
    later = Made().step("decode", 9.0)
    kept(Store(store.root).of_run("bbb"), Made().step("decode", 5.0, at=1000.0))
    kept(Store(store.root).of_run("ccc"), later)
    for words, run in ([], "bbb"), (["--run", "ccc"], "ccc"):
        with pytest.raises(SystemExit):
            main(["profile", store.root, "--json", *words])
        assert json.loads(capsys.readouterr().out)["run"] == run


def test_a_step_without_records_of_calls_has_no_percentiles(store, capsys):
    made = Made().step("decode", 9.0).step("faces", 3.0)
    made.lines = [line for line in made.lines if (line["step"], line["kind"]) != ("faces", "call")]
    kept(store, made)
    with pytest.raises(SystemExit):
        main(["profile", store.root])
    (line,) = (one for one in capsys.readouterr().out.splitlines() if re.match(r" faces +0 ", one))
    assert re.match(r" faces +0 +- +- +infer", line), line


def refused(capsys, *words):
    """What the command says in its one sentence."""
    with pytest.raises(SystemExit) as end:
        main(["profile", *words])
    told = capsys.readouterr().err
    assert end.value.code == 2 and told.count("\n") == 1
    return told


def test_what_has_no_records_is_told_apart(store, capsys, tmp_path):
    assert "There is no folder" in refused(capsys, str(tmp_path / "gone"))
    assert "There is no output of Framemill in" in refused(capsys, store.root)
    with Lease(store):
        assert "has just begun" in refused(capsys, store.root)
    store.write("facts/decode-1.json", b"{}")
    assert "no records of a run in" in refused(capsys, store.root)
    kept(store, Made().step("decode", 9.0))
    assert "no records of a run 'abd123'" in refused(capsys, store.root, "--run", "abd123")


def test_a_run_that_is_over_and_made_no_row_is_told_from_one_that_has_just_begun(store, capsys):
    made = Made()
    made.add("h:1", kind=PACKET, step="decode", started=5000.0, seconds=1.0)
    with Lease(store) as lease:
        kept(Store(store.root).of_run(lease.run), made)
        assert f"through a step of run {lease.run}" in (said := refused(capsys, store.root)) and "look again" in said
    store.write("errors/decode-1.parquet", b"")
    said = refused(capsys, store.root)
    assert f"Run {lease.run} in {store.root!r} is over, and no row came out of it" in said
    assert "errors says what failed" in said and said.endswith("nor did one come out of another run.\n")
    kept(store, Made().step("decode", 9.0))
    assert refused(capsys, store.root).endswith("look at another one by --run abc123.\n")


def test_the_report_shows_what_the_records_say(tmp_path, store):
    photo(tmp_path / "in" / "a.png", 1)
    kept(store, Made().step("decode", 9.7).step("marked", 3.0, wait=6.2))
    out = output(tmp_path / "in", store.root, throughput=profile_of(store, "abc123").to_dict())
    write_report(out)
    page = " ".join(re.sub(r"<[^>]*>", " ", out.read("report.html").decode()).split())
    assert "The bottleneck is decode. marked waits 58 % of its time for input" in page
    assert "97% / 0% / 0%" in page
