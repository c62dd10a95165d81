"""The folder of a local Ray: private, removed at the end, and always found somewhere or refused in a sentence."""

from __future__ import annotations

import shutil
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from framekiln.contract.errors import ResourceError
from framekiln.engine.ray.session import private_folder

ROOT = Path(__file__).resolve().parents[2]


def test_no_other_user_can_enter_it_and_it_is_removed():
    with private_folder() as name:
        folder = Path(name)
        assert folder.stat().st_mode & 0o777 == 0o700
        (folder / "session").mkdir()
    assert not folder.exists()


LIVING = """
import os, sys
os.getpid = lambda: 2**30  # of another container: unknown here
from framekiln.engine.ray.session import private_folder
with private_folder() as folder:
    print(folder, flush=True)
    sys.stdin.read()
"""


@pytest.fixture
def parent(monkeypatch):
    """A folder with a short path, in which runs make theirs."""
    folder = Path(tempfile.mkdtemp(dir="/tmp", prefix="t-"))
    monkeypatch.setenv("RAY_TMPDIR", str(folder))
    yield folder
    shutil.rmtree(folder)


def test_the_folder_of_a_living_run_stays_and_that_of_a_killed_one_goes(parent):
    other = subprocess.Popen(
        [sys.executable, "-c", LIVING], cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    folder = Path(other.stdout.readline().strip())
    with private_folder() as own:
        assert folder.is_dir() and folder.parent == parent == Path(own).parent
    other.kill()
    other.communicate()
    assert folder.is_dir()
    with private_folder() as own:
        assert list(parent.iterdir()) == [Path(own)]


def test_folders_that_are_not_ours_stay(parent, tmp_path):
    names = ["framekiln-1-abc", "framekiln-other", "other"]
    for name in names:
        (parent / name).mkdir()
    (parent / "framekiln-run-file").write_text("")
    (parent / "framekiln-run-link").symlink_to(tmp_path)
    with private_folder():
        pass
    assert {path.name for path in parent.iterdir()} == {*names, "framekiln-run-file", "framekiln-run-link"}


def test_runs_that_start_and_end_at_once_keep_their_own_folders(parent):
    def start_and_end(_: int) -> bool:
        with private_folder() as own:
            return Path(own).is_dir()

    with ThreadPoolExecutor(8) as pool:
        assert all(pool.map(start_and_end, range(200)))
    assert list(parent.iterdir()) == []


def test_a_long_path_is_passed_over(monkeypatch):
    monkeypatch.setenv("TMPDIR", "/tmp/" + "x" * 100)
    with private_folder() as folder:
        assert folder.startswith("/tmp/framekiln-")


def test_no_folder_at_all_is_one_sentence(monkeypatch):
    def refuse(**_):
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr("framekiln.engine.ray.session.tempfile.mkdtemp", refuse)
    with pytest.raises(ResourceError) as error, private_folder():
        pass
    assert error.value.code == "FK-NO-TEMPORARY-FOLDER" and "/tmp: Permission denied" in str(error.value)
