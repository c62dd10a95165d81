"""Through the real engine: every clip arrives whole, every frame exactly once, and what is done is not done again."""

from __future__ import annotations

import zlib
from collections import defaultdict
from dataclasses import replace

import numpy as np
import pyarrow as pa
import pytest

from pipeline.engine import Engine, session
from pipeline.errors import ContractError, SetupError
from pipeline.job import Job
from pipeline.ledger import COLUMNS, Ledger, cover
from pipeline.machines import ROOMY
from pipeline.manifest import PipelineFile, ProfileFile, read_pipeline
from pipeline.media.listing import list_media
from pipeline.media.units import form_units
from pipeline.order import Order
from pipeline.plan import Choices, make_plan
from pipeline.second import ERRORS, FRAMES
from pipeline.step import DUMMY
from pipeline.storage import Store
from pipeline.worker import Worker
from tests.collections_factory import clip, frame, photo, recut

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def nodes():
    with session(None) as machines:
        yield machines


def order(folder, out, steps, **choices):
    entries = {name: {"use": f"tests.toys:{kind}", "with": settings} for name, (kind, settings) in steps.items()}
    return Order(
        input=str(folder),
        output=str(out),
        pipeline=PipelineFile.model_validate({"steps": entries}),
        profile=ProfileFile(),
        profile_name="none",
        choices=Choices(**choices),
    )


def table(out, folder):
    store = Store(str(out))
    names = store.names(folder)
    return pa.concat_tables([store.read_table(f"{folder}/{name}") for name in names]).sort_by(
        [(k, "ascending") for k in ("media_id", "frame_index")]
    )


@pytest.fixture
def small(tmp_path):
    for i in range(6):
        photo(tmp_path / "in" / f"photo{i}.png", i)
    clip(tmp_path / "in" / "clip.png", 100, 30)
    return tmp_path / "in"


ALL = {
    "crc": ("Checksum", {}),
    "near": ("Neighbours", {}),
    "twice": ("Double", {}),
    "count": ("Count", {}),
    "all": ("Everything", {}),
}


@pytest.mark.parametrize("collections", [60, pytest.param(200, marks=pytest.mark.chaos)])
def test_random_collections_arrive_whole(tmp_path, nodes, collections):
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
            Choices(),
            nodes,
        )
        config = replace(made.decode.config, clip_frames=clip_frames, packet_rows=packet_rows)
        made = recut(made, config)
        store = Store(str(tmp_path / f"out{share}"))
        media = list_media(str(tmp_path / "in" / str(share)))
        units = cover(store, media, media, slots=4)
        Engine(made, store, lambda _: None).first_pass(0, units, Ledger(store))
        check_collections(Ledger(store), store, made, units, truth, seeds, clip_frames)


def test_a_task_that_dies_costs_no_packet(tmp_path, nodes):
    clip(tmp_path / "in" / "clip.png", 5, 30)
    steps = {
        "crc": ("Checksum", {}),
        "near": ("Neighbours", {}),
        "dies": ("DiesOnce", {"at": 13, "mark": str(tmp_path / "died")}),
    }
    made = make_plan(order("", "", steps).pipeline, ProfileFile(), Choices(), nodes)
    made = recut(made, replace(made.decode.config, clip_frames=4, packet_rows=4))
    store = Store(str(tmp_path / "out"))
    media = list_media(str(tmp_path / "in"))
    units = cover(store, media, media, slots=1)
    Engine(made, store, lambda _: None).first_pass(0, units, Ledger(store))
    assert (tmp_path / "died").exists()
    check_collections(Ledger(store), store, made, units, {"clip.png": 30}, {"clip.png": 5}, 4)
    assert all(Ledger(store).parts(folder, made.decode.folder, units[0].name) for folder in made.first_folders)


def test_errors_beside_random_weights_are_marked_too(small, tmp_path):
    steps = {"picky": ("Picky", {"refuse": (3,)}), "seeded": ("Seeded", {})}
    Job(order(small, tmp_path / "out", steps, missing_weights="dummy")).run()
    store = Store(str(tmp_path / "out"))
    found = [store.read_table(f"{ERRORS}/{name}") for name in store.names(ERRORS)]
    assert found and all(one.schema.metadata[DUMMY.encode()] == b"seeded" for one in found)


def test_steps_in_one_process_say_what_they_say_apart(small, tmp_path):
    apart = order(small, tmp_path / "apart", ALL)
    entries = {name: {"group": "card"} for name in ("crc", "near", "twice")}
    together = replace(apart, output=str(tmp_path / "together"), profile=ProfileFile.model_validate({"steps": entries}))
    for one in (apart, together):
        Job(one).run()
    for folder in (FRAMES, "counts", "everything"):
        found = [
            table(one.output, folder) if folder == FRAMES else rows(one.output, folder) for one in (apart, together)
        ]
        assert found[0].num_rows and found[0].equals(found[1]), folder


