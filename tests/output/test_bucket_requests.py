"""Requests to a bucket: a small object is one, a heartbeat two, and a listing that lags ends no run."""

from __future__ import annotations

import pytest

from framekiln.contract.errors import OutputError
from framekiln.output.lease import Lease
from framekiln.output.object_store import Store
from tests.support.machine.object_server import Objects, served


@pytest.fixture
def bucket():
    with served(Objects()) as objects:
        yield objects


def test_a_small_object_is_one_request_and_a_large_one_is_whole(bucket):
    store = Store(bucket.url.format("out"))
    assert bucket.count(lambda: store.write("a/b.bin", b"small")) == [("PUT", "out/a/b.bin")]
    large = b"large" * 3_000_000
    store.write("a/c.bin", large)
    assert bucket.files["out/a/c.bin"] == large and store.read("a/b.bin") == b"small"


def test_a_part_of_a_run_is_one_request_between_looks_for_it_and_for_the_fence(bucket):
    store = Store(bucket.url.format("out")).of_run("ab12").begin()
    place = "out/a/b.bin"
    wanted = [("HEAD", place), ("PUT", place), ("HEAD", "out/.tmp-ab12")]
    assert bucket.count(lambda: store.write("a/b.bin", b"small")) == wanted
    assert bucket.count(lambda: store.exists("a/c.bin")) == [("HEAD", "out/a/c.bin")]
    assert (store.exists("a/b.bin"), store.exists("a/c.bin"), store.exists("a")) == (True, False, False)


def test_an_output_with_an_empty_part_in_its_key_is_refused(bucket):
    with pytest.raises(OutputError) as refused:
        Store(bucket.url.format("a//out")).check_folder()
    assert refused.value.code == "FK-OUTPUT-ADDRESS"


def test_a_heartbeat_is_two_requests_to_a_bucket(bucket):
    with Lease(Store(bucket.url.format("out")), heartbeat_seconds=600) as lease:
        beats = bucket.count(lambda: (lease._is_replaced(), lease._update(renew=True, beat=7)))
        assert beats == [("GET", ""), ("PUT", f"out/run.lease-{lease.run}.json")]
        assert b'"beat": 7' in bucket.files[beats[1][1]]
    assert not any("lease" in key for key in bucket.files)


@pytest.mark.parametrize("gone", ["out/run.lease-{}.json", "out/.tmp-{}"])
def test_a_listing_that_lags_ends_no_run_and_a_fence_does(bucket, monkeypatch, gone):
    with Lease(Store(bucket.url.format("out")), heartbeat_seconds=600) as lease:
        monkeypatch.setattr(Store, "names", lambda *_, **__: [])
        assert not lease._is_replaced()
        bucket.files.pop(gone.format(lease.run))
        assert lease._is_replaced()
