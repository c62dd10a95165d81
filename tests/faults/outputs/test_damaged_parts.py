"""Files of an output that are damaged are computed again, whatever happened to their bytes."""

from __future__ import annotations

import random
import shutil
from pathlib import Path

import pytest

from tests.faults import chaos

pytestmark = pytest.mark.slow


def flip(data: bytes) -> bytes:
    """Invert one bit of each 200 bytes, but none of the magic number at the start."""
    chance, changed = random.Random(len(data)), bytearray(data)
    for start in range(4, len(changed), 200):
        changed[chance.randrange(start, min(start + 200, len(changed)))] ^= 1 << chance.randrange(8)
    return bytes(changed)


DAMAGE = {
    "empty": lambda _: b"",
    "half": lambda data: data[: len(data) // 2],
    "flipped": flip,
    "foreign": lambda _: b'{"a": [1]}',
}


def damage(out: Path, how: str, folders: tuple[str, ...]) -> None:
    """Damage the first file of each step, or of a folder."""
    for folder in folders:
        for place in [path for path in out.glob(folder) if path.is_dir()]:
            target = min(path for path in place.iterdir() if path.is_file())
            target.write_bytes(DAMAGE[how](target.read_bytes()))


@pytest.mark.parametrize(
    "how", ["half", *(pytest.param(how, marks=pytest.mark.heavy) for how in DAMAGE if how != "half")]
)
@pytest.mark.parametrize(
    "folders",
    [
        ("columns/*", "frames", "facts", "digests"),
        pytest.param(("frames", "counts", "everything"), marks=pytest.mark.heavy),
        pytest.param(("units",), marks=pytest.mark.heavy),
        pytest.param(("profile",), marks=pytest.mark.heavy),
    ],
    ids=",".join,
)
def test_damaged_files_are_computed_again(framemill, undisturbed, tmp_path, how, folders):
    out = tmp_path / "out"
    shutil.copytree(undisturbed.out, out)
    damage(out, how, folders)
    if "columns/*" in folders:
        for path in (out / "everything").iterdir():
            path.unlink()
    if folders[0] != "profile":
        assert "findings" in framemill("check", out, code=1)
    text = framemill("run", *undisturbed.words(out))
    chaos.check_whole(out, undisturbed.out)
    if "columns/*" in folders:
        assert "Damaged files of the output are computed again: " in text
    assert "nothing is damaged" in framemill("check", out)
    assert "Nothing is left to do" in framemill("run", *undisturbed.words(out))
