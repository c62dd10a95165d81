"""The report tells what lies in the output, and nothing that a file is called or says can do more than be read."""

from __future__ import annotations

import base64
import hashlib
import os
import re
import shlex
import subprocess
import sys
from functools import partial
from html.parser import HTMLParser
from pathlib import Path

import cv2
import numpy as np
import pyarrow as pa
import pytest

from pipeline.columns import field, views
from pipeline.errors import OutputError
from pipeline.failure import Failure
from pipeline.media.config import DecodeConfig
from pipeline.media.decode import decode
from pipeline.media.listing import list_media
from pipeline.media.names import media_id
from pipeline.media.units import Unit
from pipeline.storage import Store
from pipeline.telemetry.report import NAME, write_report
from pipeline.telemetry.report.rows import extract
from samples.make import photos
from tests.collections_factory import clip, photo
from tests.report_factory import Marked, figures, output, step

VOID = {"meta", "link", "br", "img", "hr", "input"}
SELF_CLOSED = {"rect", "line", "path", "image", "use"}
LOADS = {"src", "href", "xlink:href", "srcset", "data", "action", "poster", "background"}
ROOT = Path(__file__).resolve().parents[1]


def page(store):
    write_report(store)
    return store.read(NAME).decode()


def text(html):
    """What a reader sees: no tags, no styles, single spaces."""
    words = re.sub(r"<(style|title|script)>.*?</\1>", " ", html, flags=re.S)
    return " ".join(re.sub(r"<[^>]*>", " ", words).split())


class Tags(HTMLParser):
    """Collects what a browser would make of the page; keeps account of open tags."""

    def __init__(self):
        super().__init__()
        self.open, self.names, self.attributes, self.policy, self.scripts = [], set(), [], "", []

    def handle_starttag(self, tag, attrs):
        self.names.add(tag)
        self.attributes += attrs
        if tag not in VOID:
            self.open.append(tag)
        if tag == "script":
            self.scripts.append(dict(attrs))
        if ("http-equiv", "Content-Security-Policy") in attrs:
            self.policy = dict(attrs)["content"]

    def handle_startendtag(self, tag, attrs):
        assert tag in SELF_CLOSED
        self.names.add(tag)
        self.attributes += attrs

    def handle_data(self, data):
        if self.open and self.open[-1] == "script":
            self.scripts[-1]["text"] = data

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
    assert tags.names.isdisjoint({"link", "iframe", "object", "embed", "base", "form"})
    loads = {value for name, value in tags.attributes if name in LOADS}
    assert all(value.startswith(("#", "data:image/jpeg;base64,")) for value in loads)
    assert not any(
        re.search(r"https?:|//", value) for name, value in tags.attributes if name not in ("href", "aria-label")
    )
    assert "url(" not in page(store)
    assert "@import" not in page(store)
    (only,) = tags.scripts
    assert only.keys() == {"text"}
    digest = base64.b64encode(hashlib.sha256(only["text"].encode()).digest()).decode()
    policy = f"default-src 'none'; img-src data:; style-src 'unsafe-inline'; script-src 'sha256-{digest}'; "
    assert tags.policy == policy + "base-uri 'none'; form-action 'none'"


def test_links_inside_the_page_lead_somewhere(store):
    tags = parsed(page(store))
    targets = {value for name, value in tags.attributes if name == "id"}
    assert {value[1:] for name, value in tags.attributes if name == "href" and value.startswith("#")} <= targets


def test_the_same_output_gives_the_same_page(store):
    assert page(store) == page(store)


def test_thumbnails_show_the_right_frames(store, folder):
    html = page(store)
    stored = dict(re.findall(r'<image id="(p\d+)" href="data:image/jpeg;base64,([^"]+)"', html))
    shown = re.findall(r'aria-label="([^"]+), frame (\d+)"><use href="#(p\d+)"', html)
    pictures = [(name, index, stored[place]) for name, index, place in shown]
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
    assert "slow bottleneck 12 20 – 250 ms 2 – 0 – 25% infer 80%, post 20%" in said


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
    assert "marked ValueError 1,234 the frame photo0.png frame 0 : &lt;u&gt;no 0&lt;/u&gt;" in said
    assert [name for name in range(5) if f"&lt;u&gt;no {name}&lt;/u&gt;" in said] == [0, 1, 2]
    assert "at &lt;line&gt; 1" in said


def test_steps_that_were_left_out_are_shown_with_what_gets_their_weights(folder, tmp_path):
    skipped = {"faces": "arc<b>.onnx is missing", "people": "it reads 'faces' of 'faces'"}
    html = page(output(folder, tmp_path / "out", skipped=skipped, fetch="framemill fetch arc"))
    parsed(html)
    said = text(html)
    assert "faces : arc&lt;b&gt;.onnx is missing" in said and "<pre>framemill fetch arc</pre>" in html
    assert "Random weights" not in said


def test_random_weights_are_told_at_the_top_in_red(store, folder, tmp_path):
    assert "Random weights" not in page(store) and "Left out" not in page(store)
    html = page(output(folder, tmp_path / "random", dummies=["faces", "masks"]))
    assert 'class="verdict bad random">Random weights in faces, masks' in html
    assert re.search(r"\.random \{ color: var\(--bad\)", html)
    assert text(html).index("Random weights") < text(html).index("Where the time went")


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
    "\x1b[31mred\x1b]8;;http:x\x07.jpg",
    "javascript:alert(5).jpg",
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
    assert tags.names.isdisjoint({"b>bold", "img"}) and len(tags.scripts) == 1
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
    with pytest.raises(OutputError, match="no run has come to its end there"):
        write_report(Store(str(tmp_path)))


def test_a_sampled_table_says_so(store, monkeypatch):
    monkeypatch.setattr("pipeline.telemetry.report.tables.extract", partial(extract, most_rows=5))
    assert "12 rows; the values are those of 4 of them, evenly spaced." in text(page(store))


@pytest.mark.slow
def test_a_real_run_writes_it_and_can_write_it_again(framemill, collection, tmp_path, monkeypatch):
    out = tmp_path / "out"
    stages = ("--stages", "lighting,flow,lighting_steadiness")
    assert f"Report: {out}/report.html" in framemill("run", "--input", collection, "--output", out, *stages)
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
    monkeypatch.chdir(tmp_path)
    framemill("report", out)
    assert (out / NAME).read_text() == first
