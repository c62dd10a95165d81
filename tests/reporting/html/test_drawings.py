"""Drawings of stages in the page: complete, in their place, and harmless."""

from __future__ import annotations

import base64
import json
import re

import cv2
import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from framekiln.contract.drawing import Area, Drawing, Label
from framekiln.output.object_store import Store
from framekiln.reporting.html.gallery.thumbnails import all_layers, resized_uri
from framekiln.runtime.run.record import sealed
from tests.support.media.collections_factory import clip, photo
from tests.support.runs.report_factory import Drawn, output, png, step
from tests.support.runs.report_reader import page, parsed, text

HERE = "tests.support.runs.report_factory"


@pytest.fixture
def store(tmp_path):
    photo(tmp_path / "in" / "photo.png", 1)
    clip(tmp_path / "in" / "clip.png", 100, 9)
    steps = {"marked": step(word="x"), "drawn": step(f"{HERE}:Drawn"), "later": step(f"{HERE}:Later")}
    return output(tmp_path / "in", tmp_path / "out", steps=steps)


def add(store, made, spots):
    """Add the columns of `Drawn`, by the file of each row."""
    for name in store.names("frames"):
        rows = store.read_table(f"frames/{name}")
        media = rows["media_id"].to_pylist()
        rows = rows.append_column("made", pa.array(list(map(made, media)), pa.string()))
        column = pa.array(list(map(spots, media)), pa.list_(pa.float32()))
        store.write_table(f"frames/{name}", rows.append_column("spots", column))


def with_files(store, path="images/made-f/photo.png", data=None):
    """Add the columns of `Drawn`; only the photo has a file."""
    add(
        store, lambda media: path if media == "photo.png" else None, lambda media: [1.0] if media == "photo.png" else []
    )
    if data is not None:
        store.write(path, data)
    return store


def by_step(html):
    """Return the part of the page with each step's frames, by step."""
    part = html[html.index('id="found"') : html.index('id="time"')]
    steps = re.split(r"<h3>(?:<span[^>]*></span>)?", part)[1:]
    return {step.partition("</h3>")[0]: step for step in steps}


def image(uri):
    data = base64.b64decode(uri.partition("base64,")[2])
    return cv2.imdecode(np.frombuffer(data, np.uint8), cv2.IMREAD_UNCHANGED)


def test_areas_labels_overlay_and_legend_are_drawn(store):
    html = page(with_files(store, data=png((0, 0, 255))))
    parsed(html)
    drawn = by_step(html)["drawn"]
    assert re.search(r'<path class="area ink2" d="M0 0L8 0L8 8L0 8ZM2 2L6 2L6 6Z"/>', drawn)  # a hole; colour 8 of 6
    assert drawn.count('class="area') == drawn.count('<figure class="tile') == 1  # the one without a place is not there
    assert "&lt;b&gt;label&lt;/b&gt;" in drawn and "nowhere" not in drawn and "inf" not in drawn
    assert "what &lt;colours&gt; mean" in drawn and "spots [1.0]" in text(drawn)
    overlay = re.search(r'<image href="(data:image/png;base64,[^"]+)" width="8" height="8"/><path', drawn)
    assert image(overlay[1]).shape == (8, 8, 4) and image(overlay[1])[0, 0].tolist() == [0, 0, 255, 99]


def test_before_and_after_are_both_there_without_a_script_and_under_a_slider_with_one(store):
    html = page(with_files(store, data=png((0, 0, 255), side=16)))
    drawn = by_step(html)["drawn"]
    assert drawn.index('class="before"') < drawn.index('class="after"')
    after = re.search(r'aria-label="photo.png, frame 0, after"><image href="([^"]+)" width="8" height="8"/>', drawn)
    blue, green, red = image(after[1]).reshape(-1, 3).mean(axis=0)
    assert blue > 240 and max(green, red) < 15 and image(after[1]).shape == (8, 8, 3)
    assert re.search(r"<label hidden>.*<input type=\"range\" [^>]*aria-label=\"[^\"]+\">", drawn)
    assert "label.hidden = false" in html


@pytest.mark.parametrize(
    ("path", "data"),
    [
        ("images/made-f/gone.png", None),
        ("images/made-f/text.png", b"<script>alert(1)</script>"),
        ("images/made-f/empty.png", b""),
        ("run.json", None),
        ("images/../run.json", None),
        ("images/../../in/photo.png", None),
    ],
)
def test_a_file_that_is_not_an_image_of_the_output_is_left_out(store, path, data):
    drawn = by_step(page(with_files(store, path, data)))["drawn"]
    assert 'class="after"' not in drawn and "alert" not in drawn and 'class="area' in drawn


