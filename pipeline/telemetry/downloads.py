"""How far downloads are: a bar for each on a terminal, a line for each when it starts elsewhere."""

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

if TYPE_CHECKING:  # it brings requests, which no other command needs
    from pipeline.weights.download import Watch


@contextmanager
def downloads(console: Console) -> Iterator[Watch]:
    """Something to tell about downloads while the block lasts."""
    if console.is_terminal:
        with _bars(console) as progress:
            tasks: dict[str, TaskID] = {}

            def move(name: str, done: int, total: int) -> None:
                if name not in tasks:
                    tasks[name] = progress.add_task(name, total=total)
                progress.update(tasks[name], completed=done)

            yield move
        return
    seen: set[str] = set()

    def say(name: str, done: int, total: int) -> None:  # noqa: ARG001
        if name not in seen:
            seen.add(name)
            console.print(f"Fetching {name} ({total / 1e6:,.1f} MB)", highlight=False, soft_wrap=True, markup=False)

    yield say


def _bars(console: Console) -> Progress:
    columns = (BarColumn(), DownloadColumn(), TransferSpeedColumn(), TimeRemainingColumn())
    return Progress(TextColumn("{task.description:<30}"), *columns, console=console)
