"""Frames that no step needs: segments of a film without a chosen frame are not decoded, by any rule of frames."""

from __future__ import annotations

import cv2
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from framekiln.media.config import DecodeConfig
from framekiln.media.packets import decode as decoding
from framekiln.planning import plan
from framekiln.planning.condition import FrameRule
from framekiln.runtime import spared_frames
from framekiln.runtime.chosen_rows import follow
from tests.runtime.test_conditions import run, values, watch_files
from tests.support.media.collections_factory import collection
from tests.support.media.segmented_films import sample_film
from tests.support.runs.serial_engine import without_ray


@pytest.fixture(autouse=True)
def _serial():
    with without_ray():
        yield


@pytest.fixture(scope="module")
def film(tmp_path_factory):
    """A film with a key frame each ten frames."""
    folder = tmp_path_factory.mktemp("film") / "in"
    folder.mkdir()
    (folder / "film.mov").write_bytes(sample_film("b-frames").read_bytes())
    return folder


@pytest.mark.parametrize("many", [64, 1])  # parts of a long film are read segment by segment
def test_segments_without_a_chosen_frame_are_not_decoded(film, tmp_path, monkeypatch, many):
    monkeypatch.setattr(spared_frames, "_MANY", many)

    def small(**given):
        return decoding.DecodeConfig(**given, segment_frames=10, segment_pixels=1)

    monkeypatch.setattr(plan, "DecodeConfig", small)
    out = tmp_path / "out"
    run(film, tmp_path / "whole", ("crc",))
    run(film, out, ("small",))
    decoded, read_frames = [], decoding.SourceReader.frames

    def watch(reader, media, source, failures):
        for one in read_frames(reader, media, source, failures):
            decoded.extend([one.index] if "frame" in reader.columns else [])  # without it it is the report's
            yield one

    monkeypatch.setattr(decoding.SourceReader, "frames", watch)
    pq.write_table(pa.table({"media_id": ["film.mov"], "frame_index": [57]}), tmp_path / "chosen.parquet")
    assert run(film, out, ("small", "crc"), rows=str(tmp_path / "chosen.parquet")) == {"crc": 1}
    assert values(out) == {("film.mov", 57): values(tmp_path / "whole")["film.mov", 57]}
    assert 0 < len(decoded) <= 20 and 57 in decoded


@pytest.mark.parametrize("fps", [5, 24, 25, 30, 59.94])
@pytest.mark.parametrize("rate", [0.5, 1, 4])
def test_one_frame_is_chosen_for_each_moment(fps, rate):
    times = np.arange(int(20 * fps)) / fps
    unknown = np.full(len(times), np.nan)
    for before in (unknown, np.concatenate([[np.nan], times[:-1]])):
        mask = follow(FrameRule(per_second=rate), np.arange(len(times)), times, before, np.full(len(times), fps), 1)
        moments = np.arange(0, times[-1] + 1e-9, 1 / rate)
        assert mask.sum() == len(moments)
        assert all(0 <= shown - moment < 1 / fps + 1e-6 for shown, moment in zip(times[mask], moments, strict=True))


@pytest.mark.parametrize("rows", [(512, 64), (64, 512), (128, 64)])
def test_another_run_had_cut_packets_in_another_way(tmp_path, monkeypatch, rows):
    source, out, even = collection(tmp_path / "in", 1, 150), tmp_path / "out", {"where": "crc % 2 = 0"}
    for count, steps in zip(rows, (("crc", "small"), ("crc", "small", "twice")), strict=True):
        monkeypatch.setitem(DecodeConfig.__init__.__kwdefaults__, "packet_rows", count)
        computed = run(source, out, steps, conditions={"twice": even, "small": {"on": {"every": 2}}})
    assert values(out, "twice") == {key: 2 * value for key, value in values(out).items() if value % 2 == 0}
    assert computed == {"twice": len(values(out, "twice"))}, "the other values are there"
    assert run(source, out, ("small",), conditions={"small": {"on": {"every": 4}}}) == {}, "a narrower choice"


def test_a_new_file_alone_is_opened_where_a_table_decides_beside_another_step(tmp_path, monkeypatch):
    source, out = collection(tmp_path / "in", 2, 10), tmp_path / "out"
    counted = {"small": {"where": "frame_index = 0 and media_id in (select media_id from counts)"}}
    steps = ("crc", "count", "near", "small")
    assert run(source, out, steps, conditions=counted)["small"] == 3
    (source / "new.png").write_bytes((source / "photo1.png").read_bytes())
    opened = watch_files(monkeypatch)
    assert run(source, out, steps, conditions=counted).items() >= {"near": 1, "small": 1}.items()
    assert {*opened} == {"new.png"} and len(values(out, "small")) == 4


def test_no_old_film_is_opened_whose_packets_were_cut_in_two_ways(film, tmp_path, monkeypatch):
    source, out = tmp_path / "in", tmp_path / "out"
    source.mkdir()
    (source / "film.mov").write_bytes((film / "film.mov").read_bytes())
    counted = {"small": {"where": "frame_index = 0 and media_id in (select media_id from counts)"}}
    run(source, out, ("crc", "count"))
    monkeypatch.setitem(DecodeConfig.__init__.__kwdefaults__, "packet_rows", 10)
    run(source, out, ("crc", "count", "near", "small"), conditions=counted)
    cv2.imwrite(str(source / "new.png"), np.zeros((8, 8, 3), np.uint8))
    opened = watch_files(monkeypatch)
    run(source, out, ("crc", "count", "near", "small"), conditions=counted)
    assert {*opened} == {"new.png"}
