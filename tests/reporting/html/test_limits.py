"""The page of a preview: of files whose value and shade are their number, arithmetic says which are shown."""

from __future__ import annotations

import base64
import re
from dataclasses import replace
from itertools import pairwise

import cv2
import numpy as np
import pyarrow as pa
import pytest
from PIL import Image

from framekiln.contract.columns import field
from framekiln.contract.stage import Stage
from framekiln.job import Job
from tests.support.runs.engine_factory import request
from tests.support.runs.report_reader import parsed, text
from tests.support.runs.serial_engine import without_ray

FILES, FILM, FILM_FRAMES = 42, 20, 5
PIPELINE = {
    "steps": {
        "numbered": {"use": f"{__name__}:Numbered"},
        "crc": {"use": "tests.toys:Checksum", "where": "level > 20 and 30.5 >= level and width >= 16"},
    }
}


class Numbered(Stage):
    """The number of the file, and hundredths for the frame; null for the first file."""

    inputs = ("media_id", "frame_index")
    outputs = pa.schema(
        [
            field("level", pa.float32(), "number <of> the file", "px"),
            field("word", pa.string(), "no number"),
            field("never", pa.float64(), "a number that no file has"),
            field("flat", pa.int32(), "always the same"),
        ]
    )

    def __call__(self, batch):
        numbers = [int(re.search(r"\d+", name)[0]) for name in batch["media_id"].to_pylist()]
        places = zip(numbers, batch["frame_index"].to_pylist(), strict=True)
        levels = [file + index / 100 if file else None for file, index in places]
        columns = {
            "level": levels,
            "word": ["a"] * len(numbers),
            "never": [None] * len(numbers),
            "flat": [7] * len(numbers),
        }
        return pa.table(columns, schema=self.outputs)


def shade(number, index=0):
    return Image.fromarray(np.full((16, 16, 3), 5 * number + index, np.uint8))


def run(folder, pipeline=PIPELINE, **choices):
    job = replace(request(folder / "in", folder / "out", pipeline), **choices)
    with without_ray():
        Job(job).run()
    return folder / "out" / "preview.html"


@pytest.fixture(scope="module")
def html(tmp_path_factory):
    folder = tmp_path_factory.mktemp("limits")
    (folder / "in").mkdir()
    for number in range(FILES):
        shade(number).save(folder / "in" / f"{number:02}<b>&.png")
    film = [shade(FILM, index) for index in range(FILM_FRAMES)]
    film[0].save(folder / "in" / f"{FILM}<b>&.png", save_all=True, append_images=film[1:], duration=40)
    return run(folder, preview=100).read_text()


def section(html, name):
    return next(part for part in html.split("<section ")[1:] if f"<bdi>{name}</bdi></h2>" in part)


def shown(part):
    """The values of the frames under each heading."""
    return [
        [float(value) for value in re.findall(r'aria-label="[^"]*: ([\d.]+) px"><use', piece)]
        for piece in re.split("<h[34]>", part)[1:]
        if "<use" in piece
    ]


def test_the_nearest_frames_on_each_side_of_a_limit_are_of_different_files(html):
    below, above, low, high, _ = shown(section(html, "level"))
    assert below == [16, 17, 18, 19]
    assert above == [20, 21, 22, 23]  # and not four frames of the film
    assert (low, high) == ([27, 28, 29, 30], [31, 32, 33, 34])


def test_the_row_of_quantiles_is_that_of_all_rows(html):
    part = section(html, "level")
    assert shown(part)[-1] == [1, 3, 12, 20, 30, 39]  # of 1 to 41, 20 five times
    assert re.findall(r"(\d+ %)</span>", part) == ["1 %", "5 %", "25 %", "50 %", "75 %", "95 %"]


def test_pictures_are_of_the_frames_that_their_names_tell(html):
    images = {
        name: cv2.imdecode(np.frombuffer(base64.b64decode(data), np.uint8), cv2.IMREAD_COLOR)
        for name, data in re.findall(r'<image id="(p\d+)" href="data:image/jpeg;base64,([^"]*)"', html)
    }
    labels = re.findall(r'aria-label="(\d+)&lt;b&gt;&amp;.png, frame (\d+): [^"]*"><use href="#(p\d+)"', html)
    assert len(labels) > 25
    middles = re.findall(r'<div class="shot"><svg [^>]*aria-label="The middle [^>]*><use href="#(p\d+)"', html)
    assert len(middles) == 20 and all(images[name].shape == (16, 16, 3) for name in middles)
    for number, index, name in labels:
        assert abs(images[name].mean() - 5 * int(number) - int(index)) <= 1


def test_shares_of_rows_and_what_a_column_is_are_told(html):
    words = text(section(html, "level"))
    assert "number &lt;of&gt; the file, in px . 2% of the rows have no value." in words  # 1 of 46
    assert "The limit 20 px of crc 41% of the rows are below; the nearest:" in words  # 19
    assert "57% of the rows are at or above; the nearest:" in words  # 26
    assert "The limit 30.5 px of crc" in words
    assert "0% of the rows are below 100% of the rows are at or above" in text(section(html, "width"))
    assert "1 %, 5 %, 25 %, 50 %, 75 %, 95 %" in text(section(html, "flat"))  # one frame stands for all


def test_columns_with_limits_come_first_and_those_without_a_number_are_left_out(html):
    titles = re.findall(r"<h2 [^>]*><bdi>(\w+)</bdi>", html)
    assert titles == ["level", "width", "flat", "crc"]


def test_the_page_works_offline_and_for_screen_readers(html):
    tags = parsed(html)
    assert tags.scripts == [] and tags.policy.startswith("default-src 'none'")
    assert all(value.startswith(("data:", "#")) for key, value in tags.attributes if key in ("src", "href"))
    ids = [value for key, value in tags.attributes if key == "id"]
    assert len(ids) == len(set(ids))
    assert all(value[1:] in ids for key, value in tags.attributes if key == "href" and value[0] == "#")
    assert all(value in ids for key, value in tags.attributes if key == "aria-labelledby")
    levels = [int(level) for level in re.findall(r"<h(\d)", html)]
    assert levels[0] == 1 and all(after <= before + 1 for before, after in pairwise(levels))


def test_a_run_of_all_files_writes_no_page_and_a_preview_without_a_frame_says_so(tmp_path):
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "1.png").write_bytes(b"\x89PNG\r\n\x1a\n")
    assert not run(tmp_path).exists()
    assert "There is no column of numbers" in run(tmp_path, preview=1).read_text()