def test_frames_with_results_are_shown(tmp_path):
    for number in range(60):
        photo(tmp_path / "in" / f"{number:02}.png", number)
    steps = {"marked": step(), "drawn": step(f"{HERE}:Drawn")}
    store = output(tmp_path / "in", tmp_path / "out", steps=steps)
    add(store, lambda media: None, lambda media: [1.0] if media == "37.png" else [])
    html = page(store)
    assert 'aria-label="37.png, frame 0' in html
    assert text(html).count("frames of 60") == 1 and "24 frames of 60" in text(html)


def test_a_second_pass_step_gets_the_rows_about_a_frame(store):
    def write(name, rows):
        schema = pa.schema(
            [(key, pa.string() if isinstance(value, str) else pa.int32()) for key, value in rows[0].items()]
        )
        schema = schema.append(pa.field("blob", pa.binary()))
        store.write_table(f"{name}/a.parquet", pa.Table.from_pylist([{**row, "blob": b"x"} for row in rows], schema))

    one = {"media_id": "clip.png"}
    write("of_frames", [{**one, "frame_index": i, "word": f"at{i}"} for i in range(9)])
    write(
        "of_stretches", [{**one, "first_frame": a, "last_frame": b, "word": f"{a}to{b}"} for a, b in ((0, 3), (4, 8))]
    )
    write("of_files", [{**one, "word": "clip"}, {"media_id": "photo.png", "word": "photo"}])
    write("of_nothing", [{"word": "nothing"}])
    content = text(by_step(page(store))["later"])
    shown = [int(index) for index in re.findall(r"frame (\d+) level", content)]
    assert min(shown) < 4 <= max(shown)
    for index in shown:
        stretch = "0to3" if index < 4 else "4to8"
        about = {"of_frames": [f"at{index}"], "of_stretches": [stretch], "of_files": ["clip"]}
        assert f"frame {index} level {index}: {about}".replace("'", "&#39;") in content
    assert "'of_files': ['photo']".replace("'", "&#39;") in content and "nothing" not in content


@pytest.mark.parametrize(
    "drawing",
    [
        Drawing(lines=[(1, 2)]),
        Drawing(points="ab"),
        Drawing(areas=[Area(rings=[[("a", "b")]])]),
        Drawing(labels=[Label(x=None, y=0, text="x")]),
        Drawing(overlay="no bytes"),
    ],
)
def test_an_invalid_drawing_does_not_prevent_the_report(store, drawing, monkeypatch):
    monkeypatch.setattr(Drawn, "draw", lambda self, row: drawing)
    html = page(with_files(store))
    parsed(html)
    assert "Where the time went" in html


numbers = st.floats(-1e9, 1e9) | st.sampled_from([float("nan"), float("inf"), 0.0, 1.0])


@given(
    st.builds(
        Drawing,
        lines=st.lists(st.tuples(numbers, numbers, numbers, numbers), max_size=3),
        points=st.lists(st.tuples(numbers, numbers), max_size=3),
        areas=st.lists(st.builds(Area, rings=st.lists(st.lists(st.tuples(numbers, numbers), max_size=4), max_size=3))),
        labels=st.lists(st.builds(Label, x=numbers, y=numbers, text=st.text(max_size=50)), max_size=3),
        overlay=st.binary(max_size=20) | st.none(),
    )
)
def test_any_drawing_is_well_formed(drawing):
    made = f"<svg>{all_layers(drawing, 200, 100, 3)}</svg>"
    parsed(made)
    assert not re.search(r'd="[^"]*(nan|inf)', made)
    assert all(-30 < float(x) <= 200 for x in re.findall(r'<text[^>]* x="([^"]+)"', made))


def test_images_are_scaled_and_other_data_refused():
    uri = resized_uri(png((1, 2, 3), side=64), 10, 5)
    assert uri.startswith("data:image/jpeg;") and image(uri).shape == (5, 10, 3)
    depth = cv2.imencode(".png", np.zeros((4, 4), np.uint16))[1].tobytes()
    assert resized_uri(depth, 4, 4, transparent=True) is None
    assert resized_uri(b"GIF89a", 4, 4) is None


def test_the_drawings_are_those_of_the_settings(store):
    record = json.loads(Store(store.root).read("run.json"))
    record["steps"]["drawn"]["version"] = 99
    store.write("run.json", json.dumps(sealed(record)).encode())
    assert "drawn" not in page(with_files(store)).partition('id="time"')[0].partition('id="found"')[2]


def test_images_that_hardly_compress_stay_small():
    noise = np.random.default_rng(0).integers(0, 255, (600, 600, 4), np.uint8)
    data = cv2.imencode(".png", noise)[1].tobytes()
    for transparent, most in ((True, 100_000), (False, 30_000)):
        uri = resized_uri(data, 420, 240, transparent=transparent)
        assert len(uri) < most * 4 / 3 + 100 and image(uri).shape[2] == (4 if transparent else 3)
