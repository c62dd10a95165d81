"""The seam between a job and the owner of its processes, and the choice between Ray and this machine alone."""

from __future__ import annotations

import uuid
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from typing import TYPE_CHECKING, Any, Literal

from framekiln.contract.errors import ConfigError, FramekilnError
from framekiln.media.units import Unit
from framekiln.output.ledger import Ledger
from framekiln.output.object_store import Store
from framekiln.planning.plan import Plan
from framekiln.profiling.events import Reading, StepEvent
from framekiln.profiling.tools.profilers import ProfilerOptions
from framekiln.runtime.second_pass.second_pass import SecondPass

if TYPE_CHECKING:
    from framekiln.engine.local.pool import WorkerProcess

EngineName = Literal["auto", "local", "ray"]

SMALL_BYTES = 2_000_000_000
"""Input files that `auto` computes without Ray.

5,000 photos of 130 KB with `lighting` took 16 s on two cores, and 24 s with Ray, whose start takes 8 s. Beyond three
times as many it is less than a tenth of a run, and Ray's dashboard and live metrics are of more use.
"""


_LOCAL = "a process a core, each with all steps"


class Engine(ABC):
    """An owner of worker processes, for one plan."""

    def __init__(
        self,
        plan: Plan,
        store: Store,
        on_events: Callable[[list[StepEvent | Reading]], None],
        profilers: ProfilerOptions,
    ) -> None:
        self._plan, self._store, self._on_events, self._profilers = plan, store, on_events, profilers
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


def choose(
    asked: EngineName, *, address: str | None, plan: Plan, units: Sequence[Unit], profilers: ProfilerOptions
) -> tuple[Literal["local", "ray"], str]:
    """Choose the engine of a run; the sentence says why."""
    if asked == "local":
        return "local", f"Engine: local, as asked: {_LOCAL}."
    if asked == "ray":
        return "ray", "Engine: Ray, as asked."
    size = sum(media.size for unit in units for media in unit.media)
    if reason := _needs_ray(address, profilers):
        return "ray", f"Engine: Ray, since {reason}."
    if on_gpu := [step.name for step in plan.steps if step.placement.device != "cpu"]:
        return "ray", f"Engine: Ray, since {on_gpu[0]} runs on a GPU."
    if size > SMALL_BYTES:
        return "ray", f"Engine: Ray, since {size / 1e9:.1f} GB of files are more than {SMALL_BYTES / 1e9:.0f} GB."
    return "local", f"Engine: local, since the work is small: {_LOCAL} (--engine ray for Ray)."


def _needs_ray(address: str | None, profilers: ProfilerOptions) -> str:
    """Return why only Ray can do the work; empty if it need not."""
    if address is not None:
        return f"a cluster is named ({address})"
    return "--nsight starts processes through Ray" if profilers.nsight else ""


@contextmanager
def started_ahead(
    asked: EngineName, *, address: str | None, profilers: ProfilerOptions
) -> Iterator[list[WorkerProcess]]:
    """Start a process for the local engine where it may be chosen: it imports libraries while the run is planned.

    An engine takes it out of the list; else it is ended after the block.

    Raises:
        ConfigError: the local engine is asked for what only Ray can do.
    """
    if asked == "local" and (problem := _needs_ray(address, profilers)):
        raise ConfigError(f"--engine local: {problem}; leave out one of the two.", code="FK-ENGINE-LOCAL")
    ahead: list[WorkerProcess] = []
    if asked != "ray" and not _needs_ray(address, profilers):
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
    plan: Plan,
    store: Store,
    on_events: Callable[[list[StepEvent | Reading]], None],
    profilers: ProfilerOptions,
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
        with closing(LocalEngine(plan, store, on_events, profilers, started)) as local:
            yield local
    else:
        from framekiln.engine.ray.datasets import RayEngine

        with closing(RayEngine(plan, store, on_events, profilers, stop=stop)) as ray:
            yield ray
