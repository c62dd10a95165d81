"""What the processes of a run tell: events for the driver, attempts at work, and the error that stops the run."""

from framekiln.contract.errors import FramekilnError
from framekiln.planning.error_budget import Budgets
from framekiln.profiling.events import Reading, StepEvent
from framekiln.runtime.recovery.attempt_log import AttemptTable


class RunState(AttemptTable):
    """The memory of a run, which outlives its worker processes.

    It keeps their events for the driver, and their attempts for the processes that replace them.
    """

    def __init__(self, budgets: Budgets) -> None:
        super().__init__()
        self._events: list[StepEvent | Reading] = []
        self._error: FramekilnError | None = None
        self._budgets = budgets

    def fail(self, error: FramekilnError) -> None:
        """Keep the error that stops the run; the first one counts."""
        self._error = self._error or error

    def error(self) -> FramekilnError | None:
        """Return the error that stops the run; None without one."""
        return self._error

    def add_step(self, event: StepEvent) -> None:
        """Keep a step's event, and count its failures against the step's budget."""
        self.add_event(event)
        self._error = self._error or self._budgets.spend(event.step, event.rows, event.reasons)

    def add_event(self, event: StepEvent | Reading) -> None:
        """Keep an event for the driver."""
        self._events.append(event)

    def take(self) -> list[StepEvent | Reading]:
        """Return all events since the last call."""
        events, self._events = self._events, []
        return events
