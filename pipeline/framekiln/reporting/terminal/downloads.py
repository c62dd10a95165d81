"""Progress of downloads: bars on a terminal, elsewhere a line when a download starts, and for large ones some more."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from rich.console import Console
from rich.progress import (
    BarColumn,
    DownloadColumn,
    Progress,
    TaskID,
    TextColumn,
    TimeRemainingColumn,
    TransferSpeedColumn,
)

from framekiln.reporting.terminal.console import print_line

_LARGE = 50e6  # bytes; a download that may take minutes has a line for each quarter

if TYPE_CHECKING:  # it imports requests, which no other command needs
    from framekiln.weights.download import ProgressCallback


@contextmanager
def downloads(console: Console) -> Iterator[ProgressCallback]:
    """Yield a callback that shows the progress of downloads."""
    columns = (BarColumn(), DownloadColumn(), TransferSpeedColumn(), TimeRemainingColumn())
    disable = not console.is_terminal
    tasks: dict[str, TaskID] = {}
    quarters: dict[str, int] = {}
    with Progress(TextColumn("{task.description:<30}"), *columns, console=console, disable=disable) as progress:

        def watch(name: str, done: int, total: int) -> None:
            if name not in tasks:
                tasks[name] = progress.add_task(name, total=total)
                if disable:
                    print_line(console, f"Fetching {name} ({total / 1e6:,.1f} MB)")
            progress.update(tasks[name], completed=done)
            if disable and total > _LARGE and 4 * done // total > quarters.get(name, 0):
                quarters[name] = 4 * done // total
                print_line(console, f"{name}: {25 * quarters[name]}% of {total / 1e6:,.1f} MB")

        yield watch
