"""Both passes in a few worker processes of this machine.

Each process decodes pieces of units and applies all steps to their packets, so that nothing travels between processes.
"""

import os
import uuid
from collections.abc import Callable, Sequence
from typing import Any

import cloudpickle
import psutil

from framekiln.engine.group import divide_into_tasks, pieces_of
from framekiln.engine.local.child import Decoding, PackedWork, Tabling
from framekiln.engine.local.pool import Pool, WorkerProcess
from framekiln.engine.run_state import RunState
from framekiln.engine.sampler import Sampler
from framekiln.media.units import Unit
from framekiln.output.ledger import Ledger
from framekiln.output.object_store import Store
from framekiln.planning.error_budget import Budgets
from framekiln.planning.plan import Plan
from framekiln.planning.processes.process_groups import combined_placement
from framekiln.planning.processes.waves import Wave
from framekiln.planning.step import Step
from framekiln.profiling.events import Reading, StepEvent
from framekiln.profiling.tools.profilers import NO_PROFILERS, ProfilerOptions
from framekiln.runtime.second_pass.second_pass import SecondPass

_PROCESS_BYTES = 500_000_000  # of a process with torch and without weights
_WEIGHTS_FACTOR = 2.0  # memory for weights, by their files: as loaded, and while they are read
_MEMORY_SHARE = 0.7  # of what is available that processes with models may take


class LocalEngine:
    """A plan on this machine, without Ray."""

    def __init__(
        self,
        plan: Plan,
        store: Store,
        on_events: Callable[[list[StepEvent | Reading]], None],
        profilers: ProfilerOptions = NO_PROFILERS,
        started: Sequence[WorkerProcess] = (),
    ) -> None:
        """Start the sampling of this machine; `started` are idle processes, which this engine takes over."""
        self._plan, self._store, self._profilers = plan, store, profilers
        self._run = uuid.uuid4().hex[:8]
        self._state = RunState(Budgets(plan.budgets))
        self._pool = Pool(self._state, lambda: on_events(self._state.take()), started)
        self._sampler = Sampler(store, self._state.add_event, parent=os.getpid()) if store.run else None

    def close(self) -> None:
        """End all processes."""
        self._pool.close()
        if self._sampler is not None:
            self._sampler.stop()

    def first_pass(self, number: int, units: Sequence[Unit], ledger: Ledger) -> None:
        """Decode units and compute the columns of a wave's steps, except those that the ledger has."""
        if not units:
            return
        wave = self._plan.waves[number]
        steps = tuple(step.placed(in_flight=1) for group in wave.groups() for step in group)
        size = _count_processes(wave, steps)
        pieces = divide_into_tasks(pieces_of(wave, units, ledger), size)
        key = f"{self._run}-{number}"
        work = Decoding(key=key, steps=steps, store=self._store, decode=wave.decode, profilers=self._profilers)
        try:
            self._share_out(key, work, pieces, size)
        finally:
            if any(step.keeps_model for step in steps):
                self._pool.close()  # frees their memory for what comes next

    def second_pass(self, step: SecondPass, pieces: Sequence[Any]) -> None:
        """Run one second-pass step, or the final assembly, over pieces of work."""
        size = max(1, int(_count_cores() / step.cpus))
        if step.processes is not None:
            size = min(size, step.processes.workers)
        key = f"{self._run}-{step.name}"
        self._share_out(key, Tabling(step, key), pieces, size)

    def _share_out(self, key: str, work: object, pieces: Sequence[Any], size: int) -> None:
        size = min(size, len(pieces))
        if size:
            packed = PackedWork(content=cloudpickle.dumps(work), threads=max(1, _count_cores() // size))
            self._pool.run(key, packed, pieces, size)


def _count_cores() -> int:
    return len(os.sched_getaffinity(0))


def _count_processes(wave: Wave, steps: Sequence[Step]) -> int:
    """Return the number of processes for a wave: one a core, as far as the profile and the memory allow."""
    models = [step for step in steps if step.keeps_model]
    if any(step.placement.device != "cpu" for step in models):
        return 1  # they share a GPU
    places = [combined_placement(group) for group in wave.groups() if any(step.keeps_model for step in group)]
    asked = wave.decode.workers + sum(place.workers * place.in_flight for place in places)
    size = min(_count_cores(), asked)
    if models:
        weights = sum(entry.bytes for step in models for entry in step.entries.values())
        each = _PROCESS_BYTES + _WEIGHTS_FACTOR * weights
        size = min(size, int(_MEMORY_SHARE * psutil.virtual_memory().available / each))
    return max(1, size)
