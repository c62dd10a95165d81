"""The last seconds of a run: shares and rates on a simulated clock, the advice from them, and the terminal."""

from __future__ import annotations

import io
import re
from dataclasses import replace
from importlib.util import find_spec
from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console

from framekiln.contract.errors import ConfigError
from framekiln.contract.row_errors import DECODE
from framekiln.media.files import MediaFile
from framekiln.media.units import Unit
from framekiln.profiling.export.live_metrics import Scalars, points, scalars_folder
from framekiln.profiling.records import SET_UP, Reading, StepEvent
from framekiln.profiling.stats.live import WINDOW_SECONDS, averaged
from framekiln.profiling.stats.progress import RunTotals
from framekiln.reporting.terminal import progress
from framekiln.reporting.terminal.progress import ProgressBars, ProgressLines
from tests.support.runs.live_events import DECODING, GPU_SAMPLE, ON_GPU, after, live, working


@given(
    seconds=st.floats(0.01, 30), wait=st.floats(0, 30), rows=st.integers(1, 500), workers=st.integers(1, 5)
)  # packets longer than the window too
def test_a_steady_run_has_its_own_figures(seconds, wait, rows, workers):
    result = live(*(working("a", seconds, wait, rows=rows, worker=f"host:{i}") for i in range(workers))).step(
        "a", 100.0
    )
    assert result.rows_per_s == pytest.approx(workers * rows / (seconds + wait), rel=0.3)
    assert result.busy == pytest.approx(seconds / (seconds + wait), abs=0.3)
    assert result.busy + result.starved == pytest.approx(1.0)
    assert len(result.workers) == workers and result.call_ms[0] == pytest.approx(1000 * seconds)


def test_steps_of_one_process_wait_together_and_a_first_wait_is_none():
    first = working("a", 0.4, 0.4, until=99.8)  # of which `b` has the first half
    first = [replace(event, around={"wait": 0.2}) for event in first]
    second = after(first, "b", 0.2)
    a, b = (live(first, second).step(name, 100.0) for name in "ab")
    assert (a.starved, a.process_busy) == (b.starved, b.process_busy) == pytest.approx((0.25, 0.75), abs=0.02)
    assert (a.busy, b.busy) == pytest.approx((0.5, 0.25), abs=0.02)
    alone = live([StepEvent(step="a", worker="h:1", rows=1, started=90, seconds=5, around={"wait": 60.0})])
    assert alone.step("a", 95.0).starved == 0.0


def test_time_on_files_that_fail_is_work_and_no_packet():
    figures = RunTotals()
    figures.add(working("decode", 1.0, 1.0, packets=10, rows=0, calls=()))
    result = figures.live.step("decode", 100.0)
    assert result.busy == pytest.approx(0.5) and (result.rows_per_s, result.packets, result.calls) == (0.0, 0, 0)


def test_a_step_without_recent_packets_has_no_figures():
    result = live(working("a", 1.0, until=100.0))
    assert result.step("a", 100.0 + WINDOW_SECONDS / 2).rows_per_s == pytest.approx(5, rel=0.1)
    assert result.step("a", 100.0 + 2 * WINDOW_SECONDS) is None and result.step("b", 100.0) is None


def test_gpus_are_means_of_known_values():
    seen = [[{"use_percent": 10.0, "memory_gb": 1.0, "power_w": None}], [{"use_percent": 30.0, "memory_gb": 2.0}], []]
    assert averaged(seen) == [{"use_percent": 20.0, "memory_gb": 2.0, "power_w": None}] and averaged([]) == []
    result = live(working("a", 0.5, device="cuda", memory=(1.0, 2.0, 1.5)), working("b", 0.5, worker="host:2"))
    for at, use in ((50.0, 99.0), (95.0, 40.0), (99.0, 60.0)):
        result.read(
            Reading(node="host", time=at, gpus=({**GPU_SAMPLE, "use_percent": 5.0}, {**GPU_SAMPLE, "use_percent": use}))
        )
    a, b = result.step("a", 100.0), result.step("b", 100.0)
    assert result.gpu(a, 100.0) == {**GPU_SAMPLE, "use_percent": 50.0} and result.gpu(b, 100.0) is None
    assert (a.gpu_use, a.vram_peak_gb, b.gpu_use) == (0.5, 1.5, None)
    assert set(result.gpus(100.0)) == {"host:0", "host:1"} and not result.gpus(200.0)


@pytest.fixture
def figures(monkeypatch):
    monkeypatch.setattr(progress, "now", lambda: 100.0)
    result = RunTotals()
    result.add(DECODING["busy"])
    result.add(working("faces", 0.2, 0.3, failures=1, **ON_GPU))
    result.add([Reading(node="host", time=99.0, gpus=(GPU_SAMPLE,))])
    return result


