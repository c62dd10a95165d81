"""The report tells what lies in the output, and nothing that a file is called or says can do more than be read."""

from __future__ import annotations

import base64
import json
import os
import re
import shlex
import subprocess
import sys
from dataclasses import dataclass
from functools import partial
from html.parser import HTMLParser
from pathlib import Path

import cv2
import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipeline.columns import field, views
from pipeline.errors import OutputError
from pipeline.failure import Failure, to_table
from pipeline.ledger import cover
from pipeline.media.config import DecodeConfig
from pipeline.media.decode import decode
from pipeline.media.listing import list_media
from pipeline.media.names import media_id
from pipeline.media.units import Unit
from pipeline.stage import Drawing, Stage
from pipeline.storage import Store
from pipeline.telemetry.report import NAME, write_report
from pipeline.telemetry.report.distributions import distributions
from pipeline.telemetry.report.rows import Extract, extract, look
from pipeline.telemetry.report.words import duration, number, on_axis, share, shorten
from samples.make import photos
from tests.collections_factory import clip, photo

VOID = {"meta", "link", "br", "img", "hr", "input"}
SELF_CLOSED = {"rect", "line", "path", "image"}
LOADS = {"src", "href", "xlink:href", "srcset", "data", "action", "poster", "background"}
ROOT = Path(__file__).resolve().parents[1]


class Marked(Stage):
    """A first-pass stage that draws: what the report must show of any stage."""

    @dataclass(frozen=True, kw_only=True)
    class Config(Stage.Config):
        word: str = "seen"
        pair: tuple[int, ...] = ()

    @property
    def inputs(self):
        return ("frame_index",)

    @property
    def outputs(self):
        return pa.schema(
            [
                field("level", pa.float32(), "how <much> of it", "dB"),
                field("kind", pa.string(), "what it is"),
                field("sharp", pa.bool_(), "whether it is"),
                field("things", pa.list_(pa.struct([("a", pa.int32()), ("b", pa.list_(pa.float32()))])), "a list"),
            ]
        )

    def __call__(self, batch):
        raise NotImplementedError

    def preview(self, row):
        if row["kind"] == "broken":
            raise ValueError("cannot be drawn")
        return Drawing(
            lines=[(0.0, 0.5, 1.0, float("nan")), (0.25, 0.5, 0.75, 0.5)],
            points=[(0.5, 0.5)],
            caption=f"<i>{self.config.word}</i>",
        )


def step(use="tests.test_report:Marked", **settings):
    placement = {"device": "cpu", "cpus": 1.0, "gpus": 0.0, "workers": 2, "batch_rows": 16, "vram_gb": 0.0}
    return {"use": use, "version": 1, "settings": settings, "placement": placement, "fingerprint": "f", "weights": []}


def figures(rows, busy, workers=1, **phases):
    return {
        "rows": rows,
        "errors": 0,
        "workers": workers,
        "rows_per_s": 20.0,
        "busy_s": busy,
        "set_up_s": 0.0,
        "ms_per_row": 1000 * busy / rows if rows else None,
        "phases_s": phases,
    }


def record(folder, out, **changes):
    found = {
        "started": "2026-03-04T05:06:07+00:00",
        "seconds": 133.2,
        "input": str(folder),
        "output": str(out),
        "arguments": ["--input", str(folder), "--output", str(out), "--set", "marked.word=a b"],
        "profile_name": "cpu-only",
        "profile": {},
        "decode": {"every_nth": 1, "max_pixels": 10**8},
        "steps": {"marked": step(word="here", pair=[1, 2])},
        "files": 3,
        "frames": 0,
        "errors": {},
        "figures": {"decode": figures(12, 1.0), "marked": figures(12, 6.0, 4, infer=4.5)},
        "machines": [{"name": "this machine", "cpus": 2.0, "gpus": 0.0}],
        "python": "3.11.7",
        "system": "Linux",
        "processor": "A <Processor>",
        "versions": {"framemill": "0.1.0", "pillow": None},
    }
    return found | changes


def values(start, stop):
    """Columns of `Marked` with known figures: level 0, 1, 2, ...; every third kind null; lists of 0, 1, 2 things."""
    thing = {"a": 1, "b": [0.5] * 9}
    return pa.Table.from_pylist(
        [
            {"level": i, "kind": None if i % 3 == 2 else "odd<b>", "sharp": i % 4 == 0, "things": [thing] * (i % 3)}
            for i in range(start, stop)
        ],
        schema=Marked().outputs,
    )


