"""Through the real engine: every clip arrives whole, every frame exactly once, and both passes write all."""

from __future__ import annotations

import zlib
from collections import defaultdict
from contextlib import closing
from dataclasses import replace

import numpy as np
import pyarrow as pa
import pytest

from framekiln.contract.output_names import COLUMNS, FRAMES
from framekiln.engine.base import RunContext
from framekiln.engine.choice import make_engine
from framekiln.job import Job
from framekiln.media.discovery.listing import list_media
from framekiln.media.media_ids import media_id
from framekiln.media.units import Segments, form_units
from framekiln.output.ledger import Ledger
from framekiln.output.object_store import Store
from framekiln.planning.manifest import ProfileFile, read_pipeline
from framekiln.planning.plan import make_plan
from framekiln.planning.plan_options import PlanOptions
from framekiln.planning.processes.resources import ROOMY
from framekiln.profiling.stats.progress import RunTotals
from framekiln.runtime.worker import Worker
from tests.support.media.collections_factory import clip, frame, photo, recut
from tests.support.runs.engine_factory import ALL, order, rows, small, table
from tests.support.runs.units import ensure_units

__all__ = ["small"]

pytestmark = pytest.mark.slow


@pytest.mark.heavy
@pytest.mark.parametrize("collections", [28, pytest.param(200, marks=pytest.mark.chaos)])
def test_random_collections_arrive_whole(tmp_path, machines, engine, collections):
    rng = np.random.default_rng(7)
    truth: dict[str, int] = {}
    seeds: dict[str, int] = {}
    for number in range(collections):
        folder = tmp_path / "in" / f"{number % 4}" / f"{number:03}"
        for i in range(rng.integers(0, 5)):
            photo(folder / f"p{i}.png", seed := len(seeds))
            truth[f"{number:03}/p{i}.png"], seeds[f"{number:03}/p{i}.png"] = 1, seed
        for i in range(rng.integers(0 if (folder).exists() else 1, 3)):
            frames = int(rng.choice([2, 3, rng.integers(4, 40)]))
            clip(folder / f"c{i}.png", seed := len(seeds), frames)
            truth[f"{number:03}/c{i}.png"], seeds[f"{number:03}/c{i}.png"] = frames, seed
    assert len(truth) > 2 * collections
    cuts = [(1, 1), (3, 2), (8, 20), (64, 512)]  # frames of a clip, rows of a packet
    for share, (clip_frames, packet_rows) in enumerate(cuts):
        made = make_plan(
            order("", "", {"crc": ("Checksum", {}), "near": ("Neighbours", {})}).pipeline,
            ProfileFile(),
            PlanOptions(),
            machines,
        )
        config = replace(made.decode.config, clip_frames=clip_frames, packet_rows=packet_rows)
        made = recut(made, config)
        store = Store(str(tmp_path / f"out{share}"))
        media = list_media(str(tmp_path / "in" / str(share)))
        units = ensure_units(store, media, media, slots=4)
        context = RunContext(plan=made, store=store, on_events=lambda _: None)
        with closing(make_engine(engine, context, [], pytest.fail)) as running:
            running.first_pass(0, units, Ledger(store))
        check_collections(Ledger(store), store, made, units, truth, seeds, clip_frames)


def test_a_task_that_dies_costs_no_packet(tmp_path, machines, engine):
    clip(tmp_path / "in" / "clip.png", 5, 30)
    steps = {
        "crc": ("Checksum", {}),
        "near": ("Neighbours", {}),
        "dies": ("DiesOnce", {"at": 13, "mark": str(tmp_path / "died")}),
    }
    made = make_plan(order("", "", steps).pipeline, ProfileFile(), PlanOptions(), machines)
    made = recut(made, replace(made.decode.config, clip_frames=4, packet_rows=4))
    store = Store(str(tmp_path / "out"))
    media = list_media(str(tmp_path / "in"))
    units, totals = ensure_units(store, media, media, slots=1), RunTotals()
    context = RunContext(plan=made, store=store, on_events=totals.add)
    with closing(make_engine(engine, context, [], pytest.fail)) as running:
        running.first_pass(0, units, Ledger(store))
    assert (tmp_path / "died").exists() and len(totals.dead) == 1
    check_collections(Ledger(store), store, made, units, {"clip.png": 30}, {"clip.png": 5}, 4)
    assert all(Ledger(store).parts(folder, made.decode.folder, units[0].name) for folder in made.first_folders)


def check_collections(ledger, store, made, units, truth, seeds, clip_frames):
    seen = defaultdict(list)
    for unit in units:
        columns = [
            pa.concat_tables(
                [
                    store.read_table(f"{COLUMNS}/{s.folder}/{part.name}")
                    for part in ledger.parts(s.folder, made.decode.folder, unit.name)
                ]
            )
            for s in (made.decode, *made.first)
        ]
        for parts in zip(*(c.to_pylist() for c in columns), strict=True):
            row = parts[0] | parts[1] | parts[2]
            seen[row["media_id"]].append(row)
    assert {name: len(results) for name, results in seen.items()} == {name: truth[name] for name in seen}
    assert set(seen) == {m.media_id for unit in units for m in unit.media}
    for name, results in seen.items():
        crcs = [zlib.crc32(frame(seeds[name], i)) for i in range(len(results))]
        assert [row["frame_index"] for row in results] == list(range(len(results)))
        assert [row["crc"] for row in results] == crcs
        assert [row["next_crc"] for row in results] == [*crcs[1:], None]
        lengths = np.bincount([row["clip_index"] for row in results])
        assert max(lengths) <= clip_frames
        for row in results:
            more = row["clip_index"] < len(lengths) - 1  # the call saw one frame of the next clip
            assert row["call_rows"] == lengths[row["clip_index"]] + more


