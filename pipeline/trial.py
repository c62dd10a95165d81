"""Calls made one by one in a child process, so that those that kill it can be told from those that do not.

`python -m pipeline.trial FOLDER` is the child: it takes the task in the folder, and leaves there what each call gave.
The folder is a temporary one of this user's, and only these two processes use it.
"""

from __future__ import annotations

import faulthandler
import os
import pickle
import signal
import subprocess
import sys
import tempfile
import traceback
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from pipeline.deadline import within
from pipeline.raised import BROKEN_GPU, end_if_lost, let_go

_SET_UP_SECONDS = 1800.0  # imports, weights, and a model that is compiled; on a busy machine
_LINES = 12  # of what the child said last
_NOT_READY = 70  # exit code of a child that raised in its set-up; EX_SOFTWARE of sysexits.h


class Task(Protocol):
    """Calls that a child makes; it is pickled."""

    deadline_s: float  # of one call; 0 for none

    def set_up(self) -> None:
        """Make ready what all calls need."""

    def call(self, number: int) -> Any:
        """Make one call; what it gives is pickled."""


@dataclass(frozen=True)
class Died:
    """The child was killed by a call."""

    how: str  # SIGSEGV, ...
    said: str  # its last words

    def told(self, where: str) -> str:
        """One sentence for the errors table."""
        return f"the process died ({self.how}) while {where} worked on this, also alone in a process of its own"


@dataclass(frozen=True)
class Untried:
    """No child came so far as to make the call."""

    said: str


def attempt(task: Task, calls: Sequence[int]) -> list[Any]:
    """What each of a task's calls gives, in their order: its result, `Raised`, `Died`, or `Untried`.

    A child that dies is followed by another one for the calls that are left. One that cannot be set up, as beside a
    model that fills the GPU, is held against none of them.
    """
    with tempfile.TemporaryDirectory(prefix="framemill-") as folder:
        (Path(folder) / "task").write_bytes(pickle.dumps(task))
        left = list(calls)
        while left:
            died = _run(Path(folder), left, task.deadline_s)
            done = [number for number in left if (Path(folder) / f"{number}.result").exists()]
            left = left[len(done) :]
            if died is None:
                break
            began = (Path(folder) / "ready").exists()
            for number in left[:1] if began else left:
                result = died if began else Untried(died.said)
                (Path(folder) / f"{number}.result").write_bytes(pickle.dumps(result))
            left = left[1:] if began else []
        return [pickle.loads((Path(folder) / f"{number}.result").read_bytes()) for number in calls]  # noqa: S301 - ours


def _run(folder: Path, calls: Sequence[int], deadline_s: float) -> Died | None:
    """One child; how it died, or None."""
    (folder / "ready").unlink(missing_ok=True)
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}
    longest = _SET_UP_SECONDS + 2 * deadline_s * len(calls) if deadline_s else None
    command = [sys.executable, "-m", "pipeline.trial", str(folder), *map(str, calls)]
    try:
        done = subprocess.run(
            command, env=environment, stdin=subprocess.DEVNULL, capture_output=True, timeout=longest, check=False
        )
    except subprocess.TimeoutExpired:
        return Died("it hung", "")
    if done.returncode == 0:
        return None
    said = "\n".join(done.stderr.decode(errors="replace").strip().splitlines()[-_LINES:])
    return Died(how_it_ended(done.returncode), said)


def how_it_ended(code: int) -> str:
    """A word for an exit code."""
    if code == BROKEN_GPU:
        return "it lost the GPU"
    if code > 0:
        return "it hung" if code == 1 else f"exit code {code}"
    try:
        return signal.Signals(-code).name
    except ValueError:
        return f"signal {-code}"


def _child(folder: Path, calls: Sequence[int]) -> None:
    faulthandler.enable()
    try:
        task: Task = pickle.loads((folder / "task").read_bytes())  # noqa: S301 - written by our parent
        task.set_up()
    except Exception:
        traceback.print_exc()
        sys.exit(_NOT_READY)
    (folder / "ready").touch()
    for number in calls:
        result: Any
        try:
            with within(task.deadline_s):
                result = task.call(number)
        except Exception as error:
            result = let_go(error)
            print(result.traceback, file=sys.stderr, flush=True)
        end_if_lost(result)
        half = folder / f"{number}.half"
        half.write_bytes(pickle.dumps(result))
        half.replace(folder / f"{number}.result")


if __name__ == "__main__":
    _child(Path(sys.argv[1]), [int(word) for word in sys.argv[2:]])
