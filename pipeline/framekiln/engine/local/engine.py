"""Both passes in a few worker processes of this machine.

Each process decodes units and applies all steps to their packets, so that nothing travels between processes. A dead
process is replaced, and its work is done again. Only the caller's thread talks with the processes. So Ctrl-C ends it
wherever it waits, and nothing needs a lock.
"""

import os
import socket
import subprocess
import sys
import time
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from multiprocessing.connection import wait
from pathlib import Path
from typing import Any

import cloudpickle
import psutil

from framekiln.contract.errors import FramekilnError, SetupError
from framekiln.device.cores import usable_cores
from framekiln.engine.base import Engine, RunContext, RunState, last_lines
from framekiln.engine.group import StepGroup, decode_work, decoded, write_tables
from framekiln.engine.local.child import ASK, DO, DONE, EVENT, HOLD, LAST_LINES
from framekiln.engine.sampler import Sampler
from framekiln.media.units import Unit
from framekiln.output.ledger import Ledger
from framekiln.planning.error_budget import Budgets
from framekiln.planning.processes.placement import asked_processes
from framekiln.planning.processes.waves import Wave
from framekiln.planning.step import Step
from framekiln.runtime.recovery.attempt_log import Reporter
from framekiln.runtime.recovery.child_process import Child
from framekiln.runtime.recovery.memory_pressure import Standstill, memory_full, more_memory
from framekiln.runtime.second_pass.second_pass import SecondPass

_TICK_S = 0.5  # s between two checks of the run as a whole: fast enough for a progress bar
_MOST_DEATHS = 10  # deaths in a row without any progress
_LEAST_S = 20.0  # s without progress: of processes that start at once, those that fit in memory finish some work
_END_S = 5.0  # s for a process to end by itself, once its connection is closed


