"""Two runs into one output: refused, or shards that leave each other's work alone."""

from __future__ import annotations

import os

import pytest

from framekiln.output.lease import Lease
from framekiln.output.object_store import Store
from tests.faults import chaos

pytestmark = pytest.mark.slow


@pytest.mark.heavy
def test_a_second_run_is_refused_before_it_starts_ray(on_ray, undisturbed, tmp_path):
    out = tmp_path / "out"
    store = Store(str(out))
    store.prepare()
    with Lease(store):
        code, printed, stderr = chaos.finish(*undisturbed.words(out))
    assert code == 2 and "[FK-OUTPUT-IN-USE]" in stderr and f"process {os.getpid()} on " in stderr, stderr
    assert len(stderr.strip().splitlines()) == 1 and "Starting Ray" not in printed
    assert not chaos.parts(out)


@pytest.mark.chaos
def test_a_second_run_is_refused_and_the_first_goes_on(engine, undisturbed, tmp_path):
    out = tmp_path / "out"
    first = chaos.start(*undisturbed.words(out))
    assert chaos.wait_for(lambda: chaos.parts(out), first), first.communicate()
    code, printed, stderr = chaos.finish(*undisturbed.words(out))
    assert code == 2 and "[FK-OUTPUT-IN-USE]" in stderr and f"process {first.pid} on " in stderr, stderr
    assert len(stderr.strip().splitlines()) == 1 and "Starting Ray" not in printed
    code, printed, stderr = chaos.ended(first)
    assert code == 0, printed + stderr
    chaos.check_whole(out, undisturbed.out)


@pytest.mark.chaos
def test_a_run_that_another_took_over_from_stops(engine, undisturbed, tmp_path):
    out = tmp_path / "out"
    run = chaos.start(*undisturbed.words(out, "--set", "slow.seconds=0.2"))
    assert chaos.wait_for(lambda: chaos.parts(out), run), run.communicate()
    (lease,) = out.glob("run.lease-*.json")
    lease.unlink()
    code, printed, stderr = chaos.ended(run)
    assert code == 2 and "[FK-OUTPUT-LOST]" in stderr and f"'{out}'" in stderr, printed + stderr
    assert len(stderr.strip().splitlines()) == 1
    assert chaos.finish(*undisturbed.words(out))[0] == 0
    assert chaos.tables(out)["frames"].equals(chaos.tables(undisturbed.out)["frames"])


@pytest.mark.chaos
def test_shards_at_once_and_one_of_them_killed_are_the_whole_after_a_last_run(engine, undisturbed, tmp_path):
    out = tmp_path / "out"
    first_shard, second_shard = (chaos.start(*undisturbed.words(out, "--shard", f"{i}/2")) for i in (1, 2))
    assert chaos.wait_for(lambda: chaos.parts(out), first_shard), first_shard.communicate()
    family = chaos.kill(first_shard)
    code, printed, stderr = chaos.finish(*undisturbed.words(out, "--shard", "1/2"))  # sweeps while the other writes
    assert code == 0, printed + stderr
    code, printed, stderr = chaos.ended(second_shard)
    assert code == 0, printed + stderr
    chaos.wait_for_end(family)
    found = chaos.tables(out)
    assert found["frames"].equals(chaos.tables(undisturbed.out)["frames"]), "each frame once, whoever wrote it"
    assert "everything" not in found and found["counts"].num_rows == chaos.CLIPS + chaos.PHOTOS
    before = chaos.parts(out)
    assert chaos.finish(*undisturbed.words(out))[0] == 0
    assert chaos.parts(out) == before, "what the shards computed was computed once"
    chaos.check_whole(out, undisturbed.out)
