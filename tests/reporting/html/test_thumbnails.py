"""Thumbnails of the report: the right frames, with drawings of stages, or left out with a reason."""

from __future__ import annotations

import base64
import os
import re

import cv2
import numpy as np
import pyarrow as pa

from framekiln.contract.columns import views
from framekiln.media.config import DecodeConfig
from framekiln.media.discovery.listing import list_media
from framekiln.media.packets.decode import decode
from framekiln.media.units import Unit
from tests.support.media.collections_factory import photo
from tests.support.runs.report_factory import Marked, output, step
from tests.support.runs.report_reader import folder, page, store, text

__all__ = ["folder", "store"]


def test_thumbnails_show_the_right_frames(store, folder):
    html = page(store)
    stored = dict(re.findall(r'<image id="(p\d+)" href="data:image/jpeg;base64,([^"]+)"', html))
    shown = re.findall(r'aria-label="([^"]+), frame (\d+)"><use href="#(p\d+)"', html)
    thumbnails = [(name, index, stored[place]) for name, index, place in shown]
    shown = {name for name, _, _ in thumbnails}
    assert shown == {"clip.png", "photo0.png", "photo1.png", "photo2.png"}
    assert sum(name == "clip.png" for name, _, _ in thumbnails) == 4
    truth = clip_frames(folder)
    for name, index, data in thumbnails:
        if name == "clip.png":
            small = cv2.imdecode(np.frombuffer(base64.b64decode(data), np.uint8), cv2.IMREAD_COLOR)[..., ::-1]
            apart = {number: np.abs(small.astype(int) - image).mean() for number, image in truth.items()}
            assert min(apart, key=apart.get) == int(index)


def clip_frames(folder):
    """Return the clip's frames by number."""
    (media,) = [item for item in list_media(str(folder)) if item.media_id == "clip.png"]
    packets = decode(Unit(name="one", media=(media,)), ["frame"], 0, DecodeConfig())
    rows = pa.concat_tables([packet.rows for packet in packets])
    return dict(zip(rows["frame_index"].to_pylist(), views(rows["frame"]), strict=True))


def test_drawings_come_from_the_stage(store):
    html = page(store)
    assert '<path d="M2 4L6 4' in html  # 0.25 to 0.75 of 8 px; the line with a NaN is left out
    assert "nan" not in "".join(re.findall(r'd="([^"]*)"', html))
    assert "&lt;i&gt;here&lt;/i&gt;" in html


def test_a_stage_that_fails_to_draw_does_not_prevent_the_report(folder, tmp_path, monkeypatch):
    store = output(folder, tmp_path / "out")
    monkeypatch.setattr(Marked, "draw", lambda self, row: 1 / 0)
    content = text(page(store))
    assert "marked level 1 dB, kind odd&lt;b&gt;" in content  # its first values instead


def test_without_the_code_of_a_step_there_is_still_a_report(folder, tmp_path):
    store = output(folder, tmp_path / "out", steps={"marked": step("nowhere.at.all:Gone")})
    html = page(store)
    assert "The code of marked is missing in that version" in text(html)
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
