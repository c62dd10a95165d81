"""A run with its progress and its result on a terminal."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import NoReturn

import typer
from rich.console import Console

from framekiln.cli.endings import RunConsole, exit_code
from framekiln.contract.errors import ConfigError
from framekiln.contract.output_names import ERRORS as ERRORS_TABLE
from framekiln.job import Job
from framekiln.output.object_store import Store
from framekiln.profiling.export.tensorboard import Scalars
from framekiln.reporting.terminal.console import print_line
from framekiln.reporting.terminal.progress import AdvisingView, ProgressView, make_view, working_steps
from framekiln.reporting.terminal.tables import print_result, print_work
from framekiln.runtime.run.request import RunRequest
from framekiln.runtime.run.result import Workload

NOTHING_READ = 4
"""Exit code of a run that ended well and has no frame, so that a script does not take it for a success."""

ERRORS = RunConsole(stderr=True, highlight=False, soft_wrap=True)
print_note = partial(print_line, ERRORS)  # beside output that a program may read


def execute(request: RunRequest, console: Console, *, quiet: bool, tensorboard: str | None = None) -> None:
    """Run a request and print its work, its progress and its result; `tensorboard` is a folder for scalars.

    Raises:
        UserError: see `Job.run`.
    """
    view = ProgressView()
    with interruptible(lambda: f"Interrupted. {job.extent}; the same command continues."), ExitStack() as stack:

        def on_plan(work: Workload) -> None:
            nonlocal view
            print_work(console, work, request)
            if work.left:
                view = stack.enter_context(_view(console, work, job.store.run, tensorboard, quiet=quiet))

        job = Job(
            replace(request, arguments=tuple(sys.argv[1:])),
            watch=lambda figures: view.show(figures),  # noqa: PLW0108 - `view` changes
            on_plan=on_plan,
            on_wait=partial(print_line, console),
        )
        result = job.run()
        stack.close()
        print_result(console, job.store, result)
        for line in result.recordings:
            print_line(console, line)
        _print_report(console, job.store, result.report)
    if result.work.media and not result.frames:
        where = f"{ERRORS_TABLE}/ in {job.store.root!r} says why" if result.errors else "all were passed over"
        print_note(f"Nothing could be read: none of {len(result.work.media):,} files gave a frame; {where}.")
        raise typer.Exit(NOTHING_READ)


def _view(console: Console, work: Workload, run: str, tensorboard: str | None, *, quiet: bool) -> AdvisingView:
    """Return the view of a run's progress, on the terminal and in scalars."""
    steps = working_steps(work)
    views: list[ProgressView | Scalars] = [make_view(console, steps, quiet=quiet)]
    if tensorboard is not None:
        views.append(Scalars(tensorboard, run, [*steps, *(step.name for step in work.plan.second)]))
    return AdvisingView(views, work.plan, work.saturated)


@contextmanager
def interruptible(note: str | Callable[[], str]) -> Iterator[None]:
    """End this process with a note if Ctrl-C interrupts the block; Typer would print one word."""
    try:
        yield
    except KeyboardInterrupt as error:
        print_note(note if isinstance(note, str) else note())
        leave(exit_code(error))


def leave(code: int) -> NoReturn:
    """End this process at once: with Ray stopped half-way, Python was seen to crash in its own shutdown."""
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)


def say_report(console: Console, store: Store, run: str | None = None) -> None:
    """Write the report again, and print its place."""
    from framekiln.reporting.html import write_report

    url: str | None = None
    with suppress(FileNotFoundError):
        url = write_report(store, run)
    _print_report(console, store, url)


def _print_report(console: Console, store: Store, url: str | None) -> None:
    late = f"No report: another run is replacing tables; `framekiln report {store.root}` writes it later."
    print_line(console, late if url is None else f"Report: {url}")


def check_folder(option: str, path: Path) -> None:
    """Check that a folder exists or can be made, and can be written to; nothing is made.

    Raises:
        ConfigError: the path is no folder, or this user may not write into it.
    """
    place = path.expanduser().absolute()
    existing = next(folder for folder in (place, *place.parents) if os.path.lexists(folder))
    if not existing.is_dir():
        raise ConfigError(
            f"{option} {str(path)!r}: {str(existing)!r} is not a folder; give another one.", code="FK-NOT-A-FOLDER"
        )
    if not os.access(existing, os.W_OK | os.X_OK):
        raise ConfigError(
            f"{option} {str(path)!r}: this user may not write into {str(existing)!r}; give another folder.",
            code="FK-FOLDER-NOT-WRITABLE",
        )


def check_file(option: str, path: Path) -> None:
    """Check that a file can be written, in a folder that exists or can be made.

    Raises:
        ConfigError: see `check_folder`, or the path is a folder.
    """
    check_folder(option, path.expanduser().absolute().parent)
    if os.path.isdir(path.expanduser()):  # noqa: PTH112 - pathlib raises for a long name
        raise ConfigError(f"{option} {str(path)!r} is a folder; give the name of a file in it.", code="FK-IS-A-FOLDER")