def output(folder, out, failures=(), **changes):
    """An output as a run over the folder would leave it, but for the stage's values."""
    store = Store(str(out))
    listing, start = list_media(str(folder)), 0
    for unit in cover(store, listing, listing, slots=1):
        packets = list(decode(unit, [], 0, DecodeConfig()))
        rows = pa.concat_tables([packet.rows for packet in packets]).drop_columns("halo")
        lost = [failure for packet in packets for failure in packet.failures]
        if lost:
            store.write_table(f"errors/{unit.name}-x.parquet", to_table(lost))
        made = values(start, start := start + rows.num_rows)
        columns = [*rows.columns, *made.columns]
        store.write_table(
            f"frames/{unit.name}-x.parquet", pa.table(columns, schema=pa.schema([*rows.schema, *made.schema]))
        )
    if failures:
        store.write_table("errors/marked-x.parquet", to_table(failures))
    store.write("run.json", json.dumps(record(folder, out, files=len(listing), **changes)).encode())
    return store


def page(store):
    write_report(store)
    return store.read(NAME).decode()


def text(html):
    """What a reader sees: no tags, no styles, single spaces."""
    words = re.sub(r"<style>.*?</style>|<title>.*?</title>", " ", html, flags=re.S)
    return " ".join(re.sub(r"<[^>]*>", " ", words).split())


class Tags(HTMLParser):
    """Collects what a browser would make of the page; keeps account of open tags."""

    def __init__(self):
        super().__init__()
        self.open, self.names, self.attributes, self.policy = [], set(), [], ""

    def handle_starttag(self, tag, attrs):
        self.names.add(tag)
        self.attributes += attrs
        if tag not in VOID:
            self.open.append(tag)
        if ("http-equiv", "Content-Security-Policy") in attrs:
            self.policy = dict(attrs)["content"]

    def handle_startendtag(self, tag, attrs):
        assert tag in SELF_CLOSED
        self.names.add(tag)
        self.attributes += attrs

    def handle_endtag(self, tag):
        assert self.open.pop() == tag


def parsed(html):
    tags = Tags()
    tags.feed(html)
    tags.close()
    assert tags.open == []
    return tags


@pytest.fixture
def folder(tmp_path):
    for i in range(3):
        photo(tmp_path / "in" / f"photo{i}.png", i)
    clip(tmp_path / "in" / "clip.png", 100, 9)
    return tmp_path / "in"


@pytest.fixture
def store(folder, tmp_path):
    return output(folder, tmp_path / "out")


def test_what_was_run_is_said_first(store, folder):
    said = text(page(store))
    assert said.index("All went well: 12 frames from 4 files, no error.") < said.index("Where the time went")
    for fact in (
        f"Input {folder}",
        "Profile cpu-only",
        "Started 4 March 2026, 05:06 UTC",
        "Took 2 min 13 s",
        "Files 4",
        "Frames 12",
    ):
        assert fact in said
    assert "2 cores, no GPU; A &lt;Processor&gt;" in said


def test_the_page_is_balanced_and_asks_for_nothing(store):
    tags = parsed(page(store))
    assert tags.names.isdisjoint({"script", "link", "iframe", "object", "embed", "base", "form"})
    loads = {value for name, value in tags.attributes if name in LOADS}
    assert all(value.startswith(("#", "data:image/jpeg;base64,")) for value in loads)
    assert not any(
        re.search(r"https?:|//", value) for name, value in tags.attributes if name not in ("href", "aria-label")
    )
    assert "url(" not in page(store)
    assert "@import" not in page(store)
    assert tags.policy == "default-src 'none'; img-src data:; style-src 'unsafe-inline'"


def test_links_inside_the_page_lead_somewhere(store):
    tags = parsed(page(store))
    targets = {value for name, value in tags.attributes if name == "id"}
    assert {value[1:] for name, value in tags.attributes if name == "href" and value.startswith("#")} <= targets


def test_the_same_output_gives_the_same_page(store):
    assert page(store) == page(store)


