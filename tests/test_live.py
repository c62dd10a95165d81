"""The last seconds of a run: shares and rates on a made clock, what they make a run say, and how it looks."""

from __future__ import annotations

import io
import json
import re
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path
from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console

from pipeline.errors import ConfigError
from pipeline.failure import DECODE
from pipeline.sample import SET_UP, Reading, Sample
from pipeline.telemetry import progress
from pipeline.telemetry.advice import Placed, advice
from pipeline.telemetry.figures import Figures
from pipeline.telemetry.live import WINDOW_SECONDS, Live, averaged
from pipeline.telemetry.metrics import BOUNDS, BUSY, CALL, METRICS, PHASE, ROWS, WAIT, told
from pipeline.telemetry.progress import Bars, Lines
from pipeline.telemetry.scalars import Scalars, check, points

DASHBOARD = Path(__file__).parents[1] / "manifests" / "grafana" / "framemill.json"
CARD = {"use_percent": 20.0, "memory_gb": 3.0, "total_gb": 8.0, "power_w": 90.0, "temperature_c": 50.0}


def working(step, seconds, wait=0.0, *, rows=10, worker="host:1", until=100.0, packets=40, **more):
    """Packets of a process one after the other, the last of which ends at a moment."""
    each = seconds + wait
    begins = (until - each * (packets - i) + wait for i in range(packets))
    around = {"wait": wait} if wait else {}
    about = {"step": step, "worker": worker, "rows": rows, "seconds": seconds, "around": around}
    about |= {"calls": (seconds,)} | more
    return [Sample(started=begin, **about) for begin in begins]


def live(*some):
    found = Live()
    for one in sorted((one for many in some for one in many), key=lambda one: one.ended):
        found.add(one)
    return found


@given(
    seconds=st.floats(0.01, 30), wait=st.floats(0, 30), rows=st.integers(1, 500), workers=st.integers(1, 5)
)  # packets longer than the window too
def test_a_steady_run_is_told_as_it_is(seconds, wait, rows, workers):
    found = live(*(working("a", seconds, wait, rows=rows, worker=f"host:{i}") for i in range(workers))).step("a", 100.0)
    assert found.rows_per_s == pytest.approx(workers * rows / (seconds + wait), rel=0.3)
    assert found.busy == pytest.approx(seconds / (seconds + wait), abs=0.3)
    assert found.busy + found.waiting == pytest.approx(1.0)
    assert len(found.workers) == workers and found.p95_ms == pytest.approx(1000 * seconds)


def after(packets, step, seconds):
    """Another step's packets in the same process, each after one of these."""
    return [Sample(step=step, worker=one.worker, rows=one.rows, started=one.ended, seconds=seconds) for one in packets]


def test_steps_of_one_process_wait_together_and_a_first_wait_is_none():
    first = working("a", 0.4, 0.4, until=99.8)  # of which `b` has the first half
    first = [replace(one, around={"wait": 0.2}) for one in first]
    second = after(first, "b", 0.2)
    a, b = (live(first, second).step(name, 100.0) for name in "ab")
    assert (a.waiting, a.process_busy) == (b.waiting, b.process_busy) == pytest.approx((0.25, 0.75), abs=0.02)
    assert (a.busy, b.busy) == pytest.approx((0.5, 0.25), abs=0.02)
    alone = live([Sample(step="a", worker="h:1", rows=1, started=90, seconds=5, around={"wait": 60.0})])
    assert alone.step("a", 95.0).waiting == 0.0


def test_time_on_files_that_fail_is_work_and_no_packet():
    figures = Figures()
    figures.add(working("decode", 1.0, 1.0, packets=10, rows=0, calls=()))
    found = figures.live.step("decode", 100.0)
    assert found.busy == pytest.approx(0.5) and (found.rows_per_s, found.packets, found.p95_ms) == (0.0, 0, None)


def test_what_is_long_over_is_not_told():
    found = live(working("a", 1.0, until=100.0))
    assert found.step("a", 100.0 + WINDOW_SECONDS / 2).rows_per_s == pytest.approx(5, rel=0.1)
    assert found.step("a", 100.0 + 2 * WINDOW_SECONDS) is None and found.step("b", 100.0) is None