def test_a_unit_is_finished_before_its_last_packet_is_handed_on(small, tmp_path):
    made = make_plan(order("", "", {"crc": ("Checksum", {})}).pipeline, ProfileFile(), PlanOptions(), [ROOMY])
    store, media = Store(str(tmp_path / "out")), list_media(str(small))
    (unit,) = form_units(media, slots=1)[:1]
    worker = Worker(made.first, store)
    packets = worker.decode(made.decode, unit, Segments(), frozenset())
    rows = next(packets).rows.num_rows
    assert Ledger(store).has(made.waves[0].folders, unit.name)  # and nobody has asked for more
    assert rows == Ledger(store).total(made.decode.folder, unit.name)
    parts = {path: path.stat().st_ino for path in (tmp_path / "out" / "columns").glob("*/*")}
    assert not list(packets)
    assert parts == {path: path.stat().st_ino for path in parts}, "a part was written twice"


@pytest.mark.heavy
def test_hostile_names_travel(tmp_path, machines, on_ray):
    names = ["a b.png", "new\nline.png", "right\u202eto left.png", "100%.png", "<b>&.png", "ünï.png"]
    for i, name in enumerate(names):
        photo(tmp_path / "in" / name, i)
    Job(order(tmp_path / "in", tmp_path / "out", {"crc": ("Checksum", {})})).run()
    results = table(tmp_path / "out", FRAMES).select(["media_id", "crc"]).to_pylist()
    expected = {media_id(name): zlib.crc32(frame(i, 0)) for i, name in enumerate(names)}
    assert {row["media_id"]: row["crc"] for row in results} == expected and len(results) == 6


# Processes


@pytest.mark.heavy
def test_steps_in_one_process_say_what_they_say_apart(small, tmp_path, machines, on_ray):
    apart = order(small, tmp_path / "apart", ALL)
    entries = {name: {"group": "card"} for name in ("crc", "near", "twice")}
    together = replace(apart, output=str(tmp_path / "together"), profile=ProfileFile.model_validate({"steps": entries}))
    for request in (apart, together):
        Job(request).run()
    for folder in (FRAMES, "counts", "everything"):
        results = [
            table(request.output, folder) if folder == FRAMES else rows(request.output, folder)
            for request in (apart, together)
        ]
        assert results[0].num_rows and results[0].equals(results[1]), folder


@pytest.mark.heavy
def test_a_model_has_processes_of_its_own(collection, tmp_path, machines, on_ray):
    shared = ProfileFile.model_validate(
        {"defaults": {"workers": "auto"}}
    )  # as many as decode workers: in their process
    whole = order(collection, tmp_path / "out", {}, missing_weights="skip", stages=("lighting", "pose"))
    whole = replace(whole, pipeline=read_pipeline(None), profile=shared)
    steps = Job(whole).run().figures.steps
    assert steps["decode"].workers & steps["lighting"].workers == steps["decode"].workers
    assert not steps["decode"].workers & steps["pose"].workers
    schema = table(tmp_path / "out", FRAMES).schema
    assert schema.field("exposure").metadata[b"unit"] == b"stop"
    assert all(schema.field(name).metadata[b"description"] for name in schema.names)


# Tables


def test_tables_of_both_passes(small, tmp_path, machines, engine):
    result = Job(order(small, tmp_path / "out", ALL)).run()
    frames = table(tmp_path / "out", FRAMES)
    assert result.frames == frames.num_rows == 36
    assert frames["twice"].to_pylist() == [2 * value for value in frames["crc"].to_pylist()]
    store = Store(str(tmp_path / "out"))
    counts = pa.concat_tables([store.read_table(f"counts/{name}") for name in store.names("counts")])
    assert sorted(counts["frames"].to_pylist()) == [1] * 6 + [30]
    assert [store.read_table(f"everything/{name}").to_pylist() for name in store.names("everything")] == [
        [{"frames": 36}]
    ]


@pytest.mark.heavy
def test_tables_of_steps_before_are_given_file_by_file(small, tmp_path, machines, local):
    out = tmp_path / "out"
    steps = {"total": ("Total", {}), "share": ("Shares", {}), **ALL}
    Job(order(small, out, steps)).run()
    shares = rows(out, "shares").to_pylist()
    assert len(shares) == 7 and all(row["given"] == [row["media_id"]] and row["share"] == 1.0 for row in shares)
    assert rows(out, "totals").to_pylist() == [{"counted": 36, "frames": 36}]
    before = {path: path.stat().st_mtime_ns for path in out.rglob("*.parquet")}
    photo(small / "more.png", 99)
    Job(order(small, out, steps)).run()
    assert rows(out, "shares").num_rows == 8 and rows(out, "totals").to_pylist() == [{"counted": 37, "frames": 37}]
    kept = {path for path in before if path.parent.name == "shares" and path.exists()}
    assert kept and all(path.stat().st_mtime_ns == before[path] for path in kept)
    assert not Job(order(small, out, steps)).run().work.left
