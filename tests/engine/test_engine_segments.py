"""Through the real engine: two tasks decode one film at once, and what is done of it is not done again."""

from __future__ import annotations

import os
import zlib
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from framekiln.contract.output_names import COLUMNS
from framekiln.engine.base import RunContext
from framekiln.engine.choice import make_engine
from framekiln.media.config import DecodeConfig
from framekiln.media.discovery.listing import list_media
from framekiln.media.units import Unit
from framekiln.output.ledger import Ledger
from framekiln.output.object_store import Store
from framekiln.planning.manifest import PipelineFile, ProfileFile
from framekiln.planning.plan import Plan, make_plan
from framekiln.planning.plan_options import PlanOptions
from framekiln.runtime.second_pass.second_pass import columns_of, unit_rows
from tests.support.media.collections_factory import photo, recut
from tests.support.media.media_factory import packets_of, rows_of
from tests.support.media.segmented_films import FRAMES, WHOLE, damage, sample_film
from tests.support.runs.units import ensure_units

pytestmark = pytest.mark.slow

STEPS = {"crc": {"use": "tests.toys:Checksum"}, "near": {"use": "tests.toys:Neighbours"}}


@pytest.fixture
def plan(tmp_path, machines) -> Plan:
    """One whose task dies once, in the middle of a segment: it is run again."""
    dies = {"at": 47, "mark": str(tmp_path / "died")}
    steps = STEPS | {"dies": {"use": "tests.toys:DiesOnce", "with": dies}}
    profile = ProfileFile.model_validate({"decode": {"workers": 2, "cpus": 0.5}})
    made = make_plan(PipelineFile.model_validate({"steps": steps}), profile, PlanOptions(), machines)
    each = sample_film("b-frames").stat().st_size // 6
    config = DecodeConfig(segment_frames=10, segment_pixels=1, task_bytes=each, packet_rows=8, clip_frames=5)
    return recut(made, config)


@pytest.fixture
def run(plan) -> Callable[[Path, Path], list[Unit]]:
    """The first pass of a run: a call takes its input and output, and returns units that were not done before."""

    def call(folder: Path, out: Path) -> list[Unit]:
        store, media = Store(str(out)), list_media(str(folder))
        units = ensure_units(store, media, media, slots=2)
        done = {rows.unit for rows in unit_rows(plan, Ledger(store), units, frozenset(item.media_id for item in media))}
        pending = [unit for unit in units if unit.name not in done]
        context = RunContext(plan=plan, store=store, on_events=lambda _: None)
        if pending:  # a run calls no engine for nothing
            with closing(make_engine(os.environ["FRAMEKILN_ENGINE"], context, [], pytest.fail)) as running:
                running.first_pass(0, pending, Ledger(store))
        return pending

    return call


def table(plan: Plan, folder: Path, out: Path) -> pa.Table:
    """All columns of all rows, as the second pass reads them."""
    store, media = Store(str(out)), list_media(str(folder))
    units = ensure_units(store, media, media, slots=2)
    finished = unit_rows(plan, Ledger(store), units, frozenset(item.media_id for item in media))
    assert len(finished) == len(units)
    names = ["media_id", "frame_index", "clip_index", "time_s", "crc", "next_crc", "lived"]
    return pa.concat_tables([rows.read(store, columns_of(plan, names)) for rows in finished]).sort_by(
        [("media_id", "ascending"), ("frame_index", "ascending")]
    )


@pytest.fixture
def folder(tmp_path):
    photo(tmp_path / "in" / "photo.png", 1)
    (tmp_path / "in" / "film.mov").write_bytes(sample_film("b-frames").read_bytes())
    return tmp_path / "in"


@pytest.mark.heavy
def test_a_film_in_segments_has_the_rows_of_one_in_one_go(engine, folder, tmp_path, plan, run):
    run(folder, tmp_path / "out")
    decoded = table(plan, folder, tmp_path / "out").to_pylist()
    whole = [row for packet in packets_of(folder, segment_frames=WHOLE) for row in rows_of(packet)]
    crcs = {(row["media_id"], row["frame_index"]): zlib.crc32(row["frame"]) for row in whole}
    assert len(decoded) == FRAMES + 1
    assert [((row["media_id"], row["frame_index"]), row["crc"]) for row in decoded] == list(crcs.items())
    following = [crcs.get((row["media_id"], row["frame_index"] + 1)) for row in decoded]
    assert [row["next_crc"] for row in decoded] == following  # over the ends of segments too
    assert [row["time_s"] for row in decoded] == [row["time_s"] for row in whole]
    assert all(row["lived"] for row in decoded)
    assert Path(plan.first[-1].stage.config.mark).exists()  # it did die
    assert run(folder, tmp_path / "out") == []


@pytest.mark.heavy
def test_only_segments_that_are_not_done_are_decoded_again(local, folder, tmp_path, plan, run):
    run(folder, tmp_path / "out")
    before = table(plan, folder, tmp_path / "out")
    parts = {path: path.stat().st_mtime_ns for path in (tmp_path / "out" / COLUMNS).glob("*/*.parquet")}
    (lost,) = (path for path in parts if path.parent.name.startswith("crc-") and ".00000050-" in path.name)
    lost.unlink()
    run(folder, tmp_path / "out")
    assert table(plan, folder, tmp_path / "out").equals(before)
    rewritten = [path for path, time in parts.items() if path.stat().st_mtime_ns != time]
    spans = [path.stem.split(".")[1].split("-") for path in rewritten if path.parent.name.startswith("decode-")]
    inside = [(int(start), int(stop)) for start, stop in spans if start != stop]
    assert any(start <= 50 < stop for start, stop in inside)
    assert sum(stop - start for start, stop in inside) <= FRAMES // 3  # its segment alone


@pytest.mark.heavy
def test_damage_costs_its_own_rows_only(local, folder, tmp_path, plan, run):
    run(folder, tmp_path / "whole")
    before = table(plan, folder, tmp_path / "whole").to_pylist()
    damage(sample_film("b-frames"), folder / "film.mov", 20, 42)  # a whole segment and parts of its neighbours
    run(folder, tmp_path / "out")
    after = table(plan, folder, tmp_path / "out").to_pylist()
    lost = {row["frame_index"] for row in before if row["media_id"] == "film.mov"} - {
        row["frame_index"] for row in after if row["media_id"] == "film.mov"
    }
    assert set(range(20, 43)) <= lost < set(range(50))
    same = [row for row in before if row["media_id"] != "film.mov" or row["frame_index"] >= 60]
    assert len(same) == 61 and [row for row in after if row in same] == same
    assert np.all(np.diff([row["frame_index"] for row in after if row["media_id"] == "film.mov"]) > 0)
    assert run(folder, tmp_path / "out") == []  # and is not decoded again
