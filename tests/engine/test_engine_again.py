"""Second runs compute only what was added or changed, and shards together equal a whole run."""

from __future__ import annotations

from dataclasses import replace

import pytest

from framekiln.contract.output_names import COLUMNS, FRAMES
from framekiln.job import Job
from framekiln.output.object_store import Store
from framekiln.planning.manifest import PipelineFile
from framekiln.reporting.compare.runs import read_run
from framekiln.runtime.check.check import check_output
from tests.support.media.collections_factory import photo
from tests.support.runs.engine_factory import ALL, order, small, table

__all__ = ["small"]

pytestmark = pytest.mark.slow


def test_a_second_run_has_nothing_to_do_and_changes_nothing(small, tmp_path, machines, serial):
    Job(order(small, tmp_path / "out", ALL)).run()
    before = {p: p.stat().st_mtime_ns for p in (tmp_path / "out").rglob("*.parquet")}
    result = Job(order(small, tmp_path / "out", ALL)).run()
    assert not result.work.left
    assert {p: p.stat().st_mtime_ns for p in (tmp_path / "out").rglob("*.parquet")} == before


@pytest.mark.heavy
def test_an_added_step_and_an_added_file_cost_only_themselves(small, tmp_path, machines, serial):
    out = tmp_path / "out"
    Job(order(small, out, {"crc": ("Checksum", {})})).run()
    before = {p: p.stat().st_mtime_ns for p in (out / COLUMNS).glob("crc-*/*.parquet")}
    photo(small / "zz.png", 55)
    Job(order(small, out, {"crc": ("Checksum", {}), "twice": ("Double", {})})).run()
    after = {p: p.stat().st_mtime_ns for p in (out / COLUMNS).glob("crc-*/*.parquet")}
    assert before.items() <= after.items() and len(after) == len(before) + 1
    frames = table(out, FRAMES)
    assert frames.num_rows == 37 and frames["twice"].to_pylist() == [2 * value for value in frames["crc"].to_pylist()]


@pytest.mark.heavy
def test_a_changed_setting_computes_again_what_depends_on_it(small, tmp_path, machines, serial):
    out = tmp_path / "out"
    steps = {"crc": ("Checksum", {}), "near": ("Neighbours", {}), "twice": ("Double", {})}
    Job(order(small, out, steps)).run()
    near = {p: p.stat().st_mtime_ns for p in (out / COLUMNS).glob("near-*/*.parquet")}
    Job(order(small, out, steps, settings=("crc.column=frame_4",))).run()
    assert {p: p.stat().st_mtime_ns for p in (out / COLUMNS).glob("near-*/*.parquet")} == near
    assert len(list((out / COLUMNS).glob("crc-*"))) == len(list((out / COLUMNS).glob("twice-*"))) == 2
    frames = table(out, FRAMES)
    assert frames.num_rows == 36 and frames["twice"].to_pylist() == [2 * value for value in frames["crc"].to_pylist()]


@pytest.mark.heavy
def test_encoded_files_lie_beside_the_tables_and_are_not_made_again(collection, tmp_path, machines, serial):
    flow = order(collection, tmp_path / "out", {}, settings=("flow.cache=true",))
    flow = replace(flow, pipeline=PipelineFile.model_validate({"steps": {"flow": {"use": "flow"}}}))
    Job(flow).run()
    paths = [path for path in table(tmp_path / "out", FRAMES)["flow_field"].to_pylist() if path]
    assert len(paths) == 11 and all((tmp_path / "out" / path).read_bytes()[:4] == b"\x89PNG" for path in paths)
    before = {path: (tmp_path / "out" / path).stat().st_mtime_ns for path in paths}
    photo(collection / "new.png", 1)
    try:
        Job(flow).run()
    finally:
        (collection / "new.png").unlink()
    assert {path: (tmp_path / "out" / path).stat().st_mtime_ns for path in paths} == before


@pytest.mark.heavy
def test_a_limited_run_then_the_whole(small, tmp_path, machines, serial):
    out = tmp_path / "out"
    few = replace(order(small, out, {"crc": ("Checksum", {})}), limit=2)
    assert Job(few).run().frames == 31
    assert Job(order(small, out, {"crc": ("Checksum", {})})).run().frames == 36
    assert Job(few).run().frames == 31
    assert check_output(Store(str(out)), read_run(str(out)).fingerprints, {}) == []


@pytest.mark.heavy
def test_shards_together_are_the_whole(small, tmp_path, machines, serial):
    whole = order(small, tmp_path / "out", {"crc": ("Checksum", {})})
    for request, frames in ((whole, 36), (replace(whole, limit=2), 31)):
        each = [replace(request, output=str(tmp_path / str(i)), shard=(i, 3)) for i in range(3)]
        shares = [Job(one).run().frames for one in each]
        assert sum(shares) == frames and max(shares) < 36
    for shard in ((0, 2), (1, 2), None):  # the last one has nothing left to do
        Job(replace(whole, shard=shard)).run()
    record = read_run(str(tmp_path / "out")).record
    assert record["shard"] is None and record["files"] == len(list(small.iterdir()))
