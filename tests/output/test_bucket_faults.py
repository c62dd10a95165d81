"""A bucket in trouble makes a run slower and never wrong: refusals, resets, cut answers, stalls, listings that lag."""

from __future__ import annotations

import os
import pickle
import tarfile
import time
from collections import Counter, OrderedDict
from dataclasses import replace

import numpy as np
import pytest

from framekiln.contract.errors import OutputError
from framekiln.contract.output_names import FRAMES
from framekiln.job import Job
from framekiln.media import block_cache
from framekiln.media.config import DecodeConfig
from framekiln.media.discovery.listing import list_media
from framekiln.media.network import Network, network
from framekiln.media.packets.decode import decode
from framekiln.media.units import Unit, split_unit
from framekiln.output.object_store import Store
from framekiln.planning.manifest import ProfileFile
from framekiln.profiling.record_log import runs
from tests.support.errors import fails
from tests.support.machine.command_line import command
from tests.support.machine.object_server import Objects, served
from tests.support.media.collections_factory import photo
from tests.support.media.media_factory import click, film
from tests.support.media.segmented_films import SMALL, sample_film
from tests.support.runs.engine_factory import order
from tests.support.runs.serial_engine import without_ray

FAULTS = ("slow-down", "reset", pytest.param("cut", marks=pytest.mark.heavy))
STEPS = {"crc": ("Checksum", {})}
_NO_RETRIES = ProfileFile.model_validate({"network": {"retries": 0, "timeout_s": 2.0}})


@pytest.fixture(autouse=True)
def rules(monkeypatch):
    monkeypatch.setenv("FRAMEKILN_NETWORK", "{}")  # what a test changes ends with it


@pytest.fixture
def folder(tmp_path):
    for number in range(3):
        photo(tmp_path / "in" / f"{number}.png", number)
    return tmp_path / "in"


@pytest.fixture
def bucket(folder):
    with served(Objects(files={f"in/{path.name}": path.read_bytes() for path in folder.iterdir()})) as objects:
        yield objects


def trouble(bucket, fault, *, often=1, among=""):
    """Answer the first requests of each kind and key with a fault."""
    seen = Counter()

    def before(method, key):
        seen[method, key] += 1
        return fault if key.startswith(among) and seen[method, key] <= often else None

    bucket.before = before


def decoded(source):
    unit = source if isinstance(source, Unit) else Unit(name="u", media=tuple(list_media(source)))
    packets = list(decode(unit, ("frame", "sound"), 0, DecodeConfig()))
    failures = {failure.media_id: (failure.kind, failure.message) for packet in packets for failure in packet.failures}
    return [row for packet in packets for row in packet.rows.to_pylist()], failures


@pytest.mark.parametrize("fault", FAULTS)
def test_photos_and_objects_are_whole_after_a_fault(folder, bucket, fault):
    expected = decoded(str(folder))
    bucket.files["out/tiny.json"] = b"7"  # shorter than the text of a refusal
    trouble(bucket, fault)
    assert decoded(bucket.url.format("in")) == expected
    store = Store(bucket.url.format("out"))
    store.write("parts/a", b"a" * 100_000)
    assert (store.read_json("tiny.json"), store.read("parts/a")) == (7, b"a" * 100_000)
    assert store.names("parts") == ["a"]


@pytest.mark.parametrize("fault", FAULTS)
def test_a_bucket_that_stays_in_trouble_is_an_error_row_or_a_sentence(bucket, fault):
    Network(retries=0, timeout_s=2.0).use()
    trouble(bucket, fault, often=9, among="in/1")
    rows, failures = decoded(bucket.url.format("in"))
    assert {row["media_id"] for row in rows} == {"0.png", "2.png"}
    assert failures["1.png"][0] == "unreachable" and "AWS Error" in failures["1.png"][1]
    bucket.files["out/a"] = b"a" * 1000
    trouble(bucket, fault, often=9)
    store = Store(bucket.url.format("out"))
    with fails("FK-OUTPUT-UNREADABLE", "network: retries"):
        store.read("a")
    if fault != "cut":
        with fails("FK-INPUT-UNREADABLE", "`retries`"):
            list_media(bucket.url.format("in"))
        with fails("FK-OUTPUT-NOT-WRITABLE", "network: retries"):
            store.write("b", b"b")