def rows(out, folder):
    store = Store(str(out))
    return pa.concat_tables([store.read_table(f"{folder}/{name}") for name in store.names(folder)])


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
        for rows in zip(*(c.to_pylist() for c in columns), strict=True):
            row = rows[0] | rows[1] | rows[2]
            seen[row["media_id"]].append(row)
    assert {name: len(rows) for name, rows in seen.items()} == {name: truth[name] for name in seen}
    assert set(seen) == {m.media_id for unit in units for m in unit.media}
    for name, rows in seen.items():
        crcs = [zlib.crc32(frame(seeds[name], i)) for i in range(len(rows))]
        assert [row["frame_index"] for row in rows] == list(range(len(rows)))
        assert [row["crc"] for row in rows] == crcs
        assert [row["next_crc"] for row in rows] == [*crcs[1:], None]
        lengths = np.bincount([row["clip_index"] for row in rows])
        assert max(lengths) <= clip_frames
        for row in rows:
            more = row["clip_index"] < len(lengths) - 1  # the call saw one frame of the next clip
            assert row["call_rows"] == lengths[row["clip_index"]] + more


def test_tables_of_both_passes(small, tmp_path, nodes):
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


def test_tables_of_steps_before_are_given_file_by_file(small, tmp_path, nodes):
    out = tmp_path / "out"
    steps = {"total": ("Total", {}), "share": ("Shares", {}), **ALL}
    Job(order(small, out, steps)).run()
    given = rows(out, "shares").to_pylist()
    assert len(given) == 7 and all(row["given"] == [row["media_id"]] and row["share"] == 1.0 for row in given)
    assert rows(out, "totals").to_pylist() == [{"counted": 36, "frames": 36}]
    before = {path: path.stat().st_mtime_ns for path in out.rglob("*.parquet")}
    photo(small / "more.png", 99)
    Job(order(small, out, steps)).run()
    assert rows(out, "shares").num_rows == 8 and rows(out, "totals").to_pylist() == [{"counted": 37, "frames": 37}]
    kept = {path for path in before if path.parent.name == "shares" and path.exists()}
    assert kept and all(path.stat().st_mtime_ns == before[path] for path in kept)
    assert not Job(order(small, out, steps)).run().work.left


def test_a_second_run_has_nothing_to_do_and_changes_nothing(small, tmp_path, nodes):
    Job(order(small, tmp_path / "out", ALL)).run()
    before = {p: p.stat().st_mtime_ns for p in (tmp_path / "out").rglob("*.parquet")}
    result = Job(order(small, tmp_path / "out", ALL)).run()
    assert not result.work.left
    assert {p: p.stat().st_mtime_ns for p in (tmp_path / "out").rglob("*.parquet")} == before


def test_an_added_step_and_an_added_file_cost_only_themselves(small, tmp_path, nodes):
    out = tmp_path / "out"
    Job(order(small, out, {"crc": ("Checksum", {})})).run()
    before = {p: p.stat().st_mtime_ns for p in (out / COLUMNS).glob("crc-*/*.parquet")}
    photo(small / "zz.png", 55)
    Job(order(small, out, {"crc": ("Checksum", {}), "twice": ("Double", {})})).run()
    after = {p: p.stat().st_mtime_ns for p in (out / COLUMNS).glob("crc-*/*.parquet")}
    assert before.items() <= after.items() and len(after) == len(before) + 1
    frames = table(out, FRAMES)
    assert frames.num_rows == 37 and frames["twice"].to_pylist() == [2 * value for value in frames["crc"].to_pylist()]


def test_a_changed_setting_computes_again_what_depends_on_it(small, tmp_path, nodes):
    out = tmp_path / "out"
    steps = {"crc": ("Checksum", {}), "near": ("Neighbours", {}), "twice": ("Double", {})}
    Job(order(small, out, steps)).run()
    near = {p: p.stat().st_mtime_ns for p in (out / COLUMNS).glob("near-*/*.parquet")}
    Job(order(small, out, steps, settings=("crc.column=frame_4",))).run()
    assert {p: p.stat().st_mtime_ns for p in (out / COLUMNS).glob("near-*/*.parquet")} == near
    assert len(list((out / COLUMNS).glob("crc-*"))) == len(list((out / COLUMNS).glob("twice-*"))) == 2
    frames = table(out, FRAMES)
    assert frames.num_rows == 36 and frames["twice"].to_pylist() == [2 * value for value in frames["crc"].to_pylist()]


def test_a_limited_run_then_the_whole(small, tmp_path, nodes):
    out = tmp_path / "out"
    few = replace(order(small, out, {"crc": ("Checksum", {})}), limit=2)
    assert Job(few).run().frames == 31
    assert Job(order(small, out, {"crc": ("Checksum", {})})).run().frames == 36
    assert Job(few).run().frames == 31


