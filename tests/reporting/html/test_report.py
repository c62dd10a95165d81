"""The report shows the content of the output: the run, its outcome, its times, and every column."""

from __future__ import annotations

import re
import shlex
from functools import partial
from html import unescape

import pyarrow as pa
import pytest

from framekiln.contract.columns import field
from framekiln.contract.errors import ConfigError
from framekiln.contract.row_errors import Failure
from framekiln.output.object_store import Store
from framekiln.reporting.html import NAME, write_report
from framekiln.reporting.html.summary import command
from framekiln.reporting.table_rows import extract
from tests.support.runs.report_factory import Marked, figures, output, record, step
from tests.support.runs.report_reader import folder, page, parsed, store, text

__all__ = ["folder", "store"]


def test_the_run_comes_first(store, folder):
    content = text(page(store))
    assert content.index("All went well: 12 frames from 4 files, no error.") < content.index("Where the time went")
    for fact in (
        f"Input {folder}",
        "Profile cpu-only",
        "Started 4 March 2026, 05:06 UTC",
        "Took 2 min 13 s",
        "Files 4",
        "Frames 12",
    ):
        assert fact in content
    assert "2 cores, no GPU; A &lt;Processor&gt;" in content


class Finding(Marked):
    finds = (
        *(("things", "thing", "things"), ("jumps", "light jump", "light jumps"), ("gone", "x", "x")),
        *(("spans", "span", "spans"), ("cuts", "cut", "cuts")),
    )

    def summarize(self, rows, scale):
        return [f"{scale * len(rows):.0f} rows of {rows['width'][0]} px"]


def test_findings_come_first_and_what_to_try_after_them(folder, tmp_path):
    advice = {
        "rule": "idle",
        "step": "",
        "reason": "No step is at its limit",
        "change": "take more files",
        "others": "",
    }
    throughput = {"run": "ab12", "verdict": advice, "targets": [], "steps": {}}
    steps = {"marked": step(use=f"{__name__}:Finding")}
    store = output(folder, tmp_path / "out", steps=steps, throughput=throughput)
    store.write_table("jumps/a.parquet", pa.table({"media_id": ["photo0.png"]}))
    for name in ("spans", "cuts"):
        store.write_table(f"{name}/a.parquet", pa.table({"media_id": pa.array([], pa.string())}))
    html = page(store)
    order = [
        "12 things, 1 light jump; 12 rows of 8 px. No spans, no cuts.",
        "All went well",
        ">What to try",
        'id="found"',
        'id="time"',
    ]
    places = [html.index(words) for words in order]
    assert places == sorted(places)


def test_what_differed_from_the_profile_is_at_the_head(folder, tmp_path):
    sentences = ["To fit 2 cores: marked 1 worker instead of 4.", "b.task stands in.", "marked runs <i>uncompiled</i>."]
    limits, other, note = sentences
    changes = {"limits": limits, "stand_ins": [other], "notes": {"marked": note}}
    html = page(output(folder, tmp_path / "out", **changes))
    items = re.findall(r"<li><bdi>(.*?)</bdi></li>", html[html.index('class="notes"') : html.index("<nav")])
    assert [unescape(item) for item in items] == sentences and "<i>" not in "".join(items)
    assert 'class="notes"' not in page(output(folder, tmp_path / "plain"))


def test_numbers_of_frames_and_single_values_have_no_histogram(store):
    html = page(store)
    names = set(re.findall(r'aria-label="Histogram of ([^:]*):', html))
    assert "level" in names and not names & {"frame_index", "clip_index"}
    card = text(html[html.index("<code>frame_index</code>") :].partition("</article>")[0])
    assert card.endswith("min 0 · max 8")
    assert "always" in text(html)  # the width of all these photos


def test_figures_of_columns_are_right(store):
    content = text(page(store))
    assert "level in dB how &lt;much&gt; of it" in content
    assert "min 0 · median 5.5 · max 11" in content
    assert "odd&lt;b&gt; 8 · 100% 4 nulls of 12" in content
    assert "true 3 · 25% false 9 · 75%" in content
    assert "things Number of items in each list. a list tallest bar: 4 rows 0 1 2 min 0 · median 1 · max 2" in content


def test_work_of_each_step_is_shown_without_records_too(folder, tmp_path):
    shares = {
        "decode": figures(12, 1.0),
        "wide": figures(12, 8.0, workers=8),
        "slow": figures(12, 3.0, workers=2, infer=2.4, post=0.6),
    }
    content = text(page(output(folder, tmp_path / "out", figures=shares)))
    assert "slow 12 20 – 250 ms 2 – 0 – 25%" in content


