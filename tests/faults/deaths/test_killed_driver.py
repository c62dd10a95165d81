"""A driver that is killed costs what was in flight, and nothing else, however often it happens."""

from __future__ import annotations

import random
import time
from collections import defaultdict
from functools import partial
from pathlib import Path

import psutil
import pytest

from tests.faults import chaos

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("engine")]


def finished_units(parts) -> tuple[set[str], set[str]]:
    """Units that every first-pass step has done, and units that some step has begun; one part is a whole unit here."""
    steps = defaultdict(set)
    for path in parts:
        steps[path.name.split(".")[0]].add(path.parent.name)
    return {unit for unit, done in steps.items() if len(done) == chaos.FIRST_PASS + 1}, set(steps)


def check_kept(before, after) -> None:
    """Check that no finished part is written again, except by decoding where a unit was not finished."""
    done, begun = finished_units(before)
    assert len(begun - done) <= psutil.cpu_count(), "more units in flight than tasks"
    for path, changed in before.items():
        if path.name.split(".")[0] in done or not path.parent.name.startswith("decode-"):
            assert after[path] == changed, path


def kill_when(undisturbed, out: Path, condition) -> tuple[dict[Path, int], list[psutil.Process]]:
    run = chaos.start(*undisturbed.words(out))
    assert chaos.wait_for(condition, run), run.communicate()
    family = chaos.kill(run)
    return chaos.parts(out), family


MOMENTS = {
    "start": lambda out: len(chaos.parts(out)) >= 2,
    "middle": lambda out: len(chaos.parts(out)) >= 30,
    "end": lambda out: any((out / "frames").glob("[!.]*")),
}


@pytest.mark.heavy
@pytest.mark.parametrize(
    "moments", [["middle"], pytest.param(["start", "middle", "end"], marks=pytest.mark.chaos)], ids=", ".join
)
def test_killed_and_killed_again(undisturbed, tmp_path, moments):
    out = tmp_path / "out"
    family = []
    for moment in moments:  # the next run starts while workers of the killed one are still there
        before, orphans = kill_when(undisturbed, out, partial(MOMENTS[moment], out))
        family += orphans
    code, printed, stderr = chaos.finish(*undisturbed.words(out))
    assert code == 0 and "Traceback" not in printed + stderr, printed + stderr
    check_kept(before, chaos.parts(out))
    chaos.wait_for_end(family)
    chaos.check_whole(out, undisturbed.out)
    assert "Nothing is left to do" in chaos.finish(*undisturbed.words(out))[1]


@pytest.mark.chaos
@pytest.mark.parametrize("moment", range(20))
def test_killed_at_any_moment(undisturbed, tmp_path, moment):
    out = tmp_path / "out"
    run = chaos.start(*undisturbed.words(out))
    seconds = random.Random(moment)
    if moment % 2:
        assert chaos.wait_for(lambda: chaos.parts(out), run)
        time.sleep(seconds.uniform(0, 6))  # what is left takes some seconds
    else:
        assert chaos.wait_for(out.exists, run)
        time.sleep(seconds.uniform(0, 12))  # starting Ray is in it
    killed = run.poll() is None
    family = chaos.kill(run) if killed else []
    before = chaos.parts(out)
    code, printed, stderr = chaos.finish(*undisturbed.words(out))
    assert code == 0 and "Traceback" not in printed + stderr, printed + stderr
    check_kept(before, chaos.parts(out))
    print(f"killed: {killed}, {len(before)} parts written before, {len(chaos.parts(out))} after")
    chaos.wait_for_end(family)
    chaos.check_whole(out, undisturbed.out)