@pytest.mark.parametrize("width", [80, 120, 200])
def test_the_terminal_shows_a_line_for_each_step(figures, width):
    console = Console(width=width, force_terminal=True, file=io.StringIO(), color_system=None)
    shown = ProgressBars(console, [DECODE, "faces", "later"])
    shown.show(figures)
    console.print(shown._progress.get_renderable())
    lines = console.file.getvalue().splitlines()
    assert len(lines) == 4 and max(map(len, lines)) <= width and "…" not in "".join(lines)
    assert re.search(r"400 +20.0/s busy +40%? waits +60%? GPU 20%", lines[2]) and "40 errors" in lines[2]
    assert lines[0].startswith("all files")
    assert ("3.0/8 GB" in lines[2]) == (width > 100)


def test_the_bar_of_all_files_never_falls_back():
    small, large = (MediaFile(media_id=name, path=name, size=size, mtime_ns=1) for name, size in (("a", 10), ("b", 90)))
    units = [Unit(name=media.media_id, media=(media,)) for media in (small, large)]
    totals, shown = RunTotals(units), ProgressBars(Console(file=io.StringIO(), force_terminal=True), [DECODE])
    (bar,) = [task for task in shown._progress.tasks if task.description == "all files"]
    seen = []
    for unit, start, rows, share in (("a", 0, 1, 1.0), ("b", 0, 4, 0.0), ("b", 4, 60, 0.0), ("b", 64, 60, 1.0)):
        about = {"step": DECODE, "worker": "h:1", "started": 1.0, "seconds": 1.0}
        event = StepEvent(unit=unit, start=start, rows=rows, share=share, **about)
        totals.add([event])
        shown.show(totals)
        seen.append((bar.completed, bar.fields["rows"], bar.fields["rate"]))
    assert seen == [(0.1, "1", "of 2"), (0.1, "1", "of 2"), (0.1, "1", "of 2"), (1.0, "2", "of 2")]


def test_one_error_is_no_errors():
    result, console = RunTotals(), Console(file=io.StringIO(), width=80)
    result.add([StepEvent(step=DECODE, worker="h:1", rows=1, failures=1, started=1.0, seconds=1.0)])
    shown = ProgressLines(console, [DECODE])
    shown.show(result)
    assert console.file.getvalue().endswith(", 1 error\n")


@pytest.mark.parametrize("missing", [(), ("gcc",)])
def test_advice_is_given_once_and_a_compiled_model_is_told(figures, monkeypatch, missing):
    monkeypatch.setattr(progress, "missing_build_tools", lambda: missing)
    figures.add([StepEvent(kind=SET_UP, step="faces", worker="h:1", started=1.0, seconds=70.0)])
    step = SimpleNamespace(
        name="faces",
        keeps_model=True,
        placement=SimpleNamespace(batch=8, workers=1, compile=True),
        stage=SimpleNamespace(scope=None),
    )
    console = Console(file=io.StringIO(), width=80)
    with progress.AdvisingView([ProgressLines(console, ["faces"])], [step], {}) as shown:
        shown.show(figures)
        shown.show(figures)
    assert console.file.getvalue().count("raise decode's workers") == 1
    assert console.file.getvalue().count("faces is compiled, 1:10") == (not missing)
    assert console.file.getvalue().count("torch compiles faces") == (not missing)


def test_scalars_are_what_the_terminal_shows(figures):
    result = dict(points(figures, [DECODE, "faces", "later"], 100.0))
    assert result["rows/faces"] == 400 and result["rows_per_s/faces"] == pytest.approx(20, rel=0.1)
    assert result["waits_percent/faces"] == pytest.approx(60) and result["call_p50_ms/faces"] == pytest.approx(200)
    assert result["gpu_use_percent/host:0"] == 20.0 and not any("later" in name for name in result)


def test_scalars_are_read_back_from_tensorboards_files(figures, tmp_path):
    reader = pytest.importorskip("tensorboard.backend.event_processing.event_accumulator")
    scalars_folder(str(tmp_path / "logs"))
    with Scalars(str(tmp_path / "logs"), "0123", [DECODE, "faces"]) as shown:
        shown.show(figures)
        shown.say("Raise it.")
    events = reader.EventAccumulator(str(tmp_path / "logs" / "0123"))
    events.Reload()
    read = {name: events.Scalars(name)[0].value for name in events.Tags()["scalars"]}
    assert read == pytest.approx(dict(points(figures, [DECODE, "faces"], 100.0)))


def test_what_scalars_need_is_said_before_anything_starts(tmp_path):
    (tmp_path / "file").touch()
    for folder, code in (("s3://bucket/logs", "FK-TENSORBOARD-URL"), (str(tmp_path / "file"), "FK-TENSORBOARD-FOLDER")):
        if find_spec("tensorboard") is None and "://" not in folder:
            code = "FK-TENSORBOARD-MISSING"
        with pytest.raises(ConfigError) as refused:
            scalars_folder(folder)
        assert refused.value.code == code
