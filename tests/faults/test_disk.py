"""An output whose disk fails in the middle of a run: one sentence with the fix, and then the same command goes on."""

from __future__ import annotations

import shutil
import subprocess
import time
from pathlib import Path

import pytest

from pipeline.engine import session
from pipeline.errors import OutputError
from pipeline.job import Job
from pipeline.manifest import ProfileFile, read_pipeline
from pipeline.order import Order
from pipeline.plan import Choices
from tests.faults import chaos

pytestmark = pytest.mark.slow
AGAIN = "run the same command again"


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


def test_a_disk_that_is_full(undisturbed, disk):
    out = disk / "out"
    code, said, wrong = chaos.finish(*undisturbed.words(out))
    assert code == 2, said + wrong
    assert wrong.startswith(f"Error: The output '{out}' cannot be written any more (No space left on device, at "), (
        wrong
    )
    assert "free some space there" in wrong and AGAIN in wrong and len(wrong.strip().splitlines()) == 1
    before = chaos.parts(out)
    assert before and not list(out.rglob(".tmp-*"))
    remount(disk, "size=8m")
    code, said, wrong = chaos.finish(*undisturbed.words(out))
    assert code == 0, said + wrong
    after = chaos.parts(out)
    assert all(after[path] == before[path] for path in before if not path.parent.name.startswith("decode-"))
    chaos.check_whole(out, undisturbed.out)


@pytest.fixture(scope="module")
def nodes():
    with session(None) as machines:
        yield machines


def order(undisturbed, out: Path) -> Order:
    return Order(
        input=str(undisturbed.source),
        output=str(out),
        pipeline=read_pipeline(str(undisturbed.pipeline)),
        profile=ProfileFile(),
        profile_name="none",
        choices=Choices(),
    )


def disturbed(undisturbed, out: Path, disturb) -> str:
    """What a run says that is disturbed as soon as some of its parts are there."""
    done = []

    def watch(_):
        if not done and chaos.parts(out):
            done.append(disturb())

    with pytest.raises(OutputError) as error:
        Job(order(undisturbed, out), watch=watch).run()
    assert done
    return str(error.value)


def remove(path: Path) -> None:
    while path.exists():
        shutil.rmtree(path, ignore_errors=True)  # a worker may be writing there


def replace(path: Path) -> None:
    moved = path.with_name("moved")
    path.rename(moved)
    path.write_text("in the way")
    shutil.rmtree(moved)


@pytest.mark.chaos
def test_a_disk_that_becomes_read_only(undisturbed, disk, nodes):
    remount(disk, "size=8m")
    out = disk / "out"
    said = disturbed(undisturbed, out, lambda: remount(disk, "ro"))
    assert "Read-only file system" in said and "make it writable" in said and AGAIN in said
    remount(disk, "rw")
    goes_on(undisturbed, out)


@pytest.mark.parametrize(
    ("what", "disturb", "sentence"),
    [
        pytest.param(".", remove, "look what removed it", marks=pytest.mark.chaos),
        pytest.param("columns", remove, "removed them|has gone from the output", marks=pytest.mark.chaos),
        pytest.param("columns", replace, "move the file that stands where a folder should be", marks=pytest.mark.chaos),
    ],
    ids=["removed", "partly removed", "a file in the way"],
)
def test_an_output_that_is(undisturbed, tmp_path, nodes, what, disturb, sentence):
    out = tmp_path / "out"
    said = disturbed(undisturbed, out, lambda: disturb(out / what))
    assert any(part in said for part in sentence.split("|")) and AGAIN in said, said
    if (out / what).is_file():
        (out / what).unlink()
    goes_on(undisturbed, out)


def goes_on(undisturbed, out: Path) -> None:
    Job(order(undisturbed, out)).run()
    chaos.check_whole(out, undisturbed.out)
