"""Numbers that a stage gave stay through added, removed and renamed settings, retries, and calls that fail."""

from __future__ import annotations

from dataclasses import replace

import pytest

from framekiln.job import Job
from framekiln.runtime.run.retry import FailureFilter
from tests.support.media.collections_factory import photo
from tests.support.runs.engine_factory import order, rows

pytestmark = [pytest.mark.slow, pytest.mark.heavy, pytest.mark.usefixtures("serial")]


def numbers(out):
    return dict(zip(*rows(out, "guests").select(["media_id", "number"]).to_pydict().values(), strict=True))


def visits(out):
    return rows(out, "visits")["media_id"].to_pylist()


def test_numbers_stay_for_ever(tmp_path, machines):
    inputs, out, log = tmp_path / "in", tmp_path / "out", tmp_path / "closed"
    for name in ("m", "n"):
        photo(inputs / f"{name}.png", ord(name))
    whole = order(inputs, out, {"crc": ("Checksum", {}), "guests": ("Guests", {"log": str(log)})})
    Job(whole).run()
    assert numbers(out) == {"m.png": 0, "n.png": 1}
    photo(inputs / "a.png", 5)  # sorts first
    (inputs / "m.png").unlink()
    Job(whole).run()
    assert numbers(out) == {"m.png": 0, "n.png": 1, "a.png": 2} and visits(out) == ["a.png", "n.png"]
    Job(replace(whole, options=replace(whole.options, settings=("guests.note=changed",)))).run()
    assert numbers(out) == {"m.png": 0, "n.png": 1, "a.png": 2}
    photo(inputs / "b.png", 6)
    log.touch()
    Job(whole).run()  # the call fails
    assert numbers(out) == {"m.png": 0, "n.png": 1, "a.png": 2} and visits(out) == []
    log.unlink()
    (inputs / "c.png").write_bytes(b"\x89PNG\r\n\x1a\n")
    Job(whole).run()
    assert numbers(out) == {"m.png": 0, "n.png": 1, "a.png": 2, "b.png": 3}
    Job(replace(whole, retry=FailureFilter())).run()
    assert numbers(out) == {"m.png": 0, "n.png": 1, "a.png": 2, "b.png": 3} and visits(out) == [
        "a.png",
        "b.png",
        "n.png",
    ]
    for name in ("n", "a", "b", "c"):
        (inputs / f"{name}.png").unlink()
    photo(inputs / "z.png", 9)
    Job(whole).run()
    assert numbers(out) == {"m.png": 0, "n.png": 1, "a.png": 2, "b.png": 3, "z.png": 4} and visits(out) == ["z.png"]