def test_thumbnails_show_the_right_frames(store, folder):
    html = page(store)
    pictures = re.findall(r'aria-label="([^"]+), frame (\d+)"><image href="data:image/jpeg;base64,([^"]+)"', html)
    shown = {name for name, _, _ in pictures}
    assert shown == {"clip.png", "photo0.png", "photo1.png", "photo2.png"}
    assert sum(name == "clip.png" for name, _, _ in pictures) == 4
    truth = clip_frames(folder)
    for name, index, data in pictures:
        if name == "clip.png":
            small = cv2.imdecode(np.frombuffer(base64.b64decode(data), np.uint8), cv2.IMREAD_COLOR)[..., ::-1]
            apart = {number: np.abs(small.astype(int) - image).mean() for number, image in truth.items()}
            assert min(apart, key=apart.get) == int(index)


def clip_frames(folder):
    """The clip's pictures by their number."""
    (media,) = [item for item in list_media(str(folder)) if item.media_id == "clip.png"]
    packets = decode(Unit(name="one", media=(media,)), ["frame"], 0, DecodeConfig())
    rows = pa.concat_tables([packet.rows for packet in packets])
    return dict(zip(rows["frame_index"].to_pylist(), views(rows["frame"]), strict=True))


def test_drawings_come_from_the_stage(store):
    html = page(store)
    assert '<path d="M2 4L6 4' in html  # 0.25 to 0.75 of 8 px; the line with a NaN is left out
    assert "nan" not in "".join(re.findall(r'd="([^"]*)"', html))
    assert "&lt;i&gt;here&lt;/i&gt;" in html


def test_a_stage_that_cannot_draw_costs_nothing(folder, tmp_path, monkeypatch):
    store = output(folder, tmp_path / "out")
    monkeypatch.setattr(Marked, "preview", lambda self, row: 1 / 0)
    said = text(page(store))
    assert "marked level 1 dB, kind odd&lt;b&gt;" in said  # its first values instead


def test_without_the_code_of_a_step_there_is_still_a_report(folder, tmp_path):
    store = output(folder, tmp_path / "out", steps={"marked": step("nowhere.at.all:Gone")})
    html = page(store)
    assert "The code of marked is not at hand in that version" in text(html)
    assert "other columns" in html
    assert "min 0 · median 5.5 · max 11" in text(html)
    assert 'class="ink ' not in html


def test_media_that_were_moved_are_not_shown(store, folder):
    folder.rename(folder.parent / "elsewhere")
    html = page(store)
    assert "7 of 7 chosen frames are not shown: their files were moved or changed" in text(html)
    assert "data:image" not in html
    assert "min 0 · median 5.5 · max 11" in text(html)


def test_a_file_that_changed_is_not_shown_under_the_old_values(store, folder):
    photo(folder / "photo1.png", 77)
    os.utime(folder / "photo1.png", ns=(1, 1))
    html = page(store)
    assert "1 of 7 chosen frames are not shown" in text(html)
    assert 'aria-label="photo1.png' not in html


def test_figures_of_columns_are_right(store):
    said = text(page(store))
    assert "level in dB how &lt;much&gt; of it" in said
    assert "min 0 · median 5.5 · max 11" in said
    assert "odd&lt;b&gt; 8 · 100% 4 nulls of 12" in said
    assert "true 3 · 25% false 9 · 75%" in said
    assert "things Number of items in each list. a list tallest bar: 4 rows 0 1 2 min 0 · median 1 · max 2" in said


def test_the_bottleneck_is_the_step_that_keeps_each_worker_longest(folder, tmp_path):
    shares = {
        "decode": figures(12, 1.0),
        "wide": figures(12, 8.0, workers=8),
        "slow": figures(12, 3.0, workers=2, infer=2.4, post=0.6),
    }
    said = text(page(output(folder, tmp_path / "out", figures=shares)))
    assert "The bottleneck is slow: each of its 2 workers was busy for 1.5 s" in said
    assert "slow bottleneck 12 20 250 ms 2 – 0 25% infer 80%, post 20%" in said


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
    said = text(page(store))
    assert "12 frames from 4 of 4 files; steps failed 1,234 times." in said
    assert "marked ValueError 1,234 photo0.png frame 0 : &lt;u&gt;no 0&lt;/u&gt;" in said
    assert [name for name in range(5) if f"&lt;u&gt;no {name}&lt;/u&gt;" in said] == [0, 1, 2]
    assert "at &lt;line&gt; 1" in said


def test_when_no_file_could_be_read_there_is_still_a_page(tmp_path):
    (tmp_path / "in").mkdir()
    for name in ("a.jpg", "b.jpg"):
        (tmp_path / "in" / name).write_bytes(b"no picture")
    nothing = {"decode": figures(0, 0.0), "marked": figures(0, 0.0)}
    html = page(output(tmp_path / "in", tmp_path / "out", figures=nothing))
    said = text(html)
    parsed(html)
    assert "No frame came out of 2 files; the errors say why." in said
    assert "There is no frame to show." in said
    assert "decode unsupported 2 a.jpg" in said