def test_tables_of_the_second_pass(store):
    schema = pa.schema(
        [
            field("media_id", pa.string(), "the file"),
            field("steps", pa.int64(), "how many"),
            field("trace", pa.list_(pa.float32(), 4), ""),
        ]
    )
    rows = [{"media_id": f"<{i}>", "steps": i * 100, "trace": [0.0] * 4} for i in range(25)]
    store.write_table("tracks/a.parquet", pa.Table.from_pylist(rows[:3], schema=schema))
    store.write_table("tracks/b.parquet", pa.Table.from_pylist(rows[3:], schema=schema))
    content = text(page(store))
    assert "Table tracks 25 rows. Its first 10 rows media_id steps trace &lt;0&gt; 0 [4] &lt;1&gt; 100 [4]" in content
    assert "&lt;9&gt; 900 [4] media_id the file" in content
    assert "min 0 · median 1,200 · max 2,400" in content


def test_a_sampled_table_has_a_note(store, monkeypatch):
    monkeypatch.setattr("framekiln.reporting.html.tables.extract", partial(extract, most_rows=5))
    assert "12 rows; the values are those of 4 of them, evenly spaced." in text(page(store))


# Errors


def test_errors_are_counted_by_reason_with_examples(folder, tmp_path):
    failures = [
        Failure(
            media_id=f"photo{i % 5}.png",
            frame_index=i,
            step="marked",
            kind="ValueError",
            message=f"<u>no {i}</u>",
            traceback="at <line> 1",
        )
        for i in range(1234)
    ]
    store = output(folder, tmp_path / "out", failures)
    content = text(page(store))
    assert "12 frames from 4 of 4 files; steps failed 1,234 times." in content
    assert "marked ValueError 1,234 the frame photo0.png frame 0 : &lt;u&gt;no 0&lt;/u&gt;" in content
    assert [name for name in range(5) if f"&lt;u&gt;no {name}&lt;/u&gt;" in content] == [0, 1, 2]
    assert "at &lt;line&gt; 1" in content


def test_steps_that_were_left_out_are_shown_with_the_command_that_fetches_weights(folder, tmp_path):
    skipped = {"faces": "arc<b>.onnx is missing", "people": "it reads 'faces' of 'faces'"}
    html = page(output(folder, tmp_path / "out", skipped=skipped, fetch="framekiln fetch arc", fetch_mb=972.6))
    parsed(html)
    content = text(html)
    first = "2 of 3 steps were left out for lack of weights: faces, people. This fetches 973 MB;"
    assert content.index(first) < content.index("All went well: 12 frames"), "it is the first that the page says"
    assert "<pre>framekiln fetch arc &amp;&amp; " in html[: html.index("All went well")]
    assert "faces : arc&lt;b&gt;.onnx is missing" in content and "<pre>framekiln fetch arc</pre>" in html
    assert "Random weights" not in content


def test_random_weights_are_named_at_the_top_in_red(store, folder, tmp_path):
    assert "Random weights" not in page(store) and "Left out" not in page(store)
    html = page(output(folder, tmp_path / "random", dummies=["faces", "masks"]))
    assert 'class="verdict bad random">Random weights in faces, masks' in html
    assert html.index("Random weights in") < html.index('class="verdict good"')  # before what was found
    assert re.search(r"\.random \{ color: var\(--bad\)", html)
    assert text(html).index("Random weights") < text(html).index("Where the time went")


def test_an_output_without_a_run_is_an_error(tmp_path):
    with pytest.raises(ConfigError) as error:
        write_report(Store(str(tmp_path)))
    assert error.value.code == "FK-NO-RUN-JSON"


# Again


def test_the_same_output_gives_the_same_page(store):
    assert page(store) == page(store)


@pytest.mark.slow
def test_a_real_run_writes_it_and_can_write_it_again(serial, framekiln, collection, tmp_path, monkeypatch):
    out = tmp_path / "out"
    stages = ("--stages", "lighting,flow,lighting_steadiness")
    assert f"Report: {out}/report.html" in framekiln("run", "--input", collection, "--output", out, *stages)
    first = (out / NAME).read_text()
    parsed(first)
    content = text(first)
    assert "All went well: 14 frames from 3 files, no error." in content
    for name in ("flower.jpg", "grace_hopper.jpg", "pan.mp4"):
        assert f'aria-label="{name}, frame' in first
    assert re.search(r'<g class="ink ink\d"><path class="edge" d="M[\d. ML]+', first)  # drawn by the stages themselves
    assert "exposure in stop" in content
    assert "Table lighting_steadiness" in content
    (out / NAME).unlink()
    monkeypatch.chdir(tmp_path)
    framekiln("report", out)
    assert (out / NAME).read_text() == first


def test_a_run_by_plain_paths_is_repeated_as_it_was_typed():
    typed = ["run", "photos", "out", "--pipeline", "mine.yaml"]
    words = shlex.split(command(record("photos", "out", arguments=typed)))
    assert words[-6:] == ["framekiln", *typed]
