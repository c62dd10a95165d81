"""The weights lockfile: the shipped one is valid, and mistakes are reported with their place."""

from __future__ import annotations

import pytest

from framekiln.weights.lockfile import load_lock
from framekiln.weights.resolver import default_lock, resolve
from tests.support.errors import fails
from tests.support.runs.weights_factory import body, bundle_source, lock_of


def test_the_shipped_lockfile_is_valid():
    lock = default_lock()
    models = {f"pose_landmarker_{name}" for name in ("full_bundled", "lite", "full", "heavy")}
    assert models <= set(lock)
    assert all(name == entry.name and entry.licence for name, entry in lock.items())
    assert len({entry.sha256 for entry in lock.values()}) == len(lock)


@pytest.mark.parametrize(
    ("change", "value"),
    [
        ({"license": "MIT"}, "'licence'"),
        ({"sha256": "abc"}, "toy.sha256"),
        ({"bytes": 0}, "toy.bytes"),
        ({"file": "../escape.bin"}, "toy.file"),
        ({"sources": []}, "toy.sources"),
        ({"sources": [{"kind": "url", "url": "http://plain.example.org"}]}, "url"),
        ({"sources": [bundle_source() | {"verison": "1"}]}, "'version'"),
        ({"sources": [{"kind": "ftp"}]}, "'bundle'"),
    ],
)
def test_a_mistake_in_the_lockfile_is_reported_with_its_place(change, value):
    with fails("FK-LOCKFILE-INVALID", value):
        lock_of(body() | change)


@pytest.mark.parametrize("text", ["[1, 2]", "a: [", "toy: 3", "toy: {}"])
def test_other_files_are_rejected(text):
    with fails("FK-NOT-YAML" if text == "a: [" else "FK-LOCKFILE-INVALID"):
        load_lock(text)


def test_two_entries_cannot_share_a_file():
    with fails("FK-LOCKFILE-INVALID", "'one.bin'"):
        lock_of(body("one"), body("two", file="one.bin"))


def test_an_unknown_name_gets_a_suggestion():
    with fails("FK-UNKNOWN-WEIGHTS", "'pose_landmarker_lite'"):
        resolve(["pose_landmarker_lit"])
