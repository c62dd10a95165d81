"""Endings from outside: Ctrl-C, SIGTERM of a scheduler, a terminal that closes, a pipe without its reader.

Each of the signals ends a command as Ctrl-C does, with the exit code of a shell: 128 and the signal's number.
"""

import os
import signal
import sys
import threading
from types import FrameType

from rich.console import Console


class Interrupted(KeyboardInterrupt):
    """A signal that ends the command."""

    def __init__(self, number: int) -> None:
        super().__init__(number)
        self.number = number


def handle_signals() -> None:
    """Raise `Interrupted` in the main thread on SIGTERM and SIGHUP, where `nohup` does not ignore it."""
    if threading.current_thread() is threading.main_thread():
        for number in (signal.SIGTERM, signal.SIGHUP):
            if signal.getsignal(number) is not signal.SIG_IGN:
                signal.signal(number, _interrupt)


def exit_code(error: KeyboardInterrupt) -> int:
    """Return the exit code of a command that was interrupted."""
    return 128 + (error.number if isinstance(error, Interrupted) else signal.SIGINT)


class RunConsole(Console):
    """A terminal for commands that do more than to print: they go on when nobody reads any more."""

    def on_broken_pipe(self) -> None:
        """Print nothing from now on."""
        self.quiet = True
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, (sys.stderr if self.stderr else sys.stdout).fileno())


def _interrupt(number: int, _frame: FrameType | None) -> None:
    raise Interrupted(number)