@pytest.mark.parametrize("asked", [("HEAD", "GET"), ("GET",)])
def test_a_film_is_whole_or_out_of_reach_whichever_request_fails(folder, bucket, asked, monkeypatch):
    Network(retries=0, timeout_s=2.0).use()
    monkeypatch.setattr(block_cache, "_WAIT_S", 0.01)
    monkeypatch.setattr(block_cache, "_BLOCK", 1 << 13)
    monkeypatch.setattr(block_cache, "_blocks", OrderedDict())
    path = film(folder / "film.mkv", [np.full((48, 64, 3), 9 * n, np.uint8) for n in range(12)], sound=click(0.2, 0.5))
    bucket.files = {"in/film.mkv": path.read_bytes()}
    unit = Unit(name="u", media=tuple(list_media(bucket.url.format("in"))))
    whole, _ = decoded(unit)
    wrong = []
    for number in range(len(bucket.requests)):
        block_cache._blocks.clear()
        left = iter(range(number))
        bucket.before = lambda kind, _, left=left: "slow-down" if kind in asked and next(left, None) is None else None
        rows, failures = decoded(unit)
        kinds = {kind for kind, _ in failures.values()}
        if kinds != {"unreachable"} and (rows != whole or kinds):
            wrong.append((number, len(rows), failures))
    assert not wrong and len(whole) == 12 and whole[0]["sound"]