def test_cards_are_means_of_what_is_known():
    seen = [[{"use_percent": 10.0, "memory_gb": 1.0, "power_w": None}], [{"use_percent": 30.0, "memory_gb": 2.0}], []]
    assert averaged(seen) == [{"use_percent": 20.0, "memory_gb": 2.0, "power_w": None}] and averaged([]) == []
    found = live(working("a", 0.5, device="cuda", memory=(1.0, 2.0, 1.5)), working("b", 0.5, worker="host:2"))
    for at, use in ((50.0, 99.0), (95.0, 40.0), (99.0, 60.0)):
        found.read(Reading(node="host", time=at, cards=({**CARD, "use_percent": 5.0}, {**CARD, "use_percent": use})))
    assert found.step("a", 100.0).card == {**CARD, "use_percent": 50.0}
    assert found.step("a", 100.0).vram_peak_gb == 1.5 and found.step("b", 100.0).card is None
    assert set(found.cards(100.0)) == {"host:0", "host:1"} and not found.cards(200.0)


def placed(name, *, batch=8, workers=1, keeps_model=True):
    return Placed(name=name, keeps_model=keeps_model, batch_rows=batch, workers=workers)


def said(found, *steps, use=20.0):
    found.read(Reading(node="host", time=99.0, cards=({**CARD, "use_percent": use},)))
    names = (DECODE, *(step.name for step in steps))
    return advice(steps, {name: now for name in names if (now := found.step(name, 100.0))})


DECODING = {"busy": working(DECODE, 0.5, worker="host:9"), "idle": working(DECODE, 0.1, 0.4, worker="host:9")}
ON_GPU = {"device": "cuda", "phases": {"infer": 0.4}}


def test_an_idle_gpu_is_told_with_its_reason():
    hungry = live(DECODING["busy"], working("faces", 0.2, 0.3, **ON_GPU))
    told_ = said(hungry, placed("faces", workers=2))
    assert told_ == (
        "The GPU is used 20 %: faces waits 60 % of its time for input while decode's processes are busy 100 %; "
        "raise decode's workers in the profile, or lower faces's workers from 2."
    )
    small = live(DECODING["idle"], working("faces", 0.5, **ON_GPU))
    assert said(small, placed("faces")) == (
        "The GPU is used 20 % although faces's processes are busy 100 % with batches of 8; raise faces's batch in the "
        "profile."
    )
    outside = live(DECODING["idle"], working("faces", 0.5, device="cuda", phases={"preprocess": 0.4}))
    assert "one more worker on the card" in said(outside, placed("faces"))


def test_models_on_the_cpu_that_wait_are_told_and_who_they_wait_for():
    hungry = live(DECODING["busy"], working("faces", 0.1, 0.4))
    assert said(hungry, placed("faces")).startswith("A model stands idle: faces waits 80 % of its time for input while")
    slow = live(working(DECODE, 0.1, worker="h:9"), working("pose", 0.5, worker="h:8"), working("faces", 0.1, 0.4))
    assert "raise pose's workers" in said(slow, placed("pose"), placed("faces"))
    decoding = [replace(one, around={}) for one in working(DECODE, 0.1, 0.4, worker="host:9", until=99.6)]
    shared = live(decoding, after(decoding, "lighting", 0.4), working("faces", 0.1, 0.4))
    names = {name: shared.step(name, 100.0) for name in (DECODE, "lighting", "faces")}
    beside = placed("lighting", keeps_model=False)
    assert advice([beside, placed("faces")], names).endswith(
        "while lighting's processes are busy 100 %; raise decode's workers, whose processes it shares, in the profile."
    )


def test_no_more_workers_are_asked_for_where_all_cores_are_taken():
    waiting = [DECODING["busy"], working("faces", 0.2, 0.3, **ON_GPU)]
    outside = [DECODING["idle"], working("faces", 0.5, device="cuda", phases={"preprocess": 0.4})]
    for some, cost in ((waiting, "lower decode's cost"), (outside, "lower its cost")):
        found = live(*some)
        found.read(Reading(node="host", time=98.0, cards=(), cpu_percent=97.0))
        told_ = said(found, placed("faces"))
        assert f"; more workers will not help, as all cores are taken (CPU 97 %): {cost}" in told_
        assert "raise" not in told_ and "one more" not in told_
    found, step = live(*waiting), placed("faces")
    found.read(Reading(node="host", time=99.0, cards=({**CARD, "use_percent": 20.0},), cpu_percent=50.0))
    now = {name: found.step(name, 100.0) for name in (DECODE, "faces")}
    assert "raise decode's workers" in advice([step], now)
    told_ = advice([step], now, decode_full=True)
    assert "no core is left for one more worker (CPU 50 %): lower decode's cost" in told_


