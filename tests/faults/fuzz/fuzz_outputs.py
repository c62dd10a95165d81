"""A fuzz target: the commands are called on damaged outputs, and none may end otherwise than docs/errors.md says.

    python -m tests.faults.fuzz.fuzz_outputs FOLDER --minutes 5 [--seed 0]  go on where the folder's last run stopped
    python -m tests.faults.fuzz.fuzz_outputs FOLDER --input 4711            one damage again

Damage N follows from the seed and N alone. Promised are a documented exit code with one sentence and its code, no
exception, no hang, and the tables of an undamaged output after `check` and `run`. A run may refuse where something is
in its way or forbidden; it must not once that is removed. Runs use the serial engine, so that each takes a second.
"""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
import time
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from random import Random

import pytest

from framekiln.device.watchdog import within
from framekiln.output import lease
from tests.faults.fuzz.arguments import read_arguments
from tests.faults.outputs.output_damage import Damage, damaged
from tests.faults.outputs.sample_output import KEPT, Sample, make_sample, remove, tables
from tests.support.machine.command_line import command
from tests.support.machine.permissions import as_any_user, permissions_count
from tests.support.runs.serial_engine import without_ray

HANGS_AFTER = 60.0  # s on the clock, of a machine that may be busy
_RENEWED = 200  # damages of one child
READERS = ("profile", "report", "compare", "check", "trace", "retry", "plan", "predict", "select", "export", "prune")
_REFUSALS = {"FK-OUTPUT-NOT-WRITABLE", "FK-OUTPUT-UNREADABLE", "FK-FOREIGN-FILE", "FK-OUTPUT-IN-USE"}
_CODE = re.compile(r"\[(FK-[A-Z-]+)\]\s*$")
_ENDINGS = {"check": (0, 1, 2), "run": (0, 2, 4), "retry": (0, 2, 4), "plan": (0, 2, 3)}


class BrokenError(Exception):
    """A promise that was not kept."""


def words_of(name: str, sample: Sample, whole: Path) -> list[str]:
    """Return the words of a command on a damaged output."""
    out = str(sample.out)
    words = {"compare": ["compare", str(whole / "out"), out, "--html", ""], "predict": ["predict", out, "--for", "l4"]}
    words["select"] = ["select", out, "--unique", "--per", "identity=2", "--against", "kept"]
    words["export"] = ["export", out, str(sample.folder / "exported"), "--to", "coco", "--selection", "kept"]
    words |= {"run": sample.run(), "plan": ["plan", *sample.run()[1:]]}
    return words.get(name, [name, out])


def ended(name: str, words: list[str]) -> str:
    """Call a command; return the code of its error, empty for success.

    Raises:
        BrokenError: it ended in another way than is documented.
    """
    try:
        with within(HANGS_AFTER):
            done = command(*words)
    except BaseException as error:
        raise BrokenError(f"{name} raised: {''.join(traceback.format_exception(error))}") from error
    lines = done.stderr.strip().splitlines()
    last = lines[-1] if lines else ""
    code = _CODE.search(last)
    if done.returncode not in _ENDINGS.get(name, (0, 1, 2)):
        raise BrokenError(f"{name} ended with {done.returncode}: {done.stderr}")
    if "Traceback" in done.stderr + done.stdout:
        raise BrokenError(f"{name} printed a traceback: {done.stdout} {done.stderr}")
    if done.returncode and not code and (name, done.returncode) not in {("check", 1), ("run", 4), ("retry", 4)}:
        raise BrokenError(f"{name} ended with {done.returncode} and no code: {done.stdout} {done.stderr}")
    return code[1] if code and done.returncode else ""


def check(number: int, seed: int, sample: Sample, whole: Path) -> list[str]:
    """Damage a sample, and call the commands on it; return what was done.

    Raises:
        BrokenError: something was not as promised.
    """
    rng = Random(f"{seed}:{number}")
    sample.put_back(whole)
    target = rng.choice(("out",) * 8 + ("weights", "known", "names"))
    damage = damaged(sample.folder / target, rng)
    chosen = [*rng.sample(READERS, rng.randrange(1, 4)), *rng.choice(((), ("run",))), "check"]
    try:
        for name in chosen:
            ended(name, words_of(name, sample, whole))
        check_run(sample, whole, damage, target)
    except BrokenError as error:
        raise BrokenError(f"{damage.done}, then {chosen}: {error}") from error
    return damage.done


