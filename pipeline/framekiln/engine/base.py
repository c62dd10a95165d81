"""The seam between a job and the owner of its processes."""

import uuid
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from framekiln.media.units import Unit
from framekiln.output.ledger import Ledger
from framekiln.output.object_store import Store
from framekiln.planning.plan import Plan
from framekiln.profiling.records import Reading, StepEvent
from framekiln.profiling.tools.profilers import NO_PROFILERS, ProfilerOptions
from framekiln.runtime.second_pass.second_pass import SecondPass


@dataclass(frozen=True, kw_only=True)
class RunContext:
    """The work of an engine, and its surroundings."""

    plan: Plan
    store: Store
    on_events: Callable[[list[StepEvent | Reading]], None]
    profilers: ProfilerOptions = NO_PROFILERS


class Engine(ABC):
    """An owner of worker processes, for one plan."""

    def __init__(self, context: RunContext) -> None:
        self._plan, self._store, self._profilers = context.plan, context.store, context.profilers
        self._on_events = context.on_events
        self._run = uuid.uuid4().hex[:8]  # opens the keys of its work in processes that several runs may use

    @abstractmethod
    def first_pass(self, number: int, units: Sequence[Unit], ledger: Ledger) -> None:
        """Decode units and compute the columns of a wave's steps, except those that the ledger has.

        Raises:
            FramekilnError: the error that stops the run.
        """

    @abstractmethod
    def second_pass(self, step: SecondPass, work: Sequence[Any]) -> None:
        """Run one second-pass step, or the final assembly.

        Raises:
            FramekilnError: the error that stops the run.
        """

    @abstractmethod
    def close(self) -> None:
        """End all processes."""
