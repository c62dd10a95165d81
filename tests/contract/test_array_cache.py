"""Arrays of a set-up are kept by what they depend on; damaged files are computed again."""

from __future__ import annotations

import numpy as np
import pytest

from framekiln.contract.array_cache import ArrayCache

VALUES = np.arange(6, dtype=np.float32).reshape(2, 3)


def found(folder, facts, *, own=None, keep=True):
    """Return the array, and whether it was computed."""
    computed, cache = [], ArrayCache(folder, own)

    def compute():
        computed.append(True)
        return VALUES

    values = cache.array(facts, compute)
    if keep:
        cache.keep()
    assert values.dtype == VALUES.dtype and np.array_equal(values, VALUES)
    return bool(computed)


def test_only_equal_facts_find_an_array(tmp_path):
    assert found(tmp_path / "new", {"text": "a cat"}, own={"weights": "1"})
    assert not found(tmp_path / "new", {"text": "a cat"}, own={"weights": "1"})
    assert found(tmp_path / "new", {"text": "a dog"}, own={"weights": "1"})
    assert found(tmp_path / "new", {"text": "a cat"}, own={"weights": "2"})
    assert [path.suffix for path in (tmp_path / "new").iterdir()] == [".npz"] * 3


def test_without_a_folder_or_without_keep_it_is_computed_each_time(tmp_path):
    assert found(None, {}) and found(None, {})
    assert found(tmp_path, {}, keep=False) and found(tmp_path, {}, keep=False)


def test_where_nothing_can_be_written_it_is_computed_each_time(tmp_path):
    (tmp_path / "file").write_bytes(b"")
    assert found(tmp_path / "file", {}) and found(tmp_path / "file", {})


@pytest.mark.parametrize("damage", ["empty", "cut", "flipped", "other"])
def test_a_damaged_file_is_computed_again_and_replaced(tmp_path, damage):
    found(tmp_path, {})
    (path,) = tmp_path.iterdir()
    data = path.read_bytes()
    place = data.index(VALUES.tobytes())
    flipped = data[:place] + bytes([data[place] ^ 1]) + data[place + 1 :]
    path.write_bytes({"empty": b"", "cut": data[:-30], "flipped": flipped, "other": b"not a zip"}[damage])
    assert found(tmp_path, {})
    assert not found(tmp_path, {})


def test_any_flipped_bit_is_found_or_changes_nothing(tmp_path):
    found(tmp_path, {})
    (path,) = tmp_path.iterdir()
    data = path.read_bytes()
    for place in range(8 * len(data)):
        flipped = bytearray(data)
        flipped[place // 8] ^= 1 << place % 8
        path.write_bytes(flipped)
        found(tmp_path, {}, keep=False)
