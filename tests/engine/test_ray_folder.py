"""The folder of a local Ray: private, removed at the end, and always found somewhere or refused in a sentence."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from pipeline.contract.errors import ResourceError
from pipeline.engine.ray_folder import private_folder


def test_no_other_user_can_enter_it_and_it_is_removed():
    with private_folder() as name:
        folder = Path(name)
        assert folder.stat().st_mode & 0o777 == 0o700
        (folder / "session").mkdir()
    assert not folder.exists()


def test_folders_of_killed_runs_are_removed_and_others_stay(tmp_path, monkeypatch):
    parent = Path("/tmp") / tmp_path.name[-8:]  # a short path
    parent.mkdir()
    monkeypatch.setenv("RAY_TMPDIR", str(parent))
    dead = subprocess.Popen([sys.executable, "-c", ""])
    dead.wait()
    names = [f"framemill-{dead.pid}-abc", "framemill-1-abc", "framemill-other", "other"]
    for name in names:
        (parent / name).mkdir()
    try:
        with private_folder() as folder:
            assert Path(folder).parent == parent
        assert sorted(path.name for path in parent.iterdir()) == sorted(names[1:])
    finally:
        for path in parent.iterdir():
            path.rmdir()
        parent.rmdir()


def test_a_long_path_is_passed_over(monkeypatch):
    monkeypatch.setenv("TMPDIR", "/tmp/" + "x" * 100)
    with private_folder() as folder:
        assert folder.startswith("/tmp/framemill-")


def test_no_folder_at_all_is_one_sentence(monkeypatch):
    def refuse(**_):
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr("pipeline.engine.ray_folder.tempfile.mkdtemp", refuse)
    with pytest.raises(ResourceError) as error, private_folder():
        pass
    assert error.value.code == "FM-NO-TEMPORARY-FOLDER" and "/tmp: Permission denied" in str(error.value)
