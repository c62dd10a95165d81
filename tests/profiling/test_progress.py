"""The progress of a run and the time left, from made events with chosen times."""

from __future__ import annotations

import io
import re
import time

import pytest
from rich.console import Console

from framekiln.contract.row_errors import DECODE
from framekiln.media.files import MediaFile
from framekiln.media.units import Unit
from framekiln.profiling.records import StepEvent
from framekiln.profiling.stats.progress import RunTotals
from framekiln.reporting.terminal import progress
from framekiln.reporting.terminal.progress import ProgressBars, ProgressLines, progress_line

STEPS = (DECODE, "lighting", "faces")


def units(count, size=100):
    """Units of one photo each."""
    media = [MediaFile(media_id=f"{i}.jpg", path=f"/{i}.jpg", size=size, mtime_ns=1) for i in range(count)]
    return [Unit(name=one.media_id, media=(one,)) for one in media]


def passing(step, numbers, *, every, begin=0.0, rows=1, failures=0):
    """Events of a step that needs `every` seconds for each unit, one after the other from `begin` on."""
    return [
        StepEvent(
            step=step,
            worker=f"host:{step}",
            unit=f"{number}.jpg",
            rows=rows,
            failures=failures,
            started=begin + every * place,
            seconds=every,
            share=1.0 if step == DECODE else 0.0,
        )
        for place, number in enumerate(numbers)
    ]


def test_a_file_that_cannot_be_read_is_one_error_however_often_it_is_read():
    totals = RunTotals(units(2), waves=2)
    for _ in range(2):
        totals.add(passing(DECODE, range(2), every=0.1, failures=1))
    totals.begin(units(2), 1)
    totals.add(passing(DECODE, range(2), every=0.1, failures=1))
    assert (totals.steps[DECODE].failures, totals.steps[DECODE].rows) == (2, 6)


def test_the_time_left_is_that_of_the_slowest_step_and_not_of_the_first():
    totals = RunTotals(units(100))
    totals.add(passing(DECODE, range(50), every=0.1))
    totals.add(passing("lighting", range(50), every=0.1))
    assert totals.progress.slowest(STEPS, 5.0) is None, "faces may be slower than all others"
    totals.add(passing("faces", range(1), every=2.0))
    assert totals.progress.slowest(STEPS, 5.0) is None, "one packet is no pace"
    totals.add(passing("faces", range(1, 11), every=2.0, begin=2.0))
    left = totals.progress.left(STEPS, 22.0)
    assert left["faces"] == pytest.approx(2.0 * 89), "10 of them took 20 s after the first"
    assert left["lighting"] < left["faces"] and left[DECODE] < left["faces"]
    assert totals.progress.slowest(STEPS, 22.0) == ("faces", left["faces"])
    assert totals.progress.done(STEPS) == pytest.approx(0.11)
    assert totals.progress.slowest(STEPS, 42.0)[1] == pytest.approx(2 * left["faces"]), (
        "a step that stalls takes longer"
    )


def test_results_of_earlier_runs_count_as_done_and_nobody_waits_for_their_steps():
    """An earlier run has computed `lighting` of all files and `faces` of the first 80 of 100."""
    totals = RunTotals(units(100))
    totals.add(passing(DECODE, range(90), every=0.1))
    totals.add(passing("faces", range(80, 90), every=1.0, begin=9.0))
    assert totals.progress.shares(STEPS) == pytest.approx({DECODE: 0.9, "lighting": 0.9, "faces": 0.9})
    assert totals.progress.done(STEPS) == pytest.approx(0.9)
    assert totals.progress.slowest(STEPS, 19.0) == ("faces", pytest.approx(10.0))


def test_a_packet_that_is_decoded_again_counts_once():
    totals = RunTotals(units(4))
    totals.add(passing(DECODE, [0, 1, 1, 1], every=1.0))
    assert totals.progress.shares([DECODE]) == {DECODE: 0.5} and totals.progress.files([DECODE]) == (2, 4)
    assert totals.steps[DECODE].rows == 2 and totals.steps[DECODE].busy == 4.0, "its time was spent"


