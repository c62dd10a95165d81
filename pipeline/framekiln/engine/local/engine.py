"""Both passes in a few worker processes of this machine.

Each process decodes units and applies all steps to their packets, so that nothing travels between processes.
"""

import os
from collections.abc import Sequence
from functools import partial
from typing import Any

import psutil

from framekiln.device.cores import usable_cores
from framekiln.engine.base import Engine, RunContext
from framekiln.engine.group import Group, decode_work, decoded, write_tables
from framekiln.engine.local.pool import Pool, WorkerProcess
from framekiln.engine.run_state import RunState
from framekiln.engine.sampler import Sampler
from framekiln.media.units import Unit
from framekiln.output.ledger import Ledger
from framekiln.planning.error_budget import Budgets
from framekiln.planning.processes.waves import Wave, combined_placement
from framekiln.planning.step import Step
from framekiln.runtime.second_pass.second_pass import SecondPass

_PROCESS_BYTES = 500_000_000  # of a process with torch and without weights
_WEIGHTS_FACTOR = 2.0  # memory for weights, by their files: as loaded, and while they are read
_MEMORY_SHARE = 0.7  # of what is available that processes with models may take


class LocalEngine(Engine):
    """A plan on this machine, without Ray."""

    def __init__(self, context: RunContext, started: Sequence[WorkerProcess] = ()) -> None:
        """Start the sampling of this machine; `started` are idle processes, which this engine takes over."""
        super().__init__(context)
        self._state = RunState(Budgets(self._plan.budgets))
        self._pool = Pool(self._state, lambda: self._on_events(self._state.take()), started)
        self._sampler = Sampler(self._store, self._state.add_event, parent=os.getpid()) if self._store.run else None

    def close(self) -> None:
        """End all processes."""
        self._pool.close()
        if self._sampler is not None:
            self._sampler.stop()

    def first_pass(self, number: int, units: Sequence[Unit], ledger: Ledger) -> None:
        """Decode units and compute the columns of a wave's steps, except those that the ledger has."""
        wave, key = self._plan.waves[number], f"{self._run}-{number}"
        steps = tuple(step.placed(in_flight=1) for group in wave.groups() for step in group)
        group = Group(key=key, steps=steps, store=self._store, decode=wave.decode, last=True, profilers=self._profilers)
        size = _count_processes(wave, steps)
        try:
            self._pool.run(key, partial(decoded, group), decode_work(wave, units, ledger, size), size)
        finally:
            if group.keeps_model:
                self._pool.close()  # frees their memory for what comes next

    def second_pass(self, step: SecondPass, work: Sequence[Any]) -> None:
        """Run one second-pass step, or the final assembly."""
        size = max(1, int(usable_cores() / step.cpus))
        if step.processes is not None:
            size = min(size, step.processes.workers)
        key = f"{self._run}-{step.name}"
        self._pool.run(key, partial(write_tables, step, key), work, size)


def _count_processes(wave: Wave, steps: Sequence[Step]) -> int:
    """Return the number of processes for a wave: one a core, as far as the profile and the memory allow."""
    models = [step for step in steps if step.keeps_model]
    if any(step.placement.device != "cpu" for step in models):
        return 1  # they share a GPU
    places = [combined_placement(group) for group in wave.groups() if any(step.keeps_model for step in group)]
    asked = wave.decode.workers + sum(place.workers * place.in_flight for place in places)
    size = min(usable_cores(), asked)
    if models:
        weights = sum(entry.bytes for step in models for entry in step.entries.values())
        each = _PROCESS_BYTES + _WEIGHTS_FACTOR * weights
        size = min(size, int(_MEMORY_SHARE * psutil.virtual_memory().available / each))
    return max(1, size)