class WorkerProcess(Child):
    """A process that does one piece of work at a time."""

    def __init__(self) -> None:
        """Start the process in a group of its own: terminals and schedulers send signals to a whole group."""
        threads = {"OMP_NUM_THREADS": "1"}  # threads of NumPy; torch uses those of its work
        super().__init__("framekiln.engine.local.child", threads, process_group=0)
        self._held: set[str] = set()
        self.work: Any = None  # None while it is idle

    @property
    def name(self) -> str:
        return f"{socket.gethostname()}:{self._process.pid}"

    def start(self, key: str, function: object, work: Any) -> None:
        """Start work by a function; each process gets a function once, by its key."""
        self.work = work
        with suppress(OSError):  # it has died; the next read reports it
            if key not in self._held:
                self.send((HOLD, key, function))
                self._held.add(key)
            self.send((DO, key, work))

    def receive(self) -> Any:
        """Return the next message. Raises EOFError or OSError if the process has died."""
        return cloudpickle.loads(self.connection.recv_bytes())

    def end(self) -> str:
        """End the process, and return the last lines of its output."""
        self.connection.close()
        try:
            self._process.wait(timeout=0 if self.work is not None else _END_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        with self._output:
            return last_lines(self._read_output())


class ProcessPool:
    """The worker processes of a run."""

    def __init__(self, state: RunState, tick: Callable[[], None], started: Sequence[WorkerProcess]) -> None:
        """Take over idle processes that were started before; `tick` is called twice a second during work."""
        self._state, self._tick = state, tick
        self._processes = [*started]
        self._output: dict[str, str] = {}  # last lines of dead processes, by name
        self._advances, self._since, self._deaths = 0, time.monotonic(), 0  # progress, its time, deaths since
        self._standstill, self._looked = Standstill(), 0.0

    def run(self, key: str, function: Callable[[Any, Reporter], object], work: Sequence[Any], size: int) -> None:
        """Do all work.

        Args:
            key: names the function, so that a process gets it once.
            function: takes one item of the work; what it yields is dropped.
            work: none of it is None.
            size: processes at most.

        Raises:
            FramekilnError: the error that stops the run.
        """
        waiting, size = deque(work), max(1, min(size, len(work)))
        paths = [path or str(Path.cwd()) for path in sys.path]
        # Packed separately: a process started before the function was known first learns where its modules are.
        packed = cloudpickle.dumps(function), max(1, usable_cores() // size), paths
        while waiting or self._list_busy():
            while waiting and len(self._list_busy()) < size:
                process = next((each for each in self._processes if each.work is None), None)
                if process is None:
                    self._processes.append(process := WorkerProcess())
                process.start(key, packed, waiting.popleft())
            for connection in wait([process.connection for process in self._list_busy()], timeout=_TICK_S):
                process = next(each for each in self._processes if each.connection is connection)
                try:
                    self._answer(process, *process.receive())
                except (EOFError, OSError):
                    waiting.appendleft(process.work)
                    self._processes.remove(process)
                    self._output[process.name] = process.end()
                    self._deaths += 1
            self._look()
        self._tick()

    def close(self) -> None:
        """End all processes; busy ones are killed."""
        while self._processes:
            self._processes.pop().end()

    def last_lines(self, worker: str) -> str:
        """Return the last lines of a dead process's output; empty if unknown."""
        return self._output.get(worker, "")

    def _list_busy(self) -> list[WorkerProcess]:
        return [process for process in self._processes if process.work is not None]

    def _answer(self, process: WorkerProcess, kind: str, *content: Any) -> None:
        if kind == EVENT:
            self._state.add_step(*content)
        elif kind == ASK:
            method, arguments = content
            owner: object = self if method == LAST_LINES else self._state
            process.send(getattr(owner, method)(*arguments))
        elif kind == DONE:
            process.work = None
            (problem,) = content
            if problem:
                last = problem.strip().splitlines()[-1]
                self._state.fail(FramekilnError(f"A worker process stopped the run: {last}", code="FK-WORKER-STOPPED"))

    def _look(self) -> None:
        """Check the run as a whole, twice a second. Raises FramekilnError: an error that stops the run."""
        if error := self._state.error():
            raise error
        now = time.monotonic()
        if now - self._looked < _TICK_S:
            return
        self._looked = now
        self._tick()
        if progress := self._state.advances() != self._advances:
            self._advances, self._since, self._deaths = self._state.advances(), now, 0
        if self._deaths >= _MOST_DEATHS and now - self._since >= _LEAST_S:
            last = next(reversed(self._output.values()), "") or f"Probably memory ran out: {more_memory()}"
            raise SetupError(
                f"{self._deaths} processes in a row died without finished work in between. {last}",
                code="FK-PROCESSES-KILLED",
            )
        if self._standstill.lasts(progress=progress):
            raise memory_full()


_PROCESS_BYTES = 500_000_000  # memory of a process with torch and without weights
_WEIGHTS_FACTOR = 2.0  # memory of weights by the size of their files: when loaded, and while being read
_MEMORY_SHARE = 0.7  # share of the available memory that processes with models may take


class LocalEngine(Engine):
    """A plan on this machine, without Ray."""

    def __init__(self, context: RunContext, started: Sequence[WorkerProcess]) -> None:
        """Start to sample this machine; `started`: idle processes, which this engine takes over."""
        super().__init__(context)
        self._state = RunState(Budgets(self._plan.budgets))
        self._pool = ProcessPool(self._state, lambda: self._on_events(self._state.take()), started)
        self._sampler = Sampler(self._store, self._state.add_event, parent=os.getpid()) if self._store.run else None

    def close(self) -> None:
        self._pool.close()
        if self._sampler is not None:
            self._sampler.stop()

    def first_pass(self, number: int, units: Sequence[Unit], ledger: Ledger) -> None:
        wave, key = self._plan.waves[number], f"{self._run}-{number}"
        steps = tuple(step.placed(in_flight=1) for group in wave.groups() for step in group)
        group = StepGroup(
            key=key, steps=steps, store=self._store, decode=wave.decode, last=True, profilers=self._profilers
        )
        size = count_processes(wave, steps)
        try:
            self._pool.run(key, partial(decoded, group), decode_work(wave, units, ledger, size), size)
        finally:
            if group.keeps_model:
                self._pool.close()  # frees their memory for the next step

    def second_pass(self, step: SecondPass, work: Sequence[Any]) -> None:
        size = max(1, int(usable_cores() / step.cpus))
        if step.processes is not None:
            size = min(size, step.processes.workers)
        key = f"{self._run}-{step.name}"
        self._pool.run(key, partial(write_tables, step, key), work, size)


def count_processes(wave: Wave, steps: Sequence[Step]) -> int:
    """Return the number of processes for a wave: one a core, within the profile and the memory."""
    models = [step for step in steps if step.keeps_model]
    if any(step.placement.device != "cpu" for step in models):
        return 1  # they share a GPU
    size = min(usable_cores(), asked_processes(wave))
    if models:
        weights = sum(entry.bytes for step in models for entry in step.entries.values())
        each = _PROCESS_BYTES + _WEIGHTS_FACTOR * weights
        size = min(size, int(_MEMORY_SHARE * psutil.virtual_memory().available / each))
    return max(1, size)