HOSTILE = [
    "<script>alert(1)</script>.jpg",
    '" onload="alert(2)" x=".jpg',
    "' onclick='alert(3).jpg",
    "{{7*7}}{% include 'x' %}.jpg",
    "]]>--><b>bold<!--.jpg",
    "&lt;b&gt;.jpg",
    "</svg></figure></style><img src=x onerror=alert(4)>.jpg",
]


def test_hostile_names_are_only_read(tmp_path):
    source = photos()["flower.jpg"].read_bytes()
    for name in HOSTILE:
        path = tmp_path / "in" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(source)
        path.with_suffix(".broken").write_bytes(source[:200])
    failures = [Failure(media_id=name, step=name, kind=name, message=name, traceback=name) for name in HOSTILE]
    extra = {
        "arguments": ["--input", *HOSTILE],
        "processor": HOSTILE[0],
        "profile_name": HOSTILE[1],
        "system": HOSTILE[4],
    }
    bad = HOSTILE[6]
    store = output(
        tmp_path / "in",
        tmp_path / f"out {HOSTILE[1]}",
        failures,
        steps={"marked": step(word=bad), bad: step(bad)},
        **extra,
    )
    html = page(store)
    tags = parsed(html)
    assert tags.names.isdisjoint({"script", "b>bold", "img"})
    assert [name for name, _ in tags.attributes if name.startswith("on")] == []
    seen = {value.rpartition(", frame ")[0] for name, value in tags.attributes if name == "aria-label"}
    assert set(map(media_id, HOSTILE)) <= seen
    assert "{{7*7}}" in html
    assert "alert(4)" in html


def test_keys_of_a_bucket_are_not_shown(folder, tmp_path):
    secret = "s3://AKIAKEY:verysecret@bucket/photos"  # an address with credentials, as pyarrow takes it
    html = page(output(folder, tmp_path / "out", input=secret, arguments=["--input", secret]))
    assert "verysecret" not in html
    assert "s3://bucket/photos" in html