def check_run(sample: Sample, whole: Path, damage: Damage, target: str) -> None:
    blind = "run.json: damaged" in command("check", sample.out).stdout
    code = ended("run", sample.run())
    if target != "out":
        sample.put_back(whole, target)
        damage.obstacles.clear()
    elif code and (code not in _REFUSALS or not damage.obstacles):
        raise BrokenError(f"run refused: {code}")
    if damage.obstacles:
        damage.clear()
        ended("check", ["check", str(sample.out)])
    if (damage.obstacles or target != "out") and (again := ended("run", sample.run())):
        raise BrokenError(f"run refused once all was right again: {again}")
    if blind and command("check", sample.out).returncode:  # as the first check said, it could not see everything
        ended("run", sample.run())
    found = command("check", sample.out)
    if "selections/" in found.stdout:  # no run computes a person's choice again
        remove(sample.out / "selections")
        found = command("check", sample.out)
    if found.returncode:
        raise BrokenError(f"check finds something after the run: {found.stdout}")
    expected, after = tables(whole / "out"), tables(sample.out)
    for name in expected.keys() | after.keys():
        if expected.get(name) != after.get(name):
            raise BrokenError(f"table {name}: {after.get(name)} in place of {expected.get(name)}")


def _child(folder: Path, seed: int, first: int, until: float) -> None:
    sample, number = Sample(folder / "sample"), first
    with quick():
        while number < first + _RENEWED and time.time() < until:
            (folder / "now").write_text(str(number))
            try:
                check(number, seed, sample, folder / "whole")
            except BrokenError as error:
                _keep(folder, number, str(error))
            number += 1
    sys.stdout.write(str(number))


@contextmanager
def quick() -> Iterator[None]:
    """Let runs in the block do without Ray, and wait for a strange lease for a tenth of a second, not a minute."""
    with without_ray(), pytest.MonkeyPatch.context() as patch:
        patch.setattr(lease, "MAX_MISSED", 0.02)
        yield


def _keep(folder: Path, number: int, message: str) -> None:
    (folder / "findings").mkdir(exist_ok=True)
    (folder / "findings" / f"{number}.txt").write_text(message, errors="backslashreplace")


def run(folder: Path, seed: int, minutes: float) -> dict[str, int]:
    """Try damages for some time, from where the folder's last run stopped; counts of this run."""
    if not (folder / "whole").exists():
        sample = make_sample(folder / "sample")
        for name in KEPT:
            shutil.copytree(sample.folder / name, folder / "whole" / name)
    state, until = folder / f"next-{seed}", time.time() + 60 * minutes
    total = {"inputs": 0, "broken": -len(list(folder.glob("findings/*")))}
    number = int(state.read_text()) if state.exists() else 0
    while time.time() < until:
        words = [sys.executable, "-m", "tests.faults.fuzz.fuzz_outputs", str(folder), "--seed", str(seed)]
        words += ["--child", str(number), str(until)]
        done = subprocess.run(words, capture_output=True, text=True, check=False, preexec_fn=as_any_user)
        if done.returncode == 0:
            after = int(done.stdout)
        else:
            died = int((folder / "now").read_text())
            _keep(folder, died, f"exit code {done.returncode}\n{done.stderr[-6000:]}")
            after = died + 1
        total["inputs"] += after - number
        number = after
        state.write_text(str(number))
    total["broken"] += len(list(folder.glob("findings/*")))
    return total


def main() -> None:
    """See the module."""
    arguments = read_arguments("Call the commands on damaged outputs.", 5.0)
    folder = arguments.folder.absolute()
    if arguments.child:
        _child(folder, arguments.seed, int(arguments.child[0]), float(arguments.child[1]))
    elif arguments.input is not None:
        with quick(), permissions_count():
            done = check(arguments.input, arguments.seed, Sample(folder / "sample"), folder / "whole")
        sys.stdout.write(f"{done}\n")
    else:
        sys.stdout.write(f"Seed {arguments.seed}\n")
        total = run(folder, arguments.seed, arguments.minutes)
        sys.stdout.write(f"{total}; findings in {folder / 'findings'}\n")
        sys.exit(total["broken"] > 0)


if __name__ == "__main__":
    main()
