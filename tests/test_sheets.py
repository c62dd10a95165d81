"""Contact sheets of the report: any table whose metadata says that it holds pictures."""

from __future__ import annotations

import base64
import re

import cv2
import numpy as np
import pyarrow as pa
import pytest

from pipeline.telemetry.report.sheets import LARGEST, MOST_BYTES, PICTURES, ROWS
from tests.collections_factory import photo
from tests.report_factory import output
from tests.report_reader import page, parsed, text

ITEM = pa.struct([("media_id", pa.string()), ("crop", pa.large_binary())])
META = {"description": "how <they> look", "pictures": "crop", "no_pictures": "Ask <nicely> for pictures."}


def jpeg(level):
    return cv2.imencode(".jpg", np.full((112, 112, 3), level, np.uint8))[1].tobytes()


@pytest.fixture
def store(tmp_path):
    photo(tmp_path / "in" / "a.png", 1)
    return output(tmp_path / "in", tmp_path / "out")


def write(store, rows, meta=META, item=ITEM):
    schema = pa.schema([pa.field("person", pa.int32()), pa.field("shown", pa.list_(item), metadata=meta)])
    store.write_table("people/a.parquet", pa.Table.from_pylist(rows, schema=schema))


def pictures(html):
    return [base64.b64decode(found) for found in re.findall(r'<img src="data:image/jpeg;base64,([^"]*)"', html)]


def test_the_first_rows_are_shown_with_their_pictures_in_order(store):
    rows = [
        {"person": i, "shown": [{"media_id": f"<{i}>", "crop": jpeg(9 * i + k)} for k in range(PICTURES + 3)]}
        for i in range(ROWS + 4)
    ]
    write(store, rows)
    html = page(store)
    assert pictures(html) == [jpeg(9 * i + k) for i in range(ROWS) for k in range(PICTURES)]
    assert "how &lt;they&gt; look" in html and "media_id &lt;3&gt;" in html and "<3>" not in html
    assert f"The first {ROWS} rows with pictures" in text(html)
    parsed(html)


def test_without_a_picture_the_table_says_what_to_do(store):
    write(store, [{"person": 1, "shown": [{"media_id": "a", "crop": None}]}])
    html = page(store)
    assert pictures(html) == [] and "Ask &lt;nicely&gt; for pictures." in html


@pytest.mark.parametrize("data", [b"<script>alert(1)</script>", b"", jpeg(1) + bytes(LARGEST)])
def test_only_jpegs_of_a_sensible_size_are_shown(store, data):
    write(store, [{"person": 1, "shown": [{"media_id": "a", "crop": data}, {"media_id": "b", "crop": jpeg(7)}]}])
    assert pictures(page(store)) == [jpeg(7)]


@pytest.mark.parametrize("meta", [{}, {"pictures": "absent"}, {"pictures": ""}])
def test_other_columns_are_no_sheets(store, meta):
    write(store, [{"person": 1, "shown": [{"media_id": "a", "crop": jpeg(7)}]}], meta={"description": "", **meta})
    assert pictures(page(store)) == []


def test_rows_without_items_and_empty_tables_are_passed_over(store):
    write(store, [])
    assert pictures(page(store)) == []
    write(
        store, [{"person": 1, "shown": None}, {"person": 2, "shown": []}, {"person": 3, "shown": [{"crop": jpeg(7)}]}]
    )
    assert pictures(page(store)) == [jpeg(7)]


def test_all_pictures_of_a_column_together_are_bounded(store):
    noise = np.random.default_rng(0).integers(0, 255, (200, 200, 3), np.uint8)
    large = cv2.imencode(".jpg", noise, [cv2.IMWRITE_JPEG_QUALITY, 95])[1].tobytes()
    assert 40_000 < len(large) < LARGEST
    write(store, [{"person": i, "shown": [{"media_id": "a", "crop": large}] * PICTURES} for i in range(ROWS)])
    html = page(store)
    assert 10 < len(pictures(html)) < ROWS * PICTURES and len(html) < MOST_BYTES + 500_000