def test_with_several_waves_decoding_tells_the_time_of_all():
    totals = RunTotals(units(10), waves=2)
    totals.add(passing(DECODE, range(10), every=1.0))
    totals.add(passing("lighting", range(10), every=1.0))
    assert totals.progress.done(STEPS) == 0.5 and totals.progress.files(STEPS) == (5, 10)
    step, left = totals.progress.slowest(STEPS, 10.0)
    assert step in STEPS[:2] and left == pytest.approx(10.0), "the second wave at the pace of the first"
    totals.add(passing(DECODE, range(2), every=1.0, begin=10.0))
    totals.add(passing("faces", range(2), every=5.0, begin=10.0))
    assert totals.progress.slowest(STEPS, 20.0) == ("faces", pytest.approx(5.0 * 8))


def test_a_run_without_files_to_decode_is_past_them():
    assert RunTotals().progress.shares(STEPS) == dict.fromkeys(STEPS, 1.0)


@pytest.fixture
def noon():
    """Twelve o'clock of this machine, in seconds of the epoch."""
    return time.mktime((2026, 3, 4, 12, 0, 0, 0, 0, -1))


def half_way(begin):
    totals = RunTotals(units(429))
    totals.add(passing(DECODE, range(60), every=0.5, begin=begin))
    totals.add(passing("lighting", range(60), every=0.5, begin=begin))
    totals.add(passing("faces", range(51), every=2.0, begin=begin, failures=1))
    return totals


def test_a_log_line_is_short_and_has_time_percent_and_time_left(noon):
    line = progress_line(half_way(noon), STEPS, noon + 102.0)
    assert line == "12:01:42  11%  51 of 429 files, 12:36 left (faces 0.5/s), 51 errors"
    assert len(line) < 80
    totals = RunTotals(units(6))
    assert progress_line(totals, STEPS, noon) == "12:00:00   0%  0 of 6 files"
    totals.add(passing(DECODE, [0], every=1.0, begin=noon))
    totals.add(passing("lighting", [0], every=1.0, begin=noon, rows=40))
    assert progress_line(totals, STEPS, noon + 9.0) == "12:00:09   0%  0 of 6 files, 40 rows through lighting"


def test_a_log_line_of_the_second_pass_names_its_tables(noon):
    totals = RunTotals(units(2))
    for step in STEPS:
        totals.add(passing(step, range(2), every=1.0, begin=noon))
    assert progress_line(totals, STEPS, noon + 9.0) == "12:00:09 100%  2 of 2 files, tables: begun"
    totals.add(passing("shots", [0], every=1.0, begin=noon))
    assert progress_line(totals, STEPS, noon + 9.0) == "12:00:09 100%  2 of 2 files, tables: shots"


def test_log_lines_come_at_growing_intervals(monkeypatch, noon):
    console = Console(file=io.StringIO(), width=80)
    seconds = 0.0
    monkeypatch.setattr(progress.time, "monotonic", lambda: seconds)
    monkeypatch.setattr(progress, "now", lambda: noon + seconds)
    shown, totals = ProgressLines(console, STEPS), RunTotals(units(3))
    for second in range(3600):
        seconds = float(second)
        shown.show(totals)
    times = re.findall(r"^12:(\d\d):(\d\d)", console.file.getvalue(), re.M)
    said = [60 * int(minute) + int(second) for minute, second in times]
    assert said == [0, 10, 30, 70, 150, 310, *range(610, 3600, 300)]


def test_the_bars_show_the_time_left_of_each_step_and_of_the_slowest_for_all(monkeypatch, noon):
    monkeypatch.setattr(progress, "now", lambda: noon + 102.0)
    console = Console(width=120, force_terminal=True, file=io.StringIO(), color_system=None)
    shown = ProgressBars(console, STEPS)
    shown.show(half_way(noon))
    whole, decode, _, faces = shown._progress.tasks
    assert whole.fields["left"] == faces.fields["left"] == "12:36"
    assert decode.fields["left"] == "10:35", "it waits for the others, so it is no faster from now on"
    assert whole.completed == faces.completed == pytest.approx(51 / 429)
