"""Attempts at all work, logged outside the process, to find a row that kills every process.

Ray restarts a dead process with the same work, without end. So each process logs the start and end of work. Work that
has begun before has lost a process, perhaps to an outside cause. It is then done more carefully:

    one death     each call is logged before it is made
    two deaths    a child process makes the logged call; only rows that kill the child too are set aside, so two kills
                   from outside never lose a good row

The coordinator holds the log, not a disk: several machines need not share one.
"""

from abc import ABC, abstractmethod
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any

from framekiln.contract.errors import FramekilnError
from framekiln.profiling.records import StepEvent, worker_name
from framekiln.runtime.recovery.memory_pressure import more_memory

PAUSED = "-"
"""Logged by a process during other work: a death meanwhile does not count against this work."""

SET_UP = "set-up of "
"""Prefix of the name of a set-up's work."""

_LAST_DEATHS = 4  # two before the suspicion, and two after it, each with the suspect alone
_MOST_ENDED = 100_000  # 8 MB, and far more than processes repeat after a death
_MOST_DEATHS = 6  # deaths without a suspect: outside kills, or deaths between calls


class Reporter(ABC):
    """A worker's connection to its run's state, including the log of attempts; pickled with the worker's steps.

    It sends events without waiting, but waits for answers: an entry of the log is then known outside the process.
    """

    @abstractmethod
    def __call__(self, event: StepEvent) -> None:
        """Send an event."""

    @abstractmethod
    def ask(self, method: str, *arguments: object) -> Any:
        """Return the answer of a method of the run's state; earlier events have arrived by then."""

    @abstractmethod
    def last_lines(self, worker: str) -> str:
        """Return the last lines that a dead worker wrote to standard error; empty if there are none."""

    def begin(self, work: str) -> "Attempt":
        """Log the start of work in this process, and return the attempt with the facts of earlier ones."""
        attempt: Attempt = self.ask("begin", work, worker_name())
        return replace(attempt, log=self, work=work)

    def check(self) -> None:
        """Raise the error that stops the run, if there is one."""
        if error := self.ask("error"):
            raise error

    @contextmanager
    def fatal(self) -> Iterator[None]:
        """Send a FramekilnError to the driver as it is before it leaves this process."""
        try:
            yield
        except FramekilnError as error:
            self.ask("fail", error)
            raise


@dataclass
class _OpenWork:
    worker: str
    dead: list[str] = field(default_factory=list)
    suspects: set[str] = field(default_factory=set)
    call: str = ""


class AttemptTable:
    """The content of a log: all work that has begun and not ended."""

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
        # It may have died in a logged call for another of its packets.
        calls = {other.call for other in self._open.values() if other.worker == entry.worker} - {"", PAUSED}
        is_other = not entry.call and (entry.worker in self._explained or bool(calls))
        if entry.call != PAUSED and not is_other:
            entry.dead.append(entry.worker)
            self._advances += bool({entry.call} - {""} - entry.suspects)
            entry.suspects |= {entry.call} - {""}
        entry.worker, entry.call = worker, ""
        return Attempt(tuple(entry.dead), frozenset(entry.suspects))

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
        """Return a count of finished work and new suspects; while it stands still, a run makes no progress.

        A replacing process repeats its set-up and work that its task had ended; neither counts.
        """
        return self._advances


@dataclass(frozen=True)
class Attempt:
    """The current attempt at some work, and the facts of earlier ones."""

    workers: tuple[str, ...] = ()  # host:pid of processes that died during it
    suspects: frozenset[str] = frozenset()  # calls in progress when they died
    log: Reporter | None = None  # None: nothing is logged
    work: str = ""  # its name in the log

    @property
    def deaths(self) -> int:
        return len(self.workers)

    @property
    def is_logged(self) -> bool:
        """Return whether this process is restarted with more care after a death."""
        return self.log is not None

    @property
    def is_careful(self) -> bool:
        """Return whether a process died during this work before, so that each call is logged."""
        return bool(self.workers)

    @property
    def is_last(self) -> bool:
        """Return whether a suspect that no child process could call is set aside without another try."""
        return self.deaths >= _LAST_DEATHS

    def note(self, call: str) -> None:
        """Log a call before it is made; empty: it has returned."""
        if self.is_careful and self.log is not None:
            self.log.ask("note", self.work, call)

    def end(self) -> None:
        if self.log is not None:
            self.log.ask("end", self.work)


def begin_attempt(log: Reporter | None, work: str) -> Attempt:
    """Log the start of work, and return how carefully to do it; without a log it is a first attempt.

    Raises FramekilnError: processes keep dying during it, and no suspect explains this.
    """
    if log is None:
        return Attempt()
    attempt = log.begin(work)
    if attempt.deaths >= _MOST_DEATHS + 2 * len(attempt.suspects):
        raise FramekilnError(
            f"{attempt.deaths} processes in a row died at {work}, and no single call explains it. "
            f"Probably memory ran out: {more_memory()}",
            code="FK-PROCESSES-KEEP-DYING",
        )
    return attempt
