"""What each process is at work on, kept outside of it: how a row is found that kills every process it meets.

Ray starts a process that died again and gives it the same work, for ever. So a process says what it begins, and what
it has ended. Work that is found begun has killed somebody, or was hit from outside, and is done with more care:

    one death     each call is written down before it is made
    two deaths    the call that was written down is made by a child process; only rows that kill that one too are set
                  aside, so two kills from outside never cost an innocent row

The records lie in the run's board, not on a disk: several machines need not share one.
"""

from __future__ import annotations

import os
import socket
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Protocol

from pipeline.errors import FramemillError

RESTING = "-"
"""Noted by a process that does something else for a while: a death now is not held against this work."""

_HOPELESS = 4  # deaths: two before the blame, and two since, each with the culprit alone
_MOST_DEATHS = 6  # of work in which no call is to blame: it is hit from outside, or dies between calls


@dataclass(frozen=True)
class Past:
    """What is known of a piece of work that begins."""

    workers: tuple[str, ...] = ()  # host:pid of those that died at it
    suspects: frozenset[str] = frozenset()  # calls that were being made then

    @property
    def deaths(self) -> int:
        """How many processes have died at it."""
        return len(self.workers)


class Journal(Protocol):
    """Where a process says what it does; each method returns when it is known outside of the process."""

    def begin(self, work: str, worker: str) -> Past:
        """Work is begun, perhaps not for the first time."""

    def note(self, work: str, call: str) -> None:
        """A call is about to be made; empty when it has returned."""

    def end(self, work: str) -> None:
        """Work is done."""


class Unkept:
    """No journal: for a process that nobody starts again."""

    def begin(self, work: str, worker: str) -> Past:  # noqa: ARG002
        """See `Journal`."""
        return Past()

    def note(self, work: str, call: str) -> None:
        """See `Journal`."""

    def end(self, work: str) -> None:
        """See `Journal`."""


@dataclass
class _Attempt:
    worker: str
    dead: list[str] = field(default_factory=list)
    suspects: set[str] = field(default_factory=set)
    call: str = ""


class Records:
    """A journal's memory."""

    def __init__(self) -> None:
        self._open: dict[str, _Attempt] = {}

    def begin(self, work: str, worker: str) -> Past:
        """See `Journal`."""
        if (known := self._open.get(work)) is None:
            self._open[work] = _Attempt(worker)
            return Past()
        if known.call != RESTING:
            known.dead.append(known.worker)
            known.suspects |= {known.call} - {""}
        known.worker, known.call = worker, ""
        return Past(tuple(known.dead), frozenset(known.suspects))

    def note(self, work: str, call: str) -> None:
        """See `Journal`."""
        if known := self._open.get(work):
            known.call = call

    def end(self, work: str) -> None:
        """See `Journal`."""
        self._open.pop(work, None)


@dataclass(frozen=True)
class Care:
    """With how much care one piece of work is done."""

    past: Past = Past()
    write_down: Callable[[str], None] | None = None  # None: there is no journal

    @property
    def journaled(self) -> bool:
        """Whether a process that ends is started again, and its work done with more care."""
        return self.write_down is not None

    @property
    def kept(self) -> bool:
        """Whether this work has killed before, so that each call is written down."""
        return self.past.deaths > 0

    @property
    def hopeless(self) -> bool:
        """Whether so many have died that a suspect which no child could try is set aside untried."""
        return self.past.deaths >= _HOPELESS

    def note(self, call: str) -> None:
        """A call is about to be made; empty when it has returned."""
        if self.kept and self.write_down is not None:
            self.write_down(call)

    def suspects(self, call: str) -> bool:
        """Whether it must be made by a child process."""
        return call in self.past.suspects


def worker_name() -> str:
    """This process among all of a run: host:pid."""
    return f"{socket.gethostname()}:{os.getpid()}"


def take_up(journal: Journal, work: str, worker: str) -> Care:
    """Begin work, with the care that its past asks for.

    Raises:
        FramemillError: processes keep dying at it, and no call is to blame.
    """
    past = journal.begin(work, worker)
    if past.deaths >= _MOST_DEATHS + 2 * len(past.suspects):
        raise FramemillError(
            f"{past.deaths} processes died one after the other at {work}, and nothing in it is to blame alone; look "
            "for what kills them: the kernel's log names its OOM killer."
        )
    return Care(past, None if isinstance(journal, Unkept) else partial(journal.note, work))
