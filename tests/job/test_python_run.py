"""A run from Python alone: it leaves all that a run of the command line leaves."""

from __future__ import annotations

import shutil

import pytest

from framekiln.job import Job
from framekiln.output.object_store import Store
from framekiln.runtime.run.record import read_run_record
from tests.support.runs.engine_factory import ALL, order, small

__all__ = ["small"]

pytestmark = pytest.mark.slow

STEPS = {name: ALL[name] for name in ("crc", "near", "twice", "count")}


def test_every_command_takes_the_output_of_a_run_from_python(serial, framekiln, small, tmp_path):
    out = tmp_path / "out"
    result = Job(order(small, out, STEPS)).run()
    assert (result.frames, result.errors, result.report) == (36, {}, str(out / "report.html"))
    record = read_run_record(Store(str(out)))
    assert (record["files"], record["frames"], list(record["steps"])) == (7, 36, list(STEPS))
    assert f"framekiln run {small} {out}" in (out / "report.html").read_text()
    written = {path: path.stat().st_mtime_ns for path in (out / "report.html", out / "run.json")}
    assert "36 frames" in (again := framekiln("retry", out)) and "Report:" in again
    assert {path: path.stat().st_mtime_ns for path in written} == written, "nothing had failed"
    other = shutil.copytree(out, tmp_path / "other")
    for command in (["report", out], ["check", out], ["profile", out], ["compare", out, other]):
        framekiln(*command)
