"""Paths and small files of people and caches: no user, pipe, folder or size ends a command."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pytest

from framekiln.contract.array_cache import ArrayCache
from framekiln.contract.user_files import expand, read_small
from tests.support.machine.command_line import command
from tests.support.media.photos import photo_file


def test_a_home_that_nobody_knows_leaves_the_path_as_it_is(monkeypatch):
    monkeypatch.setenv("HOME", "/home/me")
    assert expand("~/photos") == Path("/home/me/photos")
    assert expand("~nobody-of-that-name/photos") == Path("~nobody-of-that-name/photos")
    monkeypatch.delenv("HOME")
    monkeypatch.setattr(os, "getuid", lambda: 987_654_321)
    assert expand("~/photos") == Path("~/photos")


@pytest.mark.parametrize(
    "words", [["--output", "~nobody-of-that-name/out"], ["--profile", "~nobody-of-that-name/p.yaml"]]
)
def test_a_command_names_such_a_path(tmp_path, monkeypatch, words):
    monkeypatch.chdir(tmp_path)
    rest = [] if "--output" in words else ["--output", "out"]
    done = command("plan", "--input", photo_file("china.jpg"), *words, *rest, "--stages", "lighting")
    assert "Traceback" not in done.stdout + done.stderr
    assert done.returncode == (0 if not rest else 2)


def test_only_regular_files_of_some_size_are_read(tmp_path):
    (tmp_path / "a").write_bytes(b"abc")
    assert read_small(tmp_path / "a") == b"abc"
    os.mkfifo(tmp_path / "pipe")
    with (tmp_path / "giant").open("wb") as file:
        file.truncate(1 << 40)
    for name in ("pipe", "giant", "missing", "."):
        with pytest.raises(OSError):
            read_small(tmp_path / name)


def test_a_pipe_or_a_giant_in_place_of_a_kept_array_is_computed_again(tmp_path):
    for make in (os.mkfifo, lambda path: os.truncate(os.open(path, os.O_CREAT | os.O_WRONLY), 1 << 40)):
        cache = ArrayCache(tmp_path)
        cache.array({"of": 1}, lambda: np.ones(3))
        cache.keep()
        (path,) = tmp_path.glob("*.npz")
        path.unlink()
        make(path)
        assert ArrayCache(tmp_path).array({"of": 1}, lambda: np.zeros(3)).sum() == 0
        path.unlink()