@pytest.mark.parametrize(
    ("some", "use"),
    [
        ((DECODING["busy"], working("faces", 0.2, 0.3, **ON_GPU)), 80.0),  # the card is at work
        ((DECODING["idle"], working("faces", 0.2, 0.3, **ON_GPU)), 20.0),  # nobody is to blame
        ((DECODING["busy"], working("faces", 0.2, 0.3, packets=3, **ON_GPU)), 20.0),  # too early
        ((DECODING["busy"], working("faces", 0.2, 0.3, packets=10, **ON_GPU)), 20.0),  # within the first seconds
        ((DECODING["busy"], working("faces", 0.4, 0.1)), 20.0),  # at work on the CPU
    ],
)
def test_nothing_is_said_without_a_reason(some, use):
    assert said(live(*some), placed("faces"), use=use) == ""


def test_no_card_is_blamed_where_none_was_seen():
    found = live(DECODING["idle"], working("faces", 0.5, **ON_GPU))
    names = {name: found.step(name, 100.0) for name in (DECODE, "faces")}
    assert advice([placed("faces")], names) == ""


@pytest.fixture
def figures(monkeypatch):
    monkeypatch.setattr(progress.time, "time", lambda: 100.0)
    found = Figures()
    found.add(DECODING["busy"])
    found.add(working("faces", 0.2, 0.3, failures=1, **ON_GPU))
    found.add([Reading(node="host", time=99.0, cards=(CARD,))])
    return found


@pytest.mark.parametrize("width", [80, 120, 200])
def test_the_terminal_shows_a_line_for_each_step(figures, width):
    console = Console(width=width, force_terminal=True, file=io.StringIO(), color_system=None)
    shown = Bars(console, [DECODE, "faces", "later"])
    shown.show(figures)
    console.print(shown._progress.get_renderable())
    lines = console.file.getvalue().splitlines()
    assert len(lines) == 3 and max(map(len, lines)) <= width and "…" not in "".join(lines)
    assert re.search(r"400 +20.0/s busy +40%? waits +60%? GPU 20%", lines[1]) and "40 errors" in lines[1]
    assert ("3.0/8 GB" in lines[1]) == (width > 100)


def test_a_log_file_gets_a_line(figures, monkeypatch):
    console = Console(file=io.StringIO(), width=80)
    shown = Lines(console, [DECODE, "faces", "later"])
    shown.show(figures)
    assert console.file.getvalue() == ""
    monkeypatch.setattr(shown, "_next", 0.0)
    shown.show(figures)
    assert console.file.getvalue() == (
        "decode 400 (20.0/s, busy 100%, waits 0%), faces 400 (20.0/s, busy 40%, waits 60%, GPU 20% 3.0/8 GB), "
        "later 0, 40 errors\n"
    )


def test_one_error_is_no_errors(monkeypatch):
    found, console = Figures(), Console(file=io.StringIO(), width=80)
    found.add([Sample(step=DECODE, worker="h:1", rows=1, failures=1, started=1.0, seconds=1.0)])
    shown = Lines(console, [DECODE])
    monkeypatch.setattr(shown, "_next", 0.0)
    shown.show(found)
    assert console.file.getvalue() == "decode 1, 1 error\n"


def test_advice_is_given_once(figures):
    step = SimpleNamespace(  # what `Placed.of` asks of a step
        name="faces",
        keeps_model=True,
        placement=SimpleNamespace(batch_rows=8, workers=1),
        stage=SimpleNamespace(scope=None),
    )
    console = Console(file=io.StringIO(), width=80)
    with progress.Advised(Lines(console, ["faces"]), SimpleNamespace(first=(step,))) as shown:
        shown.show(figures)
        shown.show(figures)
    assert console.file.getvalue().count("raise decode's workers in the profile") == 1


def test_every_second_of_a_packet_is_in_one_metric():
    around = {"wait": 1.0, "fetch": 0.5, "write": 0.25}
    packet = Sample(
        step="a", worker="host:7", rows=4, failures=1, started=1.0, seconds=3.0, phases={"infer": 2.0}, around=around,
        calls=(0.5, 1.5), retries=2, memory=(1.0, 2.0, 3.0), device="cuda",
    )  # fmt: skip
    found = [(metric.name, value, labels) for metric, value, labels in told(packet, "r")]
    by_name = {name: [value for other, value, _ in found if other == name] for name, _, _ in found}
    assert by_name[ROWS.name] == [4.0] and by_name[WAIT.name] == [1.0] and by_name[CALL.name] == [0.5, 1.5]
    phases = {labels["phase"]: value for name, value, labels in found if name == PHASE.name}
    assert phases == {"infer": 2.0, "write": 0.25, "other": 0.75} and by_name[BUSY.name] == [sum(phases.values())]
    assert by_name["framemill_vram_peak_bytes"] == [3e9] and by_name["framemill_oom_retries"] == [2.0]
    read = {metric.name: value for metric, value, _ in told(Reading(node="n", time=0.0, cards=(CARD,)), "r")}
    assert read["framemill_gpu_use_ratio"] == 0.2 and read["framemill_gpu_memory_size_bytes"] == 8e9
    assert [*told(Sample(step=f"a{SET_UP}", worker="h:1", started=0.0, seconds=9.0), "r")] == []
    assert [*told(Sample(step="a", worker="h:1", started=0.0, seconds=0.0), "r")] == []
    for metric, _, labels in [*told(packet, "r"), *told(Reading(node="n", time=0.0, cards=(CARD,)), "r")]:
        assert metric in METRICS and set(labels) == set(metric.labels)