@pytest.mark.parametrize("name", ["no reordering"])
def test_a_segment_that_cannot_be_opened_makes_the_film_an_error(bucket, name):
    path = sample_film(name)
    Network(retries=0, timeout_s=2.0).use()
    bucket.files = {"in/film.mov": path.read_bytes()}
    unit = Unit(name="u", media=tuple(list_media(bucket.url.format("in"))))
    third = split_unit(unit, unit.media[0].size // 3)[2]
    bucket.before = lambda *_: "slow-down"
    (packet,) = decode(unit, ("frame",), 0, DecodeConfig(**SMALL), third)
    assert (packet.start, packet.stop, packet.ends) == (0, 0, False)
    assert [failure.kind for failure in packet.failures] == ["unreachable"]


def test_a_page_of_a_listing_that_fails_ends_the_listing(bucket):
    Network(retries=0, timeout_s=2.0).use()
    bucket.page = 1
    assert len(list_media(bucket.url.format("in"))) == 3
    for number in range(len(bucket.requests)):
        left = iter(range(number))
        bucket.before = lambda *_, left=left: "slow-down" if next(left, None) is None else None
        with fails("FK-INPUT-UNREADABLE", "`retries`"):
            list_media(bucket.url.format("in"))


def test_an_archive_and_a_sidecar_out_of_reach_are_no_files_without_content(folder, bucket, tmp_path):
    with tarfile.open(tmp_path / "a.tar", "w") as archive:
        archive.add(folder / "0.png", "0.png")
    Network(retries=0, timeout_s=2.0).use()
    bucket.files["in/a.tar"] = (tmp_path / "a.tar").read_bytes()
    bucket.before = lambda method, key: "slow-down" if (method, key) == ("GET", "in/a.tar") else None
    with fails("FK-INPUT-UNREADABLE", "`retries`"):
        list_media(bucket.url.format("in"))
    bucket.files = {"in/0.png": bucket.files["in/0.png"], "in/0.xmp": b"<x:xmpmeta/>"}
    unit = Unit(name="u", media=tuple(list_media(bucket.url.format("in")))[:1])
    bucket.before = lambda _, key: "slow-down" if key == "in/0.xmp" else None
    assert [packet.failures[0].kind for packet in decode(unit, ("tags",), 0, DecodeConfig())] == ["unreachable"]


def test_the_next_run_reads_what_was_out_of_reach(bucket):
    Network(retries=0, timeout_s=2.0).use()
    wanted = replace(order(bucket.url.format("in"), bucket.url.format("out"), STEPS), profile=_NO_RETRIES)
    trouble(bucket, "slow-down", often=9, among="in/1")
    with without_ray():
        result = Job(wanted).run()
        assert (result.frames, result.errors) == (2, {"unreachable": 1})
        bucket.before = lambda *_: None
        more = order(bucket.url.format("in"), bucket.url.format("out"), STEPS | {"near": ("Neighbours", {})})
        result = Job(more).run()
    assert (result.frames, sum(result.errors.values())) == (3, 0)


@pytest.mark.heavy
def test_a_run_without_some_files_of_a_bucket_ends_with_a_code_of_its_own(bucket, tmp_path):
    (tmp_path / "pipeline.yaml").write_text("steps: {crc: {use: 'tests.toys:Checksum'}}")
    (tmp_path / "profile.yaml").write_text("network: {retries: 0}")
    trouble(bucket, "slow-down", often=9, among="in/1")
    files = ["--pipeline", tmp_path / "pipeline.yaml", "--profile", tmp_path / "profile.yaml"]
    words = ["run", bucket.url.format("in"), tmp_path / "out", *files, "--engine", "local"]
    done = command(*words)
    assert done.returncode == 5 and "1 row of errors/ is unreachable" in done.stderr, done.stderr
    bucket.before = lambda *_: None
    done = command(*words)
    assert done.returncode == 0, done.stderr


def test_what_a_bucket_does_not_allow_is_no_matter_of_waiting(bucket):
    bucket.before = lambda method, key: "denied" if method == "DELETE" or key.startswith("out/secret") else None
    store = Store(bucket.url.format("out"))
    with fails("FK-OUTPUT-NOT-WRITABLE", "permissions"):
        store.prepare()
    with fails("FK-OUTPUT-UNREADABLE", "permissions"):
        store.read("secret")


def test_an_answer_slower_than_the_limit_is_unreadable_and_a_slow_one_is_read(folder, bucket):
    Network(retries=0, timeout_s=1.0).use()
    bucket.before = lambda _, key: time.sleep({"in/0.png": 0.2, "in/1.png": 2.5}.get(key, 0))
    rows, failures = decoded(bucket.url.format("in"))
    assert {row["media_id"] for row in rows} == {"0.png", "2.png"} and failures["1.png"][0] == "unreachable"


@pytest.mark.heavy
def test_listings_that_lag_leave_a_run_its_rows(folder, bucket, tmp_path):
    """Objects are listed some requests after they were written, and some requests after they were deleted."""
    steps = {"crc": ("Checksum", {})}
    whole = Job(order(folder, tmp_path / "whole", steps))
    with without_ray():
        whole.run()
    bucket.lag = 12
    wanted = order(folder, bucket.url.format("out"), steps)
    for _ in range(3):
        try:
            with without_ray():
                Job(wanted).run()
            break
        except OutputError as error:  # it says what to do, and the same command again does it
            assert "again" in str(error)
    bucket.lag = 0
    with without_ray():
        assert Job(wanted).run().frames == 3
    table = Store(bucket.url.format("out")).dataset(FRAMES, None).to_table(columns=["media_id", "crc"])
    expected = Store(str(tmp_path / "whole")).dataset(FRAMES, None).to_table(columns=["media_id", "crc"])
    assert table.sort_by("media_id").to_pylist() == expected.sort_by("media_id").to_pylist()


@pytest.mark.heavy
def test_processes_of_a_few_seconds_leave_their_records(folder, bucket):
    wanted = order(folder, bucket.url.format("out"), {"crc": ("Checksum", {})})
    assert Job(replace(wanted, engine="local")).run().frames == 3
    assert runs(Store(bucket.url.format("out")))


def test_a_worker_of_a_cluster_gets_the_rules_with_its_store(monkeypatch, tmp_path):
    rules = Network(timeout_s=7.0, retries=1, user_agent="mine")
    rules.use()
    sent = pickle.dumps(Store(str(tmp_path)).of_run("ab12"))
    monkeypatch.delenv("FRAMEKILN_NETWORK")  # as in a process of another machine, which our environment does not reach
    assert network() == Network()
    assert pickle.loads(sent).run == "ab12" and network() == rules
    Network().use()
    pickle.loads(pickle.dumps(Store(str(tmp_path))))
    assert "FRAMEKILN_NETWORK" not in os.environ


def test_a_file_that_trickles_is_unreachable(bucket):
    Network(retries=0, timeout_s=2.0).use()
    bucket.files["in/1.png"] = bytes(4000)
    bucket.before = lambda method, key: "trickle" if (method, key) == ("GET", "in/1.png") else None
    rows, failures = decoded(bucket.url.format("in"))
    assert {row["media_id"] for row in rows} == {"0.png", "2.png"} and failures["1.png"][0] == "unreachable"
