"""How far a run is: a bar for each step on a terminal, a plain line every ten seconds elsewhere."""

from __future__ import annotations

import time
from collections.abc import Sequence
from types import TracebackType
from typing import Protocol

from rich.console import Console
from rich.progress import BarColumn, Progress, TaskID, TextColumn, TimeRemainingColumn

from pipeline.telemetry.figures import Figures

LINE_SECONDS = 10.0  # short enough to see that it lives, long enough for a log file


class View(Protocol):
    """Something that shows figures as they change."""

    def show(self, figures: Figures) -> None:
        """Bring it up to date."""

    def __enter__(self) -> View: ...

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...


class Bars:
    """A bar for each step: rows, rows a second, errors, time left."""

    def __init__(self, console: Console, steps: Sequence[str]) -> None:
        self._progress = Progress(
            TextColumn("{task.description:<20}"),
            BarColumn(),
            TextColumn("{task.completed:>9,.0f} rows"),
            TextColumn("{task.fields[rate]:>8,.1f} rows/s"),
            TextColumn("[red]{task.fields[errors]}"),
            TimeRemainingColumn(),
            console=console,
        )
        self._tasks: dict[str, TaskID] = {
            name: self._progress.add_task(name, total=None, rate=0.0, errors="") for name in steps
        }

    def show(self, figures: Figures) -> None:
        """Move the bars."""
        for name, task in self._tasks.items():
            step = figures.steps[name]
            errors = f"{step.failures} errors" if step.failures else ""
            self._progress.update(task, completed=step.rows, total=figures.expected_rows, rate=step.rate, errors=errors)

    def __enter__(self) -> Bars:
        self._progress.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._progress.stop()


class Lines:
    """One line every ten seconds."""

    def __init__(self, console: Console, steps: Sequence[str]) -> None:
        self._console, self._steps = console, steps
        self._next = time.monotonic() + LINE_SECONDS

    def show(self, figures: Figures) -> None:
        """Print a line when it is time."""
        if time.monotonic() < self._next:
            return
        self._next = time.monotonic() + LINE_SECONDS
        total = figures.expected_rows
        parts = [f"{name} {figures.steps[name].rows} ({figures.steps[name].rate:.1f}/s)" for name in self._steps]
        errors = sum(step.failures for step in figures.steps.values())
        of = f" of about {total} rows" if total else ""
        self._console.print(f"{', '.join(parts)}{of}, {errors} errors", highlight=False, soft_wrap=True)

    def __enter__(self) -> Lines:
        return self

    def __exit__(self, *_: object) -> None:
        return


class Silent:
    """Nothing."""

    def show(self, figures: Figures) -> None:
        """Show nothing."""

    def __enter__(self) -> Silent:
        return self

    def __exit__(self, *_: object) -> None:
        return


def view(console: Console, steps: Sequence[str], *, quiet: bool) -> View:
    """What suits the console."""
    if quiet:
        return Silent()
    return Bars(console, steps) if console.is_terminal else Lines(console, steps)
