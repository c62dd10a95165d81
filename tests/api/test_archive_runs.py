"""Runs over archives: members have names, places and errors of their own, and a run continues and retries them."""

from __future__ import annotations

import numpy as np
import pytest

import framekiln
from tests.support.machine.command_line import command
from tests.support.media.archive_factory import tar
from tests.support.media.collections_factory import frame, photo

STEPS = {"steps": {"crc": {"use": "tests.toys:Checksum"}}}


@pytest.mark.heavy
def test_a_run_over_a_shard_continues_and_retries(tmp_path, serial):
    folder, out = tmp_path / "in", tmp_path / "out"
    folder.mkdir()
    for number in range(3):
        photo(tmp_path / f"{number}.png", number)
    members = [(f"{number}.png", (tmp_path / f"{number}.png").read_bytes()) for number in range(3)]
    members += [("0.json", b"{}"), ("bad.png", b"\x89PNG\r\n\x1a\n")]
    (folder / "s.tar").write_bytes(tar(members))
    made = framekiln.run(folder, out, pipeline=STEPS)
    rows = made.table("frames").to_table().sort_by("media_id").to_pylist()
    assert [row["media_id"] for row in rows] == [f"s.tar/{number}.png" for number in range(3)]
    assert {(row["uri"], row["path"]) for row in rows} == {
        (f"tar://{number}.png::file://{folder}/s.tar", None) for number in range(3)
    }
    errors = made.errors.to_table().sort_by("media_id").to_pylist()
    assert [(row["media_id"], row["kind"]) for row in errors] == [
        ("s.tar/0.json", "passed_over"),
        ("s.tar/bad.png", "truncated"),
    ]
    assert (made.summary.passed_over, made.summary.errors) == (1, {"truncated": 1})
    assert np.array_equal(made.frame("s.tar/2.png"), frame(2, 0))
    assert "s.tar/2.png" in (out / "report.html").read_text()
    units = sorted(path.name for path in (out / "units").iterdir())
    parts = {path: path.stat().st_mtime_ns for path in (out / "columns").rglob("*.parquet")}
    framekiln.run(folder, out, pipeline=STEPS)
    assert {path: path.stat().st_mtime_ns for path in (out / "columns").rglob("*.parquet")} == parts
    assert sorted(path.name for path in (out / "units").iterdir()) == units
    retried = command("retry", out, "--stage", "decode")
    assert retried.returncode == 0, retried.stderr
    assert framekiln.open(out).summary.frames == 3
    (folder / "t.tar").write_bytes(tar(members[:1]))
    again = framekiln.run(folder, out, pipeline=STEPS)
    assert again.summary.frames == 4 and parts.keys() <= set((out / "columns").rglob("*.parquet"))
