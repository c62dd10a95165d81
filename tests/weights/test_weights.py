"""Weights are matched by content in every searched folder, and rejected if one byte differs."""

from __future__ import annotations

import json
import os
import tempfile
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from framekiln.contract.errors import WeightsError
from framekiln.weights import checksums
from framekiln.weights.checksums import cache_root
from framekiln.weights.resolver import cache_folder, locate, resolve
from tests.support.errors import fails
from tests.support.machine.permissions import permissions_count
from tests.support.runs.weights_factory import CONTENT, body, bundle_source, lock_of, sha

pytestmark = pytest.mark.usefixtures("no_weights")


def test_content_decides_not_the_name(tmp_path):
    there = tmp_path / "mine" / "deeper" / "whatever.pt"
    there.parent.mkdir(parents=True)
    there.write_bytes(CONTENT)
    assert resolve(["toy"], weights_dir=tmp_path / "mine", lock=lock_of(body())) == {"toy": there}


def test_the_environment_and_the_cache_are_searched(tmp_path, monkeypatch):
    entry = lock_of(body())["toy"]
    assert locate(entry) is None
    cache_folder().mkdir(parents=True)
    (cache_folder() / "toy.bin").write_bytes(CONTENT)
    assert locate(entry) == cache_folder() / "toy.bin"
    (tmp_path / "shared").mkdir()
    (tmp_path / "shared" / "toy.bin").write_bytes(CONTENT)
    monkeypatch.setenv("FRAMEKILN_WEIGHTS", str(tmp_path / "shared"))
    assert locate(entry) == tmp_path / "shared" / "toy.bin"


def test_a_folder_that_this_user_may_only_list_is_passed_over(tmp_path):
    for name in ("closed", "open"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "toy.bin").write_bytes(CONTENT)
    (tmp_path / "closed").chmod(0o444)
    with permissions_count():
        assert locate(lock_of(body())["toy"], weights_dir=tmp_path) == tmp_path / "open" / "toy.bin"


@pytest.mark.parametrize("option", ["--weights-dir", "FRAMEKILN_WEIGHTS"])
def test_a_missing_folder_is_named(tmp_path, monkeypatch, option):
    nowhere = tmp_path / "nowhere"
    monkeypatch.setenv("FRAMEKILN_WEIGHTS", str(nowhere) if option == "FRAMEKILN_WEIGHTS" else "")
    with fails("FK-WEIGHTS-FOLDER", str(nowhere), option):
        locate(lock_of(body())["toy"], weights_dir=nowhere if option == "--weights-dir" else None)


@pytest.mark.parametrize("wrong", [CONTENT[:-1], CONTENT[:-1] + b"\0", b""])
def test_a_wrong_file_is_rejected_and_a_right_one_beside_it_used(tmp_path, wrong):
    entry = lock_of(body())["toy"]
    (tmp_path / "toy.bin").write_bytes(wrong)
    with fails("FK-WEIGHTS-MISMATCH", str(tmp_path / "toy.bin"), sha(wrong), entry.sha256, str(len(wrong))):
        locate(entry, weights_dir=tmp_path)
    (tmp_path / "renamed.bin").write_bytes(CONTENT)
    assert locate(entry, weights_dir=tmp_path) == tmp_path / "renamed.bin"


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(content=st.binary(min_size=1, max_size=300), place=st.integers(0, 299), flip=st.integers(1, 255))
def test_one_wrong_byte_is_enough(content, place, flip):
    entry = lock_of(body("toy", content))["toy"]
    place %= len(content)
    spoilt = content[:place] + bytes([content[place] ^ flip]) + content[place + 1 :]
    with tempfile.TemporaryDirectory() as name:
        path = Path(name, "any.bin")
        path.write_bytes(spoilt)
        assert locate(entry, weights_dir=Path(name)) is None
        path.write_bytes(content)
        assert locate(entry, weights_dir=Path(name)) == path


def test_one_message_lists_all_missing_weights():
    lock = lock_of(
        body("one"),
        body("two", sources=[bundle_source()]),
        body("three", sources=[{"kind": "local", "note": "ask Ada"}]),
    )
    with pytest.raises(WeightsError) as error:
        resolve(["one", "two", "three", "one"], lock=lock)
    message = str(error.value)
    assert error.value.code == "FK-WEIGHTS-MISSING" and message.count("one.bin (") == 1
    for value in ("two.bin", "three.bin", "0.0 MB", "MIT", "framekiln fetch one two", "--weights-dir", "ask Ada"):
        assert value in message


def test_a_file_is_found_by_its_content_under_the_name_of_another(tmp_path):
    lock = lock_of(body("one"), body("two", b"another"))
    (tmp_path / "one.bin").write_bytes(b"another")
    assert resolve(["two"], weights_dir=tmp_path, lock=lock) == {"two": tmp_path / "one.bin"}
    with fails("FK-WEIGHTS-MISSING", "one.bin is not one"):
        resolve(["one"], weights_dir=tmp_path, lock=lock)


# Cached hashes


def test_a_settled_file_is_hashed_once_and_a_changed_one_again(tmp_path, monkeypatch):
    monkeypatch.setattr(checksums, "SETTLED_SECONDS", 0.0)
    path, cache = tmp_path / "big.bin", tmp_path / "cache"
    path.write_bytes(CONTENT)
    assert checksums.sha256(path, cache) == sha(CONTENT)
    hashes = cache / "hashes.json"
    (key,) = json.loads(hashes.read_text())
    hashes.write_text(json.dumps({key: checksums._sign(key, "f" * 64)}))
    assert checksums.sha256(path, cache) == "f" * 64, "the file is not read again"
    for kept in (checksums._sign(key, "f" * 64).replace("f", "e", 1), sha(CONTENT)[:-1], ""):  # a flipped bit, a cut
        hashes.write_text(json.dumps({key: kept}))
        assert checksums.sha256(path, cache) == sha(CONTENT)
    path.write_bytes(CONTENT + b"more")
    assert checksums.sha256(path, cache) == sha(CONTENT + b"more")
    for text in ("not json", "[" * 100_000, json.dumps({key: 3})):
        hashes.write_text(text)
        assert checksums.sha256(path, cache) == sha(CONTENT + b"more")


def test_the_hash_of_a_new_file_is_not_cached(tmp_path):
    path = tmp_path / "new.bin"
    path.write_bytes(CONTENT)
    checksums.sha256(path, tmp_path / "cache")
    assert not (tmp_path / "cache").exists()


def test_a_user_without_a_home_has_a_cache_among_temporary_files(monkeypatch):
    def unknown(number):
        raise KeyError(number)

    for name in ("FRAMEKILN_CACHE", "HOME", "XDG_CACHE_HOME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr("pwd.getpwuid", unknown)
    assert cache_root() == Path(tempfile.gettempdir(), f"framekiln-{os.getuid()}")
