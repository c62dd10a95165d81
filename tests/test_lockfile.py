"""The lockfile of weights: the one that ships is sound, and a slip in another is refused with its place."""

from __future__ import annotations

import pytest

from pipeline.errors import ConfigError, WeightsError
from pipeline.weights import default_lock, fingerprint, load_lock, resolve
from tests.weights_factory import body, bundle_source, lock_of


def test_the_shipped_lockfile_is_sound():
    lock = default_lock()
    assert {
        "pose_landmarker_full_bundled",
        "pose_landmarker_lite",
        "pose_landmarker_full",
        "pose_landmarker_heavy",
    } <= set(lock)
    assert all(fingerprint(name) == entry.sha256 and entry.licence for name, entry in lock.items())
    assert len({entry.sha256 for entry in lock.values()}) == len(lock)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"license": "MIT"}, "unknown key 'license'. Did you mean 'licence'?"),
        ({"sha256": "abc"}, "toy.sha256"),
        ({"bytes": 0}, "toy.bytes"),
        ({"file": "../escape.bin"}, "toy.file"),
        ({"sources": []}, "toy.sources"),
        ({"sources": [{"kind": "url", "url": "http://plain.example.org"}]}, "url"),
        ({"sources": [bundle_source() | {"verison": "1"}]}, "Did you mean 'version'?"),
        ({"sources": [{"kind": "ftp"}]}, "'bundle'"),
    ],
)
def test_a_slip_in_the_lockfile_is_refused_with_its_place(change, said):
    with pytest.raises(WeightsError) as error:
        lock_of(body() | change)
    assert said in str(error.value)


@pytest.mark.parametrize("text", ["[1, 2]", "a: [", "toy: 3", "toy: {}"])
def test_what_is_no_lockfile_is_refused(text):
    with pytest.raises(WeightsError):
        load_lock(text)


def test_two_entries_cannot_share_a_file():
    with pytest.raises(WeightsError, match="share the file name"):
        lock_of(body("one"), body("two", file="one.bin"))


def test_an_unknown_name_is_guessed_at():
    with pytest.raises(ConfigError, match="Did you mean 'pose_landmarker_lite'"):
        resolve(["pose_landmarker_lit"])
