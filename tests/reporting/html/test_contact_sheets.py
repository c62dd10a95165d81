"""Contact sheets of the report: images in any table with the right metadata."""

from __future__ import annotations

import base64
import re

import cv2
import numpy as np
import pyarrow as pa
import pytest

from framekiln.reporting.html.gallery.gallery import IMAGES, LARGEST, MOST_BYTES, ROWS
from tests.support.media.collections_factory import photo
from tests.support.runs.report_factory import output
from tests.support.runs.report_reader import page, parsed, text

ITEM = pa.struct([("media_id", pa.string()), ("crop", pa.large_binary())])
META = {"description": "how <they> look", "pictures": "crop", "no_pictures": "Ask <nicely> for images."}


def jpeg(level):
    return cv2.imencode(".jpg", np.full((112, 112, 3), level, np.uint8))[1].tobytes()


@pytest.fixture
def store(tmp_path):
    photo(tmp_path / "in" / "a.png", 1)
    return output(tmp_path / "in", tmp_path / "out")


def write(store, rows, meta=META, item=ITEM):
    schema = pa.schema([pa.field("person", pa.int32()), pa.field("shown", pa.list_(item), metadata=meta)])
    store.write_table("people/a.parquet", pa.Table.from_pylist(rows, schema=schema))


def images(html):
    return [base64.b64decode(data) for data in re.findall(r'<img src="data:image/jpeg;base64,([^"]*)"', html)]


def test_the_first_rows_are_shown_with_their_images_in_order(store):
    rows = [
        {"person": i, "shown": [{"media_id": f"<{i}>", "crop": jpeg(9 * i + k)} for k in range(IMAGES + 3)]}
        for i in range(ROWS + 4)
    ]
    write(store, rows)
    html = page(store)
    assert images(html) == [jpeg(9 * i + k) for i in range(ROWS) for k in range(IMAGES)]
    assert "how &lt;they&gt; look" in html and "media_id &lt;3&gt;" in html and "<3>" not in html
    assert f"The first {ROWS} rows with images" in text(html)
    parsed(html)


def test_a_hint_replaces_missing_images(store):
    write(store, [{"person": 1, "shown": [{"media_id": "a", "crop": None}]}])
    html = page(store)
    assert images(html) == [] and "Ask &lt;nicely&gt; for images." in html


@pytest.mark.parametrize("data", [b"<script>alert(1)</script>", b"", jpeg(1) + bytes(LARGEST)])
def test_only_jpegs_of_a_sensible_size_are_shown(store, data):
    write(store, [{"person": 1, "shown": [{"media_id": "a", "crop": data}, {"media_id": "b", "crop": jpeg(7)}]}])
    assert images(page(store)) == [jpeg(7)]


@pytest.mark.parametrize("meta", [{}, {"pictures": "absent"}, {"pictures": ""}])
def test_other_columns_are_not_contact_sheets(store, meta):
    write(store, [{"person": 1, "shown": [{"media_id": "a", "crop": jpeg(7)}]}], meta={"description": "", **meta})
    assert images(page(store)) == []


def test_rows_without_items_and_empty_tables_are_left_out(store):
    write(store, [])
    assert images(page(store)) == []
    write(
        store, [{"person": 1, "shown": None}, {"person": 2, "shown": []}, {"person": 3, "shown": [{"crop": jpeg(7)}]}]
    )
    assert images(page(store)) == [jpeg(7)]


def test_the_bytes_of_a_column_are_bounded(store):
    noise = np.random.default_rng(0).integers(0, 255, (200, 200, 3), np.uint8)
    large = cv2.imencode(".jpg", noise, [cv2.IMWRITE_JPEG_QUALITY, 95])[1].tobytes()
    assert 40_000 < len(large) < LARGEST
    write(store, [{"person": i, "shown": [{"media_id": "a", "crop": large}] * IMAGES} for i in range(ROWS)])
    html = page(store)
    assert 10 < len(images(html)) < ROWS * IMAGES and len(html) < MOST_BYTES + 500_000


def test_a_column_that_tallies_is_a_sentence_at_the_top(store):
    told = {"tally": '{"": "faces have no person", "small": "too <small> to tell"}'}
    schema = pa.schema([pa.field("face", pa.int32()), pa.field("reason", pa.string(), metadata=told)])
    reasons = [None] * 6 + ["alone"] + ["small"] * 3
    rows = [{"face": i, "reason": reason} for i, reason in enumerate(reasons)]
    store.write_table("faces_told/a.parquet", pa.Table.from_pylist(rows, schema=schema))
    head = page(store).split("</header>")[0]
    assert "4 of 10 faces have no person: 3 too &lt;small&gt; to tell, 1 alone." in head
