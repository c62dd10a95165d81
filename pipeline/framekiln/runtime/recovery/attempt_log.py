"""Attempts at all work, logged outside of the process, to find a row that kills every process it meets.

Ray restarts a process that died and gives it the same work, without end. So each process logs what it begins and what
it has ended. Work that is already begun has lost a process before, perhaps to a cause outside of it. It is then done
more carefully:

    one death     each call is logged before it is made
    two deaths    the call that was logged is made by a child process; only rows that kill that one too are set aside,
                  so two kills from outside never lose a good row

The log is held by the coordinator, not on a disk: several machines need not share one.
"""

from abc import ABC, abstractmethod
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any

from framekiln.contract.errors import FramekilnError
from framekiln.profiling.records import StepEvent
from framekiln.runtime.recovery.memory_pressure import more_memory

PAUSED = "-"
"""Logged by a process that does other work for a while: a death during it does not count against this work."""

SET_UP = "set-up of "
"""Opens the name of the work of a set-up."""

_LAST_DEATHS = 4  # two before the suspicion, and two since, each with the suspect alone
_MOST_ENDED = 100_000  # 8 MB, and far more than processes repeat after a death
_MOST_DEATHS = 6  # of work without a suspect: it is killed from outside, or dies between calls


class Reporter(ABC):
    """A worker's connection to its run's state, the log of attempts among it; pickled with the worker's steps.

    It sends events without waiting, and waits for answers: an entry of the log is known outside of the process.
    """

    @abstractmethod
    def __call__(self, event: StepEvent) -> None:
        """Send an event."""

    @abstractmethod
    def _ask(self, method: str, *arguments: object) -> Any:
        """Return the answer of a method of the run's state; events that were sent before have arrived."""

    @abstractmethod
    def last_lines(self, worker: str) -> str:
        """Return the last lines on standard error of a dead worker; empty if there are none."""

    def begin(self, work: str, worker: str) -> "Attempt":
        """Log that work begins, and return the attempt with what is known of earlier ones."""
        attempt: Attempt = self._ask("begin", work, worker)
        return replace(attempt, log=self, work=work)

    def note(self, work: str, call: str) -> None:
        """Log a call that is about to be made; empty when it has returned."""
        self._ask("note", work, call)

    def end(self, work: str) -> None:
        self._ask("end", work)

    def check(self) -> None:
        """Raise the error that stops the run, if there is one."""
        if error := self._ask("error"):
            raise error

    @contextmanager
    def fatal(self) -> Iterator[None]:
        """Send our own errors to the driver as they are."""
        try:
            yield
        except FramekilnError as error:
            self._ask("fail", error)
            raise


@dataclass
class _OpenWork:
    worker: str
    dead: list[str] = field(default_factory=list)
    suspects: set[str] = field(default_factory=set)
    call: str = ""


class AttemptTable:
    """The memory of a log: all work that has begun and not ended."""

    def __init__(self) -> None:
        self._open: dict[str, _OpenWork] = {}
        self._explained: set[str] = set()  # workers that died in a logged call
        self._advances = 0
        self._ended: set[int] = set()  # hashes of work

    def begin(self, work: str, worker: str) -> "Attempt":
        if (entry := self._open.get(work)) is None:
            self._open[work] = _OpenWork(worker)
            return Attempt()
        if entry.call not in ("", PAUSED):
            self._explained.add(entry.worker)
        # It may have died in a logged call for another packet that it had in work.
        calls = {other.call for other in self._open.values() if other.worker == entry.worker} - {"", PAUSED}
        is_other = not entry.call and (entry.worker in self._explained or bool(calls))
        if entry.call != PAUSED and not is_other:
            entry.dead.append(entry.worker)
            self._advances += bool({entry.call} - {""} - entry.suspects)
            entry.suspects |= {entry.call} - {""}
        entry.worker, entry.call = worker, ""
        return Attempt(tuple(entry.dead), frozenset(entry.suspects))

    def worker_of(self, work: str) -> str | None:
        """Return the process that has begun the work; None if it has not begun, or ended."""
        return entry.worker if (entry := self._open.get(work)) else None

    def note(self, work: str, call: str) -> None:
        if entry := self._open.get(work):
            entry.call = call

    def end(self, work: str) -> None:
        self._open.pop(work, None)
        if not work.startswith(SET_UP) and hash(work) not in self._ended:
            self._advances += 1
            if len(self._ended) == _MOST_ENDED:
                self._ended.clear()
            self._ended.add(hash(work))

    def advances(self) -> int:
        """Return how much work has ended or found a suspect: a run in which this stands still gets nowhere.

        A process that replaces another one sets up again, and ends again what its task had ended: neither counts.
        """
        return self._advances


@dataclass(frozen=True)
class Attempt:
    """The current attempt at some work, and what is known of earlier ones."""

    workers: tuple[str, ...] = ()  # host:pid of processes that died at it
    suspects: frozenset[str] = frozenset()  # calls that were being made when they died
    log: Reporter | None = None  # None: a first attempt
    work: str = ""  # its name in the log

    @property
    def deaths(self) -> int:
        return len(self.workers)

    @property
    def is_logged(self) -> bool:
        """Return whether this process is restarted after a death, with more care."""
        return self.log is not None

    @property
    def is_careful(self) -> bool:
        """Return whether a process died at this work before, so that each call is logged."""
        return bool(self.workers)

    @property
    def is_last(self) -> bool:
        """Return whether a suspect that no child process could call is set aside without another try."""
        return self.deaths >= _LAST_DEATHS

    def note(self, call: str) -> None:
        """Log a call that is about to be made; empty when it has returned."""
        if self.is_careful and self.log is not None:
            self.log.note(self.work, call)

    def end(self) -> None:
        if self.log is not None:
            self.log.end(self.work)


def begin_attempt(log: Reporter | None, work: str, worker: str) -> Attempt:
    """Log that work begins, and return how carefully it is done; without a log it is a first attempt.

    Raises FramekilnError: processes keep dying at it, without a suspect that explains it.
    """
    if log is None:
        return Attempt()
    attempt = log.begin(work, worker)
    if attempt.deaths >= _MOST_DEATHS + 2 * len(attempt.suspects):
        raise FramekilnError(
            f"{attempt.deaths} processes died one after the other at {work}, and no single call explains it. "
            f"Probably memory ran out: {more_memory()}",
            code="FK-PROCESSES-KEEP-DYING",
        )
    return attempt
