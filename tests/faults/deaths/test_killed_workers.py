"""Processes that are killed at any moment cost time, but no row and no line in errors."""

from __future__ import annotations

import random
import time
from contextlib import suppress

import psutil
import pytest

from tests.faults import chaos

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("engine")]

WORK = ("decode", "model", "count", "all", "assemble", "Coordinator")  # names of processes, as `ps` shows them
LOCAL = "framekiln.engine.local.child"  # the local engine's worker processes
STEPS = chaos.STEPS | {"model": "tests.faults.stages:Poison"}


def victims(run) -> list[psutil.Process]:
    """Processes at work for a run: decoding tasks, those that keep a model, second-pass tasks, the coordinator."""
    pids = []
    for process in psutil.Process(run.pid).children(recursive=True):
        with suppress(psutil.Error):
            words = process.cmdline() or [""]
            if LOCAL in words or (words[0].startswith("ray::") and any(name in words[0] for name in WORK)):
                pids.append(process)
    return pids


def disturbed(words, kills: int, pause: tuple[float, float], rng: random.Random) -> tuple[int, str, str, list[str]]:
    """A run of which some process is killed again and again; its exit code, its words, and who was killed."""
    run, killed, written = chaos.start(*words), [], 0
    while run.poll() is None and len(killed) < kills:
        time.sleep(rng.uniform(*pause))
        if (pids := victims(run)) and (len(pids) > 1 or len(chaos.parts(words[-1])) > written):
            written = len(chaos.parts(words[-1]))  # a single process is not killed again and again in its set-up
            with suppress(psutil.Error):
                victim = rng.choice(pids)
                name = victim.cmdline()[0]
                victim.kill()
                killed.append(name)
    return *chaos.ended(run), killed


@pytest.fixture(scope="module")
def quiet(undisturbed, tmp_path_factory):
    """The tables of a run with a model that nobody disturbs, and the words for another."""
    folder = tmp_path_factory.mktemp("workers")
    profile = folder / "profile.yaml"
    profile.write_text("steps: {model: {device: cuda, gpus: 0.0, cpus: 0.5, timeout_s: 600}}\n")  # a process of its own
    pipeline = chaos.pipeline(folder / "pipeline.yaml", STEPS)
    words = ["--pipeline", pipeline, "--input", undisturbed.source, "--profile", profile, "--output"]
    code, printed, stderr = chaos.finish(*words, folder / "out")
    assert code == 0, printed + stderr
    return words, folder / "out"


def check(quiet, out, seed: int, kills: int, pause: tuple[float, float]) -> None:
    words, expected = quiet
    code, printed, stderr, killed = disturbed([*words, out], kills, pause, random.Random(seed))
    assert code == 0, (killed, printed + stderr)
    assert killed
    chaos.check_whole(out, expected)
    assert not list((out / "errors").glob("*")), killed


@pytest.mark.chaos
def test_three_kills_cost_no_row(quiet, tmp_path):
    check(quiet, tmp_path / "out", seed=4, kills=3, pause=(0.5, 2.0))


@pytest.mark.chaos
@pytest.mark.parametrize("seed", range(20))
def test_many_kills_cost_no_row(quiet, tmp_path, seed):
    check(quiet, tmp_path / "out", seed, kills=6, pause=(0.1, 1.5))
