"""The seam between a job and the owner of its processes, and the choice between Ray and this machine alone."""

from __future__ import annotations

import uuid
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from framekiln.contract.errors import ConfigError, FramekilnError
from framekiln.media.units import Unit
from framekiln.output.ledger import Ledger
from framekiln.output.object_store import Store
from framekiln.planning.plan import Plan
from framekiln.profiling.events import Reading, StepEvent
from framekiln.profiling.tools.profilers import NO_PROFILERS, ProfilerOptions
from framekiln.runtime.run.request import RunRequest
from framekiln.runtime.second_pass.second_pass import SecondPass

if TYPE_CHECKING:
    from framekiln.engine.local.pool import WorkerProcess

SMALL_BYTES = 2_000_000_000
"""Input files that `auto` computes without Ray.

5,000 photos of 130 KB with `lighting` took 16 s on two cores, and 24 s with Ray, whose start takes 8 s. Beyond three
times as many it is less than a tenth of a run, and Ray's dashboard and live metrics are of more use.
"""


_LOCAL = "a process a core, each with all steps"


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


def choose(request: RunRequest, plan: Plan, units: Sequence[Unit]) -> tuple[Literal["local", "ray"], str]:
    """Choose the engine for these units; the sentence says why."""
    if request.engine == "local":
        return "local", f"Engine: local, as asked: {_LOCAL}."
    if request.engine == "ray":
        return "ray", "Engine: Ray, as asked."
    size = sum(media.size for unit in units for media in unit.media)
    if reason := _needs_ray(request):
        return "ray", f"Engine: Ray, since {reason}."
    if on_gpu := [step.name for step in plan.steps if step.placement.device != "cpu"]:
        return "ray", f"Engine: Ray, since {on_gpu[0]} runs on a GPU."
    if size > SMALL_BYTES:
        return "ray", f"Engine: Ray, since {size / 1e9:.1f} GB of files are more than {SMALL_BYTES / 1e9:.0f} GB."
    return "local", f"Engine: local, since the work is small: {_LOCAL} (--engine ray for Ray)."


def _needs_ray(request: RunRequest) -> str:
    if request.address is not None:
        return f"a cluster is named ({request.address})"
    return "--nsight starts processes through Ray" if request.profilers.nsight else ""


@contextmanager
def started_ahead(request: RunRequest) -> Iterator[list[WorkerProcess]]:
    """Start a process for the local engine where it may be chosen: it imports libraries while the run is planned.

    An engine takes it out of the list; else it is ended after the block.

    Raises:
        ConfigError: the local engine is asked for what only Ray can do.
    """
    if request.engine == "local" and (problem := _needs_ray(request)):
        raise ConfigError(f"--engine local: {problem}; leave out one of the two.", code="FK-ENGINE-LOCAL")
    ahead: list[WorkerProcess] = []
    if request.engine != "ray" and not _needs_ray(request):
        from framekiln.engine.local.pool import WorkerProcess

        ahead.append(WorkerProcess())
    try:
        yield ahead
    finally:
        while ahead:
            ahead.pop().end()


@contextmanager
def opened(
    name: Literal["local", "ray"],
    context: RunContext,
    *,
    ahead: list[WorkerProcess],
    stop: Callable[[FramekilnError], None],
) -> Iterator[Engine]:
    """Open an engine for the block; Ray must be connected.

    `ahead` comes from `started_ahead`. `stop` ends the run with an error from another thread.
    """
    if name == "local":
        from framekiln.engine.local.engine import LocalEngine

        started = [ahead.pop() for _ in range(len(ahead))]
        with closing(LocalEngine(context, started)) as local:
            yield local
    else:
        from framekiln.engine.ray.datasets import RayEngine

        with closing(RayEngine(context, stop)) as ray:
            yield ray