def test_shards_together_are_the_whole(small, tmp_path, nodes):
    whole = order(small, tmp_path / "out", {"crc": ("Checksum", {})})
    shares = [Job(replace(whole, output=str(tmp_path / str(i)), shard=(i, 3))).run().frames for i in range(3)]
    assert sum(shares) == 36 and max(shares) < 36


def test_a_row_that_makes_a_stage_raise_is_alone_to_blame(small, tmp_path, nodes):
    out = tmp_path / "out"
    result = Job(order(small, out, {"crc": ("Picky", {"refuse": (3, 17)}), "twice": ("Double", {})})).run()
    frames = table(out, FRAMES)
    expected = [None if i in (3, 17) else i for i in range(30)]
    assert frames["crc"].to_pylist()[:30] == expected
    assert frames["twice"].to_pylist()[:30] == [None if i is None else 2 * i for i in expected]
    errors = table(out, ERRORS).to_pylist()
    assert [(e["media_id"], e["frame_index"], e["step"], e["kind"]) for e in errors] == [
        ("clip.png", i, "crc", "ValueError") for i in (3, 17)
    ]
    assert "not to my taste" in errors[0]["message"] and "faulty.py" in errors[0]["traceback"]
    assert result.errors == {"ValueError": 2}


def test_a_stage_that_lies_stops_the_run(small, tmp_path, nodes):
    with pytest.raises(
        ContractError, match=r"Step 'liar' broke its promise.\ndeclared: promised int64\nreturned: delivered int32"
    ):
        Job(order(small, tmp_path / "out", {"liar": ("Liar", {})})).run()


@pytest.mark.parametrize("device", ["cpu", "cuda"])  # a task, and a process of its own
def test_a_stage_that_cannot_be_set_up_stops_the_run(small, tmp_path, nodes, device):
    wanted = order(small, tmp_path / "out", {"odd": ("Unready", {})}, device=device)
    with pytest.raises(SetupError, match="Step 'odd' could not be set up: RuntimeError: the model is upside down"):
        Job(wanted).run()


def test_bad_files_are_lines_in_errors(small, tmp_path, nodes):
    (small / "broken.png").write_bytes(b"\x89PNG\r\n\x1a\n" + b"x" * 40)
    (small / "empty.jpg").write_bytes(b"")  # the only one of its unit
    result = Job(order(small, tmp_path / "out", ALL)).run()
    assert not Job(order(small, tmp_path / "out", ALL)).run().work.left
    errors = table(tmp_path / "out", ERRORS).to_pylist()
    assert {e["media_id"] for e in errors} == {"broken.png", "empty.jpg"} and all(e["step"] == "decode" for e in errors)
    assert result.frames == 36


def test_encoded_files_lie_beside_the_tables_and_are_not_made_again(collection, tmp_path, nodes):
    flow = order(collection, tmp_path / "out", {}, settings=("flow.cache=true",))
    flow = replace(flow, pipeline=PipelineFile.model_validate({"steps": {"flow": {"use": "stages.flow:Flow"}}}))
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


def test_a_model_has_processes_of_its_own(collection, tmp_path, nodes):
    shared = ProfileFile.model_validate({"defaults": {"workers": "auto"}})  # as many as loaders: in their process
    whole = order(collection, tmp_path / "out", {}, missing_weights="skip")
    whole = replace(whole, pipeline=read_pipeline(None), profile=shared)
    steps = Job(whole).run().figures.steps
    assert steps["decode"].workers & steps["lighting"].workers == steps["decode"].workers
    assert not steps["decode"].workers & steps["pose"].workers
    schema = table(tmp_path / "out", FRAMES).schema
    assert schema.field("exposure").metadata[b"unit"] == b"stop"
    assert all(schema.field(name).metadata[b"description"] for name in schema.names)


def test_hostile_names_travel(tmp_path, nodes):
    for i, name in enumerate(["a b.png", "new\nline.png", "right\u202eto left.png", "100%.png", "<b>&.png", "ünï.png"]):
        photo(tmp_path / "in" / name, i)
    Job(order(tmp_path / "in", tmp_path / "out", {"crc": ("Checksum", {})})).run()
    assert table(tmp_path / "out", FRAMES).num_rows == 6


def test_a_unit_is_finished_before_its_last_packet_is_handed_on(small, tmp_path):
    made = make_plan(order("", "", {"crc": ("Checksum", {})}).pipeline, ProfileFile(), Choices(), [ROOMY])
    store, media = Store(str(tmp_path / "out")), list_media(str(small))
    (unit,) = form_units(media, slots=1)[:1]
    worker = Worker(made.first, store, lambda _: None)
    packets = worker.decode(made.decode, unit, 0, frozenset())
    rows = next(packets).rows.num_rows
    assert Ledger(store).has(made.waves[0].folders, unit.name)  # and nobody has asked for more
    assert rows == Ledger(store).total(made.decode.folder, unit.name) and not list(packets)
