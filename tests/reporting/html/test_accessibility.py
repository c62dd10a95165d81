"""The page for keyboards, screen readers, narrow and dark screens, and for very large and very small outputs."""

from __future__ import annotations

import re
from html.parser import HTMLParser
from importlib.resources import files
from itertools import pairwise

import numpy as np
import pyarrow as pa
import pytest

from framekiln.contract.row_errors import Failure, to_table, traced
from tests.support.media.collections_factory import photo
from tests.support.runs.report_factory import figures, output, recorded, step
from tests.support.runs.report_reader import HOSTILE, page, parsed, text

CSS = (files("framekiln.reporting") / "templates" / "page.css").read_text("utf-8")
WORKERS = {"box:1": ["decode", "marked"], "box:2": ["faces"]}


@pytest.fixture(scope="module")
def store(tmp_path_factory):
    folder = tmp_path_factory.mktemp("page")
    for i in range(3):
        photo(folder / "in" / f"{i}.png", i)
    failures = [Failure(media_id="1.png", frame_index=0, step="marked", kind="E", message="m", traceback="t")]
    made = output(folder / "in", folder / "out", failures, skipped={"x": "y"}, fetch="framekiln fetch")
    recorded(made, WORKERS, gpus=1, targets=["gpu_use>50"])
    schema = pa.schema([("media_id", pa.string())])
    made.write_table("words/a.parquet", pa.table({"media_id": ["0.png"]}, schema=schema))
    return made


@pytest.fixture(scope="module")
def html(store):
    return page(store)


class Outline(HTMLParser):
    """The page as assistive software parses it."""

    def __init__(self):
        super().__init__()
        self.tags, self.path = [], []

    def handle_starttag(self, tag, attrs):
        self.tags.append((tag, dict(attrs), tuple(self.path)))
        if tag not in ("meta", "link", "br", "img", "hr", "input"):
            self.path.append(tag)

    def handle_startendtag(self, tag, attrs):
        self.tags.append((tag, dict(attrs), tuple(self.path)))

    def handle_endtag(self, tag):
        while self.path.pop() != tag:
            pass

    def all(self, name):
        return [attrs for tag, attrs, _ in self.tags if tag == name]


@pytest.fixture(scope="module")
def outline(html):
    made = Outline()
    made.feed(html)
    return made


def test_headings_are_in_order_and_landmarks_are_named(outline):
    levels = [int(tag[1]) for tag, _, _ in outline.tags if re.fullmatch(r"h\d", tag)]
    assert levels[0] == 1 and levels.count(1) == 1
    assert all(after <= before + 1 for before, after in pairwise(levels))
    names = [tag for tag, _, _ in outline.tags]
    assert all(names.count(name) == 1 for name in ("main", "header", "footer", "nav"))
    ids = [attrs["id"] for _, attrs, _ in outline.tags if "id" in attrs]
    assert len(ids) == len(set(ids))
    assert all(attrs["aria-labelledby"] in ids for attrs in outline.all("section"))
    assert outline.all("a")[0]["href"] == "#main"  # first, so that a screen reader can skip the head


def test_every_table_has_a_caption(outline):
    tables = [i for i, (tag, _, _) in enumerate(outline.tags) if tag == "table"]
    assert len(tables) > 8
    assert all(outline.tags[i + 1][0] == "caption" for i in tables)
    assert all(attrs.get("scope") in ("row", "col") for attrs in outline.all("th"))
    scrolled = [attrs for attrs in outline.all("div") if attrs.get("class", "").startswith("scroll")]
    assert all(attrs["tabindex"] == "0" and attrs["aria-label"] for attrs in scrolled)


def test_every_image_chart_and_control_has_a_label(outline):
    for tag, attrs, path in outline.tags:
        if tag == "svg" and "svg" not in path:
            assert attrs.get("aria-hidden") == "true" or (attrs["role"] == "img" and attrs["aria-label"])
        if tag in ("img", "input"):
            assert attrs.get("alt") or attrs.get("aria-label")
    assert not [attrs for _, attrs, _ in outline.tags if attrs.get("role") == "img" and attrs.get("aria-label") is None]


def test_activities_differ_without_colours(html):
    lanes = re.findall(r'<svg class="lane".*?</svg>', html)
    heights = dict(re.findall(r'<path class="do-([a-z-]+)" d="M\d+ [\d.]+h\d+v([\d.]+)', "".join(lanes)))
    assert heights["infer"] == "12"
    assert {heights[name] for name in ("waiting-for-input", "handing-on", "set-up")} == {"3", "6"}
    dashes = re.findall(r"\.c\d \{ stroke: var\(--c\d\);(.*?)\}", CSS)
    assert len(dashes) == len(set(dashes)) == 8


def themes():
    light, dark = re.findall(r":root \{(.*?)\}", CSS, flags=re.S)[:2]
    named = [dict(re.findall(r"--([a-z0-9]+): (#[0-9a-f]{6});", part)) for part in (light, dark)]
    return {"light": named[0], "dark": named[0] | named[1]}


