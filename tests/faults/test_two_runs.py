"""Two runs into one output: refused, or shards that leave each other's work alone."""

from __future__ import annotations

import os

import pytest

from pipeline.lease import Lease
from pipeline.storage import Store
from tests.faults import chaos

pytestmark = pytest.mark.slow


def test_a_second_run_is_refused_before_it_starts_ray(undisturbed, tmp_path):
    out = tmp_path / "out"
    store = Store(str(out))
    store.prepare()
    with Lease(store):
        code, said, wrong = chaos.finish(*undisturbed.words(out))
    assert code == 2 and wrong.startswith(f"Error: Another run is writing into '{out}' (process {os.getpid()} on "), (
        wrong
    )
    assert len(wrong.strip().splitlines()) == 1 and "Starting Ray" not in said
    assert not chaos.parts(out)


@pytest.mark.chaos
def test_a_second_run_is_refused_and_the_first_goes_on(undisturbed, tmp_path):
    out = tmp_path / "out"
    first = chaos.start(*undisturbed.words(out))
    assert chaos.wait_for(lambda: chaos.parts(out), first), first.communicate()
    code, said, wrong = chaos.finish(*undisturbed.words(out))
    assert code == 2 and wrong.startswith(f"Error: Another run is writing into '{out}' (process {first.pid} on "), wrong
    assert len(wrong.strip().splitlines()) == 1 and "Starting Ray" not in said
    code, said, wrong = chaos.ended(first)
    assert code == 0, said + wrong
    chaos.check_whole(out, undisturbed.out)


@pytest.mark.chaos
def test_a_run_that_another_took_over_from_stops(undisturbed, tmp_path):
    out = tmp_path / "out"
    run = chaos.start(*undisturbed.words(out, "--set", "slow.seconds=0.2"))
    assert chaos.wait_for(lambda: chaos.parts(out), run), run.communicate()
    (lease,) = out.glob("run.lease-*.json")
    lease.unlink()
    code, said, wrong = chaos.ended(run)
    assert code == 2 and wrong.startswith(f"Error: This run does not hold the output '{out}' any more"), said + wrong
    assert len(wrong.strip().splitlines()) == 1
    assert chaos.finish(*undisturbed.words(out))[0] == 0
    assert chaos.tables(out)["frames"].equals(chaos.tables(undisturbed.out)["frames"])


@pytest.mark.chaos
def test_shards_at_once_and_one_of_them_killed_are_the_whole_after_a_last_run(undisturbed, tmp_path):
    out = tmp_path / "out"
    one, two = (chaos.start(*undisturbed.words(out, "--shard", f"{i}/2")) for i in (1, 2))
    assert chaos.wait_for(lambda: chaos.parts(out), one), one.communicate()
    family = chaos.kill(one)
    code, said, wrong = chaos.finish(*undisturbed.words(out, "--shard", "1/2"))  # sweeps while the other writes
    assert code == 0, said + wrong
    code, said, wrong = chaos.ended(two)
    assert code == 0, said + wrong
    chaos.wait_for_end(family)
    found = chaos.tables(out)
    assert found["frames"].equals(chaos.tables(undisturbed.out)["frames"]), "each frame once, whoever wrote it"
    assert "everything" not in found and found["counts"].num_rows == chaos.CLIPS + chaos.PHOTOS
    before = chaos.parts(out)
    assert chaos.finish(*undisturbed.words(out))[0] == 0
    assert chaos.parts(out) == before, "what the shards computed was computed once"
    chaos.check_whole(out, undisturbed.out)
