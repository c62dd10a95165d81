"""The interface between a job and the owner of its processes, and what they report.

A run's state outlives its processes: events for the driver, attempts at work, and the error that stops the run.
"""

import re
import uuid
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from framekiln.contract.errors import FramekilnError
from framekiln.media.units import Unit
from framekiln.output.ledger import Ledger
from framekiln.output.object_store import Store
from framekiln.planning.error_budget import Budgets
from framekiln.planning.plan import Plan
from framekiln.profiling.records import Death, Event, StepEvent, now
from framekiln.profiling.tools.profilers import NO_PROFILERS, ProfilerOptions
from framekiln.runtime.recovery.attempt_log import Attempt, AttemptTable
from framekiln.runtime.second_pass.second_pass import SecondPass, UnitRows


@dataclass(frozen=True, kw_only=True)
class RunContext:
    """The things that every engine is given."""

    plan: Plan
    store: Store
    on_events: Callable[[list[Event]], None]
    profilers: ProfilerOptions = NO_PROFILERS


class Engine(ABC):
    """An owner of worker processes, for one plan."""

    def __init__(self, context: RunContext) -> None:
        self._plan, self._store, self._profilers = context.plan, context.store, context.profilers
        self._on_events = context.on_events
        self._run = uuid.uuid4().hex[:8]  # part of its keys: several runs may use one process

    def compute(self, pending: Sequence[Unit], check: Callable[[], None]) -> None:
        """Read the media once for each wave of the plan; `check` is called after each.

        Raises FramekilnError: the error that stops the run.
        """
        for number, wave in enumerate(self._plan.waves):
            ledger = Ledger(self._store)
            if unfinished := [unit for unit in pending if not ledger.has(wave.folders, unit.name)]:
                self.first_pass(number, unfinished, ledger)
            check()

    def write(self, owners: Sequence[SecondPass], rows: Sequence[UnitRows], check: Callable[[], None]) -> None:
        """Write each owner's missing tables; `check` is called after each owner."""
        for owner in owners:
            if missing := owner.missing(rows):
                self.second_pass(owner, missing)
            check()

    @abstractmethod
    def first_pass(self, number: int, units: Sequence[Unit], ledger: Ledger) -> None:
        """Decode units, and compute the columns of a wave's steps that the ledger lacks.

        Raises FramekilnError: the error that stops the run.
        """

    @abstractmethod
    def second_pass(self, step: SecondPass, work: Sequence[Any]) -> None:
        """Run one second-pass step, or the final assembly. Raises FramekilnError: the error that stops the run."""

    @abstractmethod
    def close(self) -> None:
        """End all processes."""


_LINES = 20
_NOISE = re.compile(
    r"^ +File \"[^\"]*\", line \d+ in |^:|^Extension modules:|^PC: @|^ +@ +0x|logging\.cc|/site-packages/ray/"
)  # lines of Ray and faulthandler
_LONGEST = 300  # letters kept of a line


class RunState(AttemptTable):
    """The state of a run, which outlives its worker processes.

    It keeps events for the driver, and attempts for the processes that replace dead ones.
    """

    def __init__(self, budgets: Budgets) -> None:
        super().__init__()
        self._events: list[Event] = []
        self._error: FramekilnError | None = None
        self._budgets = budgets

    def begin(self, work: str, worker: str) -> Attempt:
        """See `Reporter`; the death of the process that began the work before is an event."""
        if (entry := self._open.get(work)) and entry.worker != worker:
            self.add_event(Death(worker=entry.worker, time=now()))
        return super().begin(work, worker)

    def fail(self, error: FramekilnError) -> None:
        """Keep the error that stops the run; the first one wins."""
        self._error = self._error or error

    def error(self) -> FramekilnError | None:
        return self._error

    def add_step(self, event: StepEvent) -> None:
        """Keep a step's event, and count its failures against its budget."""
        self.add_event(event)
        self._error = self._error or self._budgets.spend(event.step, event.rows, event.reasons)

    def add_event(self, event: Event) -> None:
        self._events.append(event)

    def take(self) -> list[Event]:
        """Return all events since the last call."""
        events, self._events = self._events, []
        return events


def last_lines(output: str) -> str:
    """Return the last lines of a process's output that are its own words.

    >>> last_lines("the file is from the future\\nExtension modules: numpy, torch")
    'the file is from the future'
    """
    lines = [line[:_LONGEST] for line in output.strip().splitlines() if not _NOISE.search(line)]
    return "\n".join(lines[-_LINES:])
