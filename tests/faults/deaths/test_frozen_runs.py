"""A run that sleeps while another takes its output over publishes nothing when it wakes."""

from __future__ import annotations

import random
import signal
import subprocess
import sys
import time
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

import psutil
import pytest

from tests.faults import chaos

pytestmark = [pytest.mark.slow, pytest.mark.heavy, pytest.mark.usefixtures("engine")]

# The command line of another machine, which waits for two heartbeats in place of a minute.
OTHER_MACHINE = """
import sys
from framekiln.output import lease
lease.machine_id, lease.MAX_MISSED = lambda: "elsewhere", 2
sys.argv[0] = "framekiln"
from framekiln.cli.app import main
main()
"""


def send(number: int, family: Iterable[psutil.Process]) -> None:
    for process in family:
        with suppress(psutil.NoSuchProcess):
            process.send_signal(number)


def freeze(run: subprocess.Popen[str]) -> list[psutil.Process]:
    """Stop all processes of a run, also those that it starts meanwhile."""
    driver, family = psutil.Process(run.pid), set[psutil.Process]()
    while new := {driver, *driver.children(recursive=True)} - family:
        send(signal.SIGSTOP, new)
        family |= new
    return list(family)


def files(out: Path) -> dict[str, bytes]:
    """The objects of an output that tables are read from; records of calls are named by their run."""
    folders = [path for path in out.iterdir() if path.is_dir() and path.name != "profile"]
    paths = [path for folder in folders for path in folder.rglob("*") if path.is_file()]
    return {str(path.relative_to(out)): path.read_bytes() for path in paths}


@pytest.mark.parametrize("moment", [0, *(pytest.param(i, marks=pytest.mark.chaos) for i in range(1, 20))])
def test_frozen_and_woken_after_a_takeover(undisturbed, tmp_path, moment):
    out, chance, late = tmp_path / "out", random.Random(moment), moment % 2
    run = chaos.start(*undisturbed.words(out))
    begun = (lambda: any((out / "frames").glob("[!.]*"))) if late else (lambda: chaos.parts(out))
    assert chaos.wait_for(begun, run), run.communicate()
    time.sleep(chance.uniform(0, 0.3 if late else 3))
    family = freeze(run)
    try:
        words = undisturbed.words(out, "--every-nth", 2, "--engine", "local")
        words = [sys.executable, "-c", OTHER_MACHINE, "run", *map(str, words)]
        other = subprocess.run(words, cwd=chaos.ROOT, capture_output=True, text=True, timeout=250)
        assert other.returncode == 0, other.stdout + other.stderr
        before = files(out)
    finally:
        send(signal.SIGCONT, family)
    code, said, wrong = chaos.ended(run)
    chaos.wait_for_end([process for process in family if process.pid != run.pid])
    assert files(out) == before
    assert code == 2 and "[FK-OUTPUT-LOST]" in wrong, said + wrong
    rows = chaos.tables(out)["frames"].select(["media_id", "frame_index"]).to_pylist()
    assert len(rows) == chaos.CLIPS * chaos.LENGTH // 2 + chaos.PHOTOS
    assert len({tuple(row.values()) for row in rows}) == len(rows)
    assert chaos.leftovers(out) == []
