"""Weights: found by their content wherever they lie, and refused when a byte differs."""

from __future__ import annotations

import tempfile
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from pipeline.errors import WeightsError
from pipeline.weights import cache_folder, digest, locate, resolve
from tests.material import weights
from tests.weights_factory import CONTENT, body, bundle_source, lock_of, sha

pytestmark = pytest.mark.usefixtures("no_weights")


def test_content_decides_not_the_name(tmp_path):
    there = tmp_path / "mine" / "deeper" / "whatever.pt"
    there.parent.mkdir(parents=True)
    there.write_bytes(CONTENT)
    assert resolve(["toy"], weights_dir=tmp_path / "mine", lock=lock_of(body())) == {"toy": there}


def test_the_environment_and_the_cache_are_looked_through(tmp_path, monkeypatch):
    entry = lock_of(body())["toy"]
    assert locate(entry) is None
    cache_folder().mkdir(parents=True)
    (cache_folder() / "toy.bin").write_bytes(CONTENT)
    assert locate(entry) == cache_folder() / "toy.bin"
    (tmp_path / "shared").mkdir()
    (tmp_path / "shared" / "toy.bin").write_bytes(CONTENT)
    monkeypatch.setenv("FRAMEMILL_WEIGHTS", str(tmp_path / "shared"))
    assert locate(entry) == tmp_path / "shared" / "toy.bin"


def test_a_folder_that_is_not_there_is_named(tmp_path, monkeypatch):
    entry = lock_of(body())["toy"]
    with pytest.raises(WeightsError, match="--weights-dir"):
        locate(entry, weights_dir=tmp_path / "nowhere")
    monkeypatch.setenv("FRAMEMILL_WEIGHTS", str(tmp_path / "nowhere"))
    with pytest.raises(WeightsError, match="FRAMEMILL_WEIGHTS"):
        locate(entry)


@pytest.mark.parametrize("wrong", [CONTENT[:-1], CONTENT[:-1] + b"\0", b""])
def test_a_wrong_file_is_refused_and_a_right_one_beside_it_taken(tmp_path, wrong):
    entry = lock_of(body())["toy"]
    (tmp_path / "toy.bin").write_bytes(wrong)
    with pytest.raises(WeightsError) as error:
        locate(entry, weights_dir=tmp_path)
    assert all(
        word in str(error.value) for word in (str(tmp_path / "toy.bin"), sha(wrong), entry.sha256, str(len(wrong)))
    )
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


def test_one_message_tells_all_that_is_missing():
    lock = lock_of(
        body("one"),
        body("two", sources=[bundle_source()]),
        body("three", sources=[{"kind": "local", "note": "ask Ada"}]),
    )
    with pytest.raises(WeightsError) as error:
        resolve(["one", "two", "three", "one"], lock=lock)
    said = str(error.value)
    assert said.count("one.bin (") == 1
    for word in (
        "two.bin",
        "three.bin",
        "0.0 MB",
        "licence MIT",
        "https://example.org/one.bin",
        "toymodels==1.2",
        "ask Ada",
        str(cache_folder()),
    ):
        assert word in said


def test_a_file_of_another_entry_is_called_by_its_name():
    folder = weights("pose_landmarker_lite.task").parent
    found = resolve(["pose_landmarker_lite_zipped"], weights_dir=folder)
    assert found == {"pose_landmarker_lite_zipped": folder / "pose_landmarker_lite.task"}
    with pytest.raises(WeightsError, match="It is 'pose_landmarker_lite_zipped': use that name"):
        resolve(["pose_landmarker_lite"], weights_dir=folder)


# Hashes that are remembered


def test_a_settled_file_is_hashed_once_and_a_changed_one_again(tmp_path, monkeypatch):
    monkeypatch.setattr(digest, "SETTLED_SECONDS", 0.0)
    path, memory = tmp_path / "big.bin", tmp_path / "memory"
    path.write_bytes(CONTENT)
    assert digest.sha256(path, memory) == sha(CONTENT)
    remembered = memory / "hashes.json"
    remembered.write_text(remembered.read_text().replace(sha(CONTENT), "f" * 64))
    assert digest.sha256(path, memory) == "f" * 64  # so it was not read again
    path.write_bytes(CONTENT + b"more")
    assert digest.sha256(path, memory) == sha(CONTENT + b"more")
    remembered.write_text("not json")
    assert digest.sha256(path, memory) == sha(CONTENT + b"more")


def test_a_file_that_was_just_written_is_not_remembered(tmp_path):
    path = tmp_path / "new.bin"
    path.write_bytes(CONTENT)
    digest.sha256(path, tmp_path / "memory")
    assert not (tmp_path / "memory").exists()