def contrast(one, other):
    """WCAG 2.1, relative luminance."""

    def luminance(colour):
        value = np.array([int(colour[i : i + 2], 16) for i in (1, 3, 5)]) / 255
        linear = np.where(value <= 0.04045, value / 12.92, ((value + 0.055) / 1.055) ** 2.4)
        return float(linear @ (0.2126, 0.7152, 0.0722))

    low, high = sorted((luminance(one), luminance(other)))
    return (high + 0.05) / (low + 0.05)


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_contrast_is_enough_for_words_and_for_lines(theme):
    colours = themes()[theme]
    for text_colour in ("text", "muted", "accent", "bad"):
        for ground in ("page", "card", "soft") if text_colour == "text" else ("page", "card"):
            assert contrast(colours[text_colour], colours[ground]) >= 4.5, (text_colour, ground)
    for line in (*(f"c{i}" for i in range(8)), "bar", "good", "mixed", "bad"):
        assert contrast(colours[line], colours["card"]) >= 3, line


def test_colours_of_activities_have_enough_contrast():
    colours = dict(re.findall(r"\.do-([a-z-]+) \{ --do: (#[0-9a-f]{6})", CSS))
    assert len(colours) == 12
    for name, colour in colours.items():
        if name != "idle":
            assert contrast(colour, "#111111") >= 4.5 and contrast(colour, "#12161c") >= 3, name


def test_motion_and_theme_follow_the_readers_settings():
    assert "@media (prefers-color-scheme: dark)" in CSS
    assert re.search(r"@media \(prefers-reduced-motion: reduce\) \{[^}]*scroll-behavior: auto", CSS)
    assert ":focus-visible { outline: 2px solid" in CSS and "outline: none" not in CSS and "outline: 0" not in CSS


def empty(tmp_path, failures=(), **changes):
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "x.jpg").write_bytes(b"no image")
    nothing = {"decode": figures(0, 0.0), "marked": figures(0, 0.0)}
    store = output(tmp_path / "in", tmp_path / "out", figures=nothing, **changes)
    for name in store.names("errors"):
        store.remove(f"errors/{name}")
    if failures:
        store.write_table("errors/x.parquet", traced(to_table(failures), {}, {}))
    return store


def test_an_empty_output_has_a_page(tmp_path):
    html = page(empty(tmp_path, steps={}))
    parsed(html)
    assert "There is no frame to show." in text(html) and 'id="found"' not in html and 'id="line"' not in html


def test_one_row_has_a_page(tmp_path):
    photo(tmp_path / "in" / "a.png", 1)
    store = output(tmp_path / "in", tmp_path / "out")
    recorded(store, {"box:1": ["decode", "marked"]}, packets=1)
    html = page(store)
    parsed(html)
    assert "1 frame of 1" in text(html) and html.count('<figure class="tile') == 2
    assert "Fewer than 4 packets went through the step" in text(html)


def test_errors_alone_have_a_page(tmp_path):
    failures = [Failure(media_id=f"{i}.jpg", kind="corrupt", message=f"broken {i}") for i in range(4)]
    html = page(empty(tmp_path, failures))
    parsed(html)
    assert "decode corrupt 4 0.jpg : broken 0 1.jpg : broken 1 2.jpg : broken 2" in text(html)
    assert "No frame came out of 1 file; the errors say why." in text(html)
    assert "There is no frame to show." in text(html)


@pytest.mark.heavy
def test_ten_thousand_errors_are_bounded(tmp_path):
    name = "\x1b[2J\x00<b>" + "ü" * 500
    failures = [
        Failure(media_id=name, frame_index=i, step="marked", kind=f"Kind{i % 200}", message=name * 20, traceback=name)
        for i in range(10_000)
    ]
    html = page(empty(tmp_path, failures))
    parsed(html)
    content = text(html)
    assert "steps failed 10,000 times" in content or "No frame came out" in content
    assert "170 more reasons with 8,500 errors are in the table only." in content
    assert "10,000 rows, errors of files and steps" in content
    assert len(html) < 1_000_000 and "\x1b" not in html and "\x00" not in html


def test_errors_show_their_frame_where_it_can_be_decoded_again(store, tmp_path):
    for i in range(3):
        photo(tmp_path / "in" / f"{i}.png", i)
    about = {"message": "m", "traceback": ""}
    failures = [
        Failure(media_id="0.png", frame_index=0, step="marked", kind="A", **about),
        Failure(media_id="1.png", step="later", kind="B", **about),
        Failure(media_id="2.png", kind="crashed", **about),
        Failure(media_id="gone.png", frame_index=0, step="marked", kind="C", **about),
    ]
    html = page(output(tmp_path / "in", tmp_path / "out", failures))
    part = html[html.index('id="errors"') : html.index('id="frames"')]
    assert sorted(re.findall(r'aria-label="([^"]*)"><use href="#p\d+"/>', part)) == [
        "0.png: the frame",
        "1.png: the file&#39;s first frame",
    ]


@pytest.mark.parametrize("name", [*HOSTILE, "x" * 500, "a\tb\nc", "\u202egnp.exe"])
def test_names_in_records_are_shown_as_text(tmp_path, name):
    photo(tmp_path / "in" / "a.png", 1)
    store = output(tmp_path / "in", tmp_path / "out", steps={"marked": step()})
    host = name.replace("/", "_")
    recorded(store, {f"{host}:1": ["decode", name], f"{host}:2": [host]}, gpus=1, targets=["gpu_use>50"])
    html = page(store)
    tags = parsed(html)
    assert len(tags.scripts) == 1 and not [key for key, _ in tags.attributes if key.startswith("on")]
    assert "\x1b" not in html and "\x07" not in html
