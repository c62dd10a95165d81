"""An output on a disk that fails during a run: one sentence with the fix, and the same command continues later."""

from __future__ import annotations

import shutil
import subprocess
import time
from pathlib import Path

import pytest
import yaml

from framekiln.contract.errors import OutputError
from framekiln.job import Job
from framekiln.runtime.run.request import RunRequest
from tests.faults import chaos
from tests.support.runs.engine_factory import request

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("engine")]


@pytest.fixture
def disk(tmp_path):
    """A disk of its own, of 160 kB: less than the parts of the run need."""
    folder = tmp_path / "disk"
    folder.mkdir()
    if mount("-t", "tmpfs", "-o", "size=160k", "tmpfs", folder):
        pytest.skip("mounting a small disk is not permitted here")
    yield folder
    subprocess.run(["umount", "--lazy", str(folder)], check=True)


def mount(*words: object) -> int:
    return subprocess.run(["mount", *map(str, words)], capture_output=True).returncode


def remount(disk: Path, how: str) -> None:
    deadline = time.monotonic() + 30
    while mount("-o", f"remount,{how}", disk):  # busy while a file is open for writing
        assert time.monotonic() < deadline
        time.sleep(0.01)


@pytest.mark.heavy
def test_a_disk_that_is_full(undisturbed, disk):
    out = disk / "out"
    code, printed, stderr = chaos.finish(*undisturbed.words(out))
    assert code == 2, printed + stderr
    assert "[FK-OUTPUT-NOT-WRITABLE]" in stderr and f"'{out}'" in stderr and "No space left on device" in stderr, stderr
    assert len(stderr.strip().splitlines()) == 1
    before = chaos.parts(out)
    assert before and not list(out.rglob(".tmp-*"))
    remount(disk, "size=8m")
    code, printed, stderr = chaos.finish(*undisturbed.words(out, "--engine", "local"))
    assert code == 0, printed + stderr
    after = chaos.parts(out)
    assert all(after[path] == before[path] for path in before if not path.parent.name.startswith("decode-"))
    chaos.check_whole(out, undisturbed.out)


def order(undisturbed, out: Path) -> RunRequest:
    return request(undisturbed.source, out, yaml.safe_load(undisturbed.pipeline.read_text()))


def disturbed(undisturbed, out: Path, disturb) -> OutputError:
    """Return the error of a run that is disturbed as soon as some of its parts are there."""
    done = []

    def watch(_):
        if not done and chaos.parts(out):
            done.append(disturb())

    with pytest.raises(OutputError) as error:
        Job(order(undisturbed, out), watch=watch).run()
    assert done
    return error.value


def remove(path: Path) -> None:
    while path.exists():
        shutil.rmtree(path, ignore_errors=True)  # a worker may be writing there


def replace(path: Path) -> None:
    moved = path.with_name("moved")
    path.rename(moved)
    path.write_text("in the way")
    shutil.rmtree(moved)


@pytest.mark.chaos
def test_a_disk_that_becomes_read_only(undisturbed, disk, machines):
    remount(disk, "size=8m")
    out = disk / "out"
    error = disturbed(undisturbed, out, lambda: remount(disk, "ro"))
    assert error.code == "FK-OUTPUT-NOT-WRITABLE" and "Read-only file system" in str(error)
    remount(disk, "rw")
    goes_on(undisturbed, out)


@pytest.mark.parametrize(
    ("what", "disturb", "codes", "reasons"),
    [
        pytest.param(  # files go one by one, perhaps first the lease or the folder of incomplete files
            *(".", remove, {"FK-OUTPUT-NOT-WRITABLE", "FK-OUTPUT-LOST"}, ("No such file", "deleted")),
            marks=pytest.mark.chaos,
        ),
        pytest.param("columns", remove, {"FK-OUTPUT-GONE"}, ("",), marks=pytest.mark.chaos),
        pytest.param(
            *("columns", replace, {"FK-OUTPUT-NOT-WRITABLE"}, ("Not a directory", "File exists")),
            marks=pytest.mark.chaos,
        ),
    ],
    ids=["removed", "partly removed", "a file in the way"],
)
def test_an_output_that_is(undisturbed, tmp_path, machines, what, disturb, codes, reasons):
    out = tmp_path / "out"
    error = disturbed(undisturbed, out, lambda: disturb(out / what))
    assert error.code in codes and any(reason in str(error) for reason in reasons), error
    if (out / what).is_file():
        (out / what).unlink()
    goes_on(undisturbed, out)


def goes_on(undisturbed, out: Path) -> None:
    Job(order(undisturbed, out)).run()
    chaos.check_whole(out, undisturbed.out)
