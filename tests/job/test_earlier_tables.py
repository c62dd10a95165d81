"""Tables of an earlier run stay readable while another one replaces them, and no row is ever there twice."""

from __future__ import annotations

import os
import signal
from collections import Counter

import pytest

from tests.faults import chaos
from tests.support.machine.command_line import command
from tests.support.media.collections_factory import photo
from tests.support.runs.serial_engine import without_ray
from tests.support.runs.unfinished import Gated

pytestmark = pytest.mark.slow

HELD, PHOTOS = "z.png", 26  # so many that units hold several of them, with two decode workers


@pytest.fixture
def gated(tmp_path):
    """A finished output, and a gate that is closed."""
    for i in range(PHOTOS):
        photo(tmp_path / "in" / f"p{i:02}.png", i)
    (tmp_path / "two.yaml").write_text("decode: {workers: 2}\n")
    made = Gated.make(tmp_path, tmp_path / "in", HELD)
    with without_ray():
        assert command(*made.words("--profile", tmp_path / "two.yaml")).returncode == 0
    yield made
    made.end()


def words(gated: Gated) -> list[str]:
    return gated.words("--profile", gated.gate.with_name("two.yaml"))


def values(gated: Gated, column: str) -> dict[str, int]:
    table = gated.frames()
    return dict(zip(table["media_id"].to_pylist(), table[column].to_pylist(), strict=True))


@pytest.mark.heavy
def test_files_that_changed_keep_their_old_rows_until_all_new_ones_can_be_written(gated):
    photo(gated.source / "p01.png", 1001)
    photo(gated.source / "y.png", 500)
    photo(gated.source / HELD, 501)
    before = values(gated, "crc")
    run = gated.start(words=words(gated))
    gated.wait(run, PHOTOS - 3 + 1)  # without the changed photo and the two others of its unit, and with one new one
    chaos.wait_for_end(chaos.kill(run))
    now = values(gated, "crc")
    assert now.keys() - before.keys() == {"y.png"} and Counter(gated.names()).most_common(1)[0][1] == 1
    assert {name: now[name] for name in before} == before
    checked = command("check", gated.out)
    assert checked.returncode == 0, checked.stdout
    gated.gate.touch()
    assert command(*words(gated)).returncode == 0
    after = values(gated, "crc")
    assert {name for name in before if after[name] != before[name]} == {"p01.png"}
    assert sorted(gated.names()) == sorted({*before, "y.png", HELD})


@pytest.mark.heavy
def test_a_run_with_other_settings_shows_none_of_its_rows_before_it_can_show_all(gated):
    photo(gated.source / HELD, 501)
    gated.set(HELD, factor=10)
    before = gated.frames()
    run = gated.start(words=words(gated))
    gated.wait_for_later(run, PHOTOS)
    for how in ("is at work", "was interrupted"):
        if how == "was interrupted":
            os.killpg(run.pid, signal.SIGINT)
            code, _, stderr = chaos.ended(run)
            said = "Interrupted. The tables are still those of the run before; the same command continues.\n"
            assert (code, stderr) == (130, said)
        assert gated.frames().equals(before)
        assert (gated.record["state"], gated.record["frames"]) == ("finished", PHOTOS)
        assert command("report", gated.out).returncode == 0
        page = gated.page
        assert f"A later run with other steps or settings {how}" in page and f"{PHOTOS} frames from" in page
        checked = command("check", gated.out)
        assert (checked.returncode, how in checked.stdout) == (0, True), checked.stdout
        assert command("profile", gated.out).returncode == 0
    gated.gate.touch()
    continued = command("retry", gated.out)
    assert continued.returncode == 0 and "A later run" in continued.stdout, continued.stderr
    assert values(gated, "passed").keys() == {*before["media_id"].to_pylist(), HELD}
    assert gated.record["state"] == "finished" and "unfinished" not in gated.record
    assert gated.record["steps"]["gate"]["settings"]["factor"] == 10


@pytest.mark.heavy
def test_the_settings_of_the_tables_again_need_nothing(gated):
    photo(gated.source / HELD, 501)
    finished = gated.record
    gated.set(HELD, factor=10)
    run = gated.start(words=words(gated))
    gated.wait_for_later(run, PHOTOS)
    chaos.wait_for_end(chaos.kill(run))
    (gated.source / HELD).unlink()
    gated.set(HELD, factor=1)
    done = command(*words(gated))
    assert "Nothing is left to do" in done.stdout, done.stdout
    unsealed = {"written": "", "sha256": ""}
    assert gated.record | unsealed == finished | unsealed
    assert "later run" not in gated.page