def test_the_one_liners_run(folder, tmp_path):
    store = output(folder, tmp_path / "it's out & <about>")
    lines = re.findall(r"<pre>(import .*?)</pre>", page(store))
    assert len(lines) == 3
    for line in lines:
        plain = (
            line.replace("&lt;", "<")
            .replace("&gt;", ">")
            .replace("&#39;", "'")
            .replace("&#34;", '"')
            .replace("&amp;", "&")
        )
        done = subprocess.run([sys.executable, "-c", plain], capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
        assert "photo" in done.stdout or "frame_index" in done.stdout


def test_the_command_can_be_pasted(store, folder, tmp_path):
    line = re.search(r"<pre>(framemill .*?)</pre>", page(store))[1].replace("&#39;", "'")
    words = ["--input", str(folder), "--output", str(tmp_path / "out"), "--set", "marked.word=a b"]
    assert shlex.split(line) == ["framemill", "run", *words]


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
    said = text(page(store))
    assert "Table tracks 25 rows. Its first 10 rows media_id steps trace &lt;0&gt; 0 [4] &lt;1&gt; 100 [4]" in said
    assert "&lt;9&gt; 900 [4] media_id the file" in said
    assert "min 0 · median 1,200 · max 2,400" in said


def test_an_output_without_a_run_is_a_mistake(tmp_path):
    with pytest.raises(OutputError, match="no run has finished there"):
        write_report(Store(str(tmp_path)))


def test_large_tables_are_sampled_evenly(tmp_path):
    store = Store(str(tmp_path))
    for part in range(10):
        rows = pa.table({"x": pa.array(range(part * 1000, part * 1000 + 1000), pa.int32()), "name": ["y" * 500] * 1000})
        store.write_table(f"frames/{part}.parquet", rows)
    folder = look(store, "frames")
    assert folder.rows == 10_000
    part = extract(store, folder, most_rows=100)
    assert part.taken == 100
    assert not part.whole
    assert part.columns["x"].to_pylist() == list(range(0, 10_000, 100))
    few = extract(store, folder, most_rows=10**6, most_files=5)
    assert few.taken == 5000
    assert few.columns["x"][0].as_py() // 1000 == 1
    assert extract(store, folder).whole
    assert max(len(name) for name in part.columns["name"].to_pylist()) == 120


def test_a_sampled_table_says_so(store, monkeypatch):
    monkeypatch.setattr("pipeline.telemetry.report.tables.extract", partial(extract, most_rows=5))
    assert "12 rows; the values are those of 4 of them, evenly spaced." in text(page(store))


def described(values, kind):
    """The distribution of one column."""
    table = pa.table({"x": pa.array(values, kind)})
    part = Extract(schema=table.schema, columns={"x": table["x"]}, taken=table.num_rows, whole=True)
    return distributions(part)[0]


@given(st.lists(st.one_of(st.none(), st.floats(width=64)), max_size=400), st.sampled_from([pa.float32(), pa.float64()]))
def test_every_number_is_in_one_bar(values, kind):
    with np.errstate(over="ignore"):
        array = pa.array(
            [None if v is None else float(np.float32(v)) if kind == pa.float32() else v for v in values], kind
        )
    about = described(array.to_pylist(), kind)
    finite = [v for v in array.to_pylist() if v is not None and np.isfinite(v)]
    assert about.nulls == array.null_count
    if about.histogram:
        bars = about.histogram
        assert sum(bar.rows for bar in bars.bars) + bars.below + bars.above == len(finite)
        assert bars.low <= bars.high
    else:
        assert not finite or max(finite) - min(finite) >= 1e300


@given(st.lists(st.integers(-(2**53), 2**53), min_size=1, max_size=300))
def test_every_whole_number_is_in_one_bar(values):
    bars = described(values, pa.int64()).histogram
    assert sum(bar.rows for bar in bars.bars) + bars.below + bars.above == len(values)
    if max(values) - min(values) < 24:
        assert {bar.label: bar.rows for bar in bars.bars if bar.rows} == {
            number(float(v)): values.count(v) for v in set(values)
        }


def test_a_long_tail_does_not_squeeze_the_rest():
    about = described([*(i / 1000 for i in range(1000)), 1e6], pa.float64())
    assert about.histogram.high < 2
    assert about.histogram.above >= 1
    assert about.facts["max"] == "1,000,000"
    assert any("beyond the axis" in note for note in about.notes)


@pytest.mark.parametrize(
    ("said", "wanted"),
    [
        (number(12345), "12,345"),
        (number(0.0032), "0.0032"),
        (number(3.14159), "3.14"),
        (number(1234.5), "1,234"),
        (number(2e-7), "2e-07"),
        (number(float("nan")), "not a number"),
        (duration(0.0032), "3.2 ms"),
        (duration(0.0000041), "4.1 µs"),
        (duration(14.23), "14.2 s"),
        (duration(133), "2 min 13 s"),
        (duration(59.99), "1 min 0 s"),
        (duration(11100), "3 h 5 min"),
        (share(1, 1000), "<1%"),
        (share(999, 1000), ">99%"),
        (share(1, 4), "25%"),
        (on_axis(4e-17, 0.007), "0"),
        (on_axis(-0.001, 100), "0"),
        (on_axis(0.0034567, 0.007), "0.00346"),
        (shorten("abcdefghij", 5), "ab…ij"),
    ],
)
def test_numbers_are_written_for_people(said, wanted):
    assert said == wanted


@pytest.mark.slow
def test_a_real_run_writes_it_and_can_write_it_again(collection, tmp_path):
    out = tmp_path / "out"
    words = [sys.executable, str(ROOT / "pipeline" / "run.py")]
    run = [*words, "--input", str(collection), "--output", str(out), "--stages", "lighting,flow,lighting_steadiness"]
    done = subprocess.run(run, cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert f"Report: {out}/report.html" in done.stdout
    first = (out / NAME).read_text()
    parsed(first)
    said = text(first)
    assert "All went well: 14 frames from 3 files, no error." in said
    for name in ("flower.jpg", "grace_hopper.jpg", "pan.mp4"):
        assert f'aria-label="{name}, frame' in first
    assert re.search(r'<g class="ink ink\d"><path class="edge" d="M[\d. ML]+', first)  # drawn by the stages themselves
    assert "exposure in stop" in said
    assert "Table lighting_steadiness" in said
    (out / NAME).unlink()
    again = subprocess.run([*words, "report", str(out)], cwd=tmp_path, capture_output=True, text=True)
    assert again.returncode == 0, again.stderr
    assert (out / NAME).read_text() == first
