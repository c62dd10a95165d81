"""A run's progress and result on a terminal, and its end by a signal.

Ctrl-C, a scheduler's SIGTERM and a closed terminal end a command with a shell's exit code: 128 and the signal's number.
A command whose pipe has lost its reader goes on.
"""

import json
import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import replace
from functools import partial
from shlex import quote
from types import FrameType
from typing import NoReturn

import typer
from rich.console import Console

from framekiln.api.watch import Watch, WatchedRun
from framekiln.contract.errors import Reason, UserError
from framekiln.contract.output_names import ERRORS as ERRORS_TABLE
from framekiln.contract.output_names import RUN_RECORD
from framekiln.contract.row_errors import DECODE
from framekiln.contract.words import counted
from framekiln.output.object_store import Store
from framekiln.reporting.terminal.console import print_line
from framekiln.reporting.terminal.progress import make_view
from framekiln.reporting.terminal.tables import print_result, print_work
from framekiln.runtime.run.request import RunRequest

NOTHING_DONE = 4
"""Exit code of a complete run without a frame, or with a step that failed on all rows: scripts must stop."""
OUT_OF_REACH = 5
"""Exit code of a complete run without some files of a bucket that did not answer: scripts should run it again."""


class Interrupted(KeyboardInterrupt):
    """A signal that ends the command."""

    def __init__(self, number: int) -> None:
        super().__init__(number)
        self.number = number


def handle_signals() -> None:
    """Raise `Interrupted` in the main thread on SIGTERM and SIGHUP, unless `nohup` ignores the latter."""
    if threading.current_thread() is threading.main_thread():
        for number in (signal.SIGTERM, signal.SIGHUP):
            if signal.getsignal(number) is not signal.SIG_IGN:
                signal.signal(number, _interrupt)


def exit_code(error: KeyboardInterrupt) -> int:
    """Return the exit code of an interrupted command."""
    return 128 + (error.number if isinstance(error, Interrupted) else signal.SIGINT)


class RunConsole(Console):
    """A terminal for commands with work to do: they go on when nobody reads the output any more."""

    def on_broken_pipe(self) -> None:
        """Print nothing from now on."""
        self.quiet = True
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, (sys.stderr if self.stderr else sys.stdout).fileno())


def _interrupt(number: int, _frame: FrameType | None) -> None:
    raise Interrupted(number)


ERRORS = RunConsole(stderr=True, highlight=False, soft_wrap=True)
print_note = partial(print_line, ERRORS)  # stdout may be read by a program


def execute(
    request: RunRequest, console: Console, *, quiet: bool, as_json: bool = False, tensorboard: str | None = None
) -> None:
    """Run a request and print its work, progress and result; `tensorboard` is a folder for scalars.

    With `as_json`, stdout gets an object about the run, also after a failure. Raises UserError: see `Job.run`.
    """
    view = partial(make_view, console, quiet=quiet)
    watch = Watch(say=partial(print_line, console), found=partial(print_work, console), view=view)
    run = WatchedRun(replace(request, arguments=tuple(sys.argv[1:])), watch, tensorboard)
    store = run.job.store
    with (
        interruptible(lambda: f"Interrupted. {run.job.extent}; the same command continues."),
        _print_record_after(store) if as_json else nullcontext(),
    ):
        result = run.result()
        print_result(console, store, result)
        for line in result.recordings:
            print_line(console, line)
        print_report(console, store.root, result.report)
    if result.work.media and not result.frames:
        where = f"{ERRORS_TABLE}/ in {store.root!r} says why" if result.errors else "all were skipped"
        print_note(f"Nothing could be read: none of {len(result.work.media):,} files gave a frame; {where}.")
        raise typer.Exit(NOTHING_DONE)
    figures = result.figures.steps.items()  # a truncated file has rows in addition to its error
    if failed := [name for name, step in figures if 0 < step.rows <= step.failures and name != DECODE]:
        print_note(f"{', '.join(failed)} failed on all rows of this run; {ERRORS_TABLE}/ in {store.root!r} says why.")
        raise typer.Exit(NOTHING_DONE)
    if count := result.errors[Reason.UNREACHABLE]:
        print_note(
            f"A bucket or web server did not answer after all retries: {counted(count, 'row')} of {ERRORS_TABLE}/ "
            f"{'is' if count == 1 else 'are'} {Reason.UNREACHABLE}. "
            "Run the same command again, which reads these files again."
        )
        raise typer.Exit(OUT_OF_REACH)


@contextmanager
def _print_record_after(store: Store) -> Iterator[None]:
    """Print the content of run.json after the block; nothing after a user's mistake, as in other commands."""
    from framekiln.api.output import Output

    try:
        yield
    except UserError:
        raise
    except BaseException:
        if store.exists(RUN_RECORD):
            print(json.dumps(Output(store.root).to_dict(), indent=2), flush=True)
        raise
    print(json.dumps(Output(store.root).to_dict(), indent=2), flush=True)


@contextmanager
def interruptible(note: str | Callable[[], str]) -> Iterator[None]:
    """End this process with a note if Ctrl-C interrupts the block; Typer would only print "Aborted"."""
    try:
        yield
    except KeyboardInterrupt as error:
        print_note(note if isinstance(note, str) else note())
        leave(exit_code(error))


def leave(code: int) -> NoReturn:
    """End this process at once: Python may crash in its own shutdown if Ray is half-stopped."""
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)


def print_report(console: Console, output: str, url: str | None) -> None:
    """Print the path of a report; None if it could not be written."""
    late = f"No report: another run is replacing tables; `framekiln report {quote(output)}` writes it later."
    print_line(console, late if url is None else f"Report: {quote(url)}")
