"""Calls in a child process: results, exceptions and deaths come back to the parent."""

from __future__ import annotations

import os
import signal
from pathlib import Path

from framekiln.runtime.recovery.captured_error import CapturedError, capture
from framekiln.runtime.recovery.child_process import ChildDied, ChildProcess


class Held:
    """An object with a method for each way a call can end."""

    def add(self, a, b):
        return a + b

    def fail(self):
        raise KeyError("gone")

    def die(self):
        os.kill(os.getpid(), signal.SIGSEGV)


def test_a_child_returns_results_and_errors_until_a_call_kills_it():
    with ChildProcess(Held()) as child:
        assert child.call("add", 2, 3) == 5
        error = child.call("fail")
        assert isinstance(error, CapturedError) and error.kind == "KeyError"
        assert child.call("add", "a", "b") == "ab"
        died = child.call("die")
    assert isinstance(died, ChildDied) and died.how == "SIGSEGV"


def test_a_child_ignores_packages_of_the_working_directory(tmp_path, monkeypatch):
    (tmp_path / "framekiln").mkdir()
    Path(tmp_path, "framekiln", "__init__.py").write_text("raise RuntimeError('a package of the user')\n")
    monkeypatch.chdir(tmp_path)
    with ChildProcess(Held()) as child:
        assert child.call("add", 2, 3) == 5


def test_a_message_of_any_length_is_kept_short_in_its_row():
    try:
        raise ValueError("begin" + "x" * 1_000_000 + "end")
    except ValueError as error:
        captured = capture(error)
    assert captured.message.startswith("begin") and captured.message.endswith("end")
    assert len(captured.message) < 11_000 and len(captured.traceback) < 11_000
    assert "raise ValueError" in captured.traceback