def test_metrics_are_named_as_prometheus_asks():
    units = ("rows", "packets", "failures", "retries", "seconds", "bytes", "ratio", "watts", "celsius")
    for metric in METRICS:
        assert re.fullmatch(r"framemill_[a-z_]+", metric.name) and metric.name.endswith(units) and metric.what
    assert len({metric.name for metric in METRICS}) == len(METRICS) and list(BOUNDS) == sorted(BOUNDS)
    assert BOUNDS[0] == 0.001 and 300 < BOUNDS[-1] < 500


def test_the_dashboard_asks_for_what_is_served():
    board = json.loads(DASHBOARD.read_text())
    assert board["title"] and board["uid"] and board["schemaVersion"] >= 36 and board["time"] and board["refresh"]
    variables = {one["name"]: one for one in board["templating"]["list"]}
    assert variables["datasource"]["type"] == "datasource" and variables["datasource"]["query"] == "prometheus"
    served = {name: metric for metric in METRICS for name in metric.served}
    panels, asked = board["panels"], set()
    assert len({panel["id"] for panel in panels}) == len(panels)
    for panel in panels:
        assert panel["type"] and panel["title"] and {"h", "w", "x", "y"} == set(panel["gridPos"])
        assert panel["datasource"]["uid"] == "${datasource}" and panel["targets"]
        for target in panel["targets"]:
            assert target["refId"] and target["datasource"]["uid"] == "${datasource}"
            for name, selector in re.findall(r"(ray_\w+)(?:\{([^}]*)\})?", target["expr"]):
                assert name in served, name
                assert set(re.findall(r"(\w+)=~", selector)) <= set(served[name].labels)
                asked.add(served[name].name)
            known = {label for name in served if name in target["expr"] for label in served[name].labels}
            assert set(re.findall(r"\{\{(\w+)\}\}", target["legendFormat"])) <= known
            assert target["expr"].count("(") == target["expr"].count(")")
    for name in ("run", "step"):
        assert re.search(r"label_values\((ray_\w+)", variables[name]["query"]["query"])[1] in served
    shown = {"rows", "phase_seconds", "call_seconds", "busy_seconds", "wait_seconds", "failures", "gpu_use_ratio"}
    shown |= {"vram_reserved_bytes", "gpu_power_watts"}
    assert {f"framemill_{name}" for name in shown} <= asked


def test_scalars_are_what_the_terminal_shows(figures):
    found = dict(points(figures, [DECODE, "faces", "later"], 100.0))
    assert found["rows/faces"] == 400 and found["rows_per_s/faces"] == pytest.approx(20, rel=0.1)
    assert found["waits_percent/faces"] == pytest.approx(60) and found["call_p95_ms/faces"] == pytest.approx(200)
    assert found["gpu_use_percent/host:0"] == 20.0 and not any("later" in name for name in found)


def test_scalars_are_read_back_from_tensorboards_files(figures, tmp_path):
    reader = pytest.importorskip("tensorboard.backend.event_processing.event_accumulator")
    check(str(tmp_path / "logs"))
    with Scalars(str(tmp_path / "logs"), "0123", [DECODE, "faces"]) as shown:
        shown.show(figures)
        shown.say("Raise it.")
    events = reader.EventAccumulator(str(tmp_path / "logs" / "0123"))
    events.Reload()
    read = {name: events.Scalars(name)[0].value for name in events.Tags()["scalars"]}
    assert read == pytest.approx(dict(points(figures, [DECODE, "faces"], 100.0)))


def test_what_scalars_need_is_said_before_anything_starts(tmp_path):
    (tmp_path / "file").touch()
    for folder, told_ in (("s3://bucket/logs", "on this machine"), (str(tmp_path / "file"), "choose another")):
        if find_spec("tensorboard") is None and "://" not in folder:
            told_ = "pip install tensorboard"
        with pytest.raises(ConfigError, match=told_):
            check(folder)
