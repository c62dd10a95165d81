"""Datasets of Ray Data for both passes.

Ray Data provides back-pressure, spilling, pools of processes, restarts, and placement on many nodes.

    units and shares of them -> [decode + steps without a model] -> [a pool of processes for each model] ... -> receipts

Sealed packets travel between processes (`framekiln.contract.packet`). Each process writes its own results
(`framekiln.runtime.worker`), so only receipts come back to the driver. The second pass maps over units too: a unit
holds whole files.
"""

import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from functools import partial
from typing import Any

import ray
import ray.data
from ray.data import ActorPoolStrategy, DataContext, TaskPoolStrategy

from framekiln.contract.errors import FramekilnError
from framekiln.contract.placement import Placement
from framekiln.engine.base import Engine, RunContext
from framekiln.engine.group import StepGroup, decode_work
from framekiln.engine.ray.coordinator import RayReporter, Samplers, start_coordinator
from framekiln.engine.ray.death_watch import DeathWatch, ended, services_error
from framekiln.engine.ray.private import dead_services, kill_model_processes
from framekiln.engine.ray.workers import KeepsModel, apply_steps, decode_units, do_later, keep_models, named, pack
from framekiln.media.units import Unit
from framekiln.output.ledger import Ledger
from framekiln.planning.error_budget import Budgets
from framekiln.runtime.second_pass.second_pass import SecondPass

# Ray Data takes up to 0.2 s from a task's end to the submission of the next. So some tasks wait in Ray for a free CPU.
_RUNNING = 8  # running decode tasks for each waiting one after the first; more would lose the order (long ones first)
_WAITING = 100  # waiting tasks of a second pass, which are short and in any order

_FETCHED = 1  # packets that a process with a model has fetched, in addition to those in work
_SAMPLED_SECONDS = 5.0  # s of a run before other machines are sampled, each by a process
_STOP_SECONDS = 5.0  # s for the coordinator's last lines
_WATCH_SECONDS = 0.5  # s; fast enough for a progress bar


class RayEngine(Engine):
    """A plan on the connected Ray."""

    def __init__(self, context: RunContext, stop: Callable[[FramekilnError], None]) -> None:
        """Start the coordinator; `stop` ends the run with an error, from another thread."""
        super().__init__(context)
        self._pools: list[str] = []  # names of pools with models
        self._coordinator = start_coordinator(Budgets(self._plan.budgets), self._store)
        self._reporter = RayReporter(self._coordinator)
        self._began = time.monotonic()
        self._samplers: Samplers | None = None
        self._deaths = DeathWatch(stop, lambda: ray.get(self._coordinator.advances.remote(), timeout=_WATCH_SECONDS))

    def close(self) -> None:
        """End the coordinator and the samplers: runs may share one Ray, which would keep them."""
        self._deaths.close()
        if dead_services():
            return  # calls would wait for them
        if self._samplers is not None:
            self._samplers.stop()
            self._samplers = None
        with suppress(ray.exceptions.RayError):
            ray.wait([self._coordinator.stop.remote()], timeout=_STOP_SECONDS)
        ray.kill(self._coordinator)

    def first_pass(self, number: int, units: Sequence[Unit], ledger: Ledger) -> None:
        wave = self._plan.waves[number]
        groups = wave.groups()
        with DataContext.current(_make_context(hold_back=len(groups) > 1)):
            tasks = decode_work(wave, units, ledger, wave.decode.workers)
            dataset = _spread(tasks)
            for i, steps in enumerate(groups):
                group = StepGroup(
                    key=f"{self._run}-{number}-{i}",
                    steps=steps,
                    store=self._store,
                    decode=wave.decode if i == 0 else None,
                    last=i == len(groups) - 1,
                    profilers=self._profilers,
                )
                dataset = self._add(dataset, group, len(tasks))
            self._consume(dataset)

    def second_pass(self, step: SecondPass, work: Sequence[Any]) -> None:
        place, arguments = step.processes, _make_arguments(step.cpus)
        with DataContext.current(_make_context(hold_back=False)):
            dataset = _spread(work)
            if place is None:
                slots = int(ray.cluster_resources().get("CPU", 1) / step.cpus)
                pool = TaskPoolStrategy(size=min(slots + _WAITING, len(work)))
                task = named(step.name, do_later, step, self._reporter, "")
                dataset = dataset.map_batches(task, compute=pool, **arguments)
            else:
                self._pools.append(step.name)
                place = replace(place, in_flight=1)  # a call holds all rows of a file
                set_up = partial(partial, do_later, step, self._reporter)  # Ray calls it with an occasion
                model = _make_pool(step.name, set_up, place, min(place.workers, len(work)))
                dataset = dataset.map_batches(**model, **arguments)
            self._consume(dataset)

    def _add(self, dataset: Any, group: StepGroup, most: int) -> Any:
        if group.decode is not None:
            size = group.decode.workers
            size += 1 + size // _RUNNING if group.last else 0
            pool = TaskPoolStrategy(size=min(size, most))
            task = named(group.name, decode_units, group, self._reporter)
            return dataset.map_batches(task, compute=pool, **_make_arguments(group.decode.cpus))
        placement = group.placement
        if not group.keeps_model:
            pool = TaskPoolStrategy(size=placement.workers)
            task = named(group.name, apply_steps, group, self._reporter)
            return dataset.map_batches(task, compute=pool, **_make_arguments(placement.cpus))
        self._pools.append(group.name)
        return dataset.map_batches(
            **_make_pool(group.name, partial(keep_models, group, self._reporter), placement, placement.workers),
            label_selector={},  # prevents fusing earlier tasks into the model's process
            **_make_arguments(placement.cpus),
            **self._profilers.ray_options(group.steps, self._store),
        )

    def _consume(self, dataset: Any) -> None:
        batches = iter(dataset.iter_batches(batch_size=None, batch_format="pyarrow", prefetch_batches=0))
        try:
            with ended(batches), self._watch_events():
                for _ in batches:
                    pass
        except ray.exceptions.RayError as error:
            if dead_services():
                raise services_error() from error
            kill_model_processes(self._pools)
            fatal = ray.get(self._coordinator.error.remote())
            reason = (str(error).strip().splitlines() or [type(error).__name__])[-1]
            raise fatal or FramekilnError(f"Ray stopped the run: {reason}", code="FK-RAY-STOPPED") from error
        self._reporter.check()

    @contextmanager
    def _watch_events(self) -> Iterator[None]:
        """Take events from the coordinator during the block: a packet may take minutes to arrive."""
        done = threading.Event()
        requests: list[Any] = []  # unanswered requests, at most one

        def watch() -> None:
            while not done.wait(_WATCH_SECONDS):
                if self._samplers is None and self._store.run and time.monotonic() - self._began >= _SAMPLED_SECONDS:
                    with suppress(ray.exceptions.RayError):
                        self._samplers = Samplers(self._store, self._coordinator)
                if not requests:
                    requests.append(self._coordinator.take.remote())
                if ray.wait(requests, timeout=_WATCH_SECONDS)[0]:
                    self._on_events(ray.get(requests.pop()))

        thread = threading.Thread(target=watch, daemon=True)
        thread.start()
        try:
            yield
        finally:
            done.set()
            thread.join(timeout=10 * _WATCH_SECONDS)
        for request in (*requests, self._coordinator.take.remote()):
            self._on_events(ray.get(request))


def _spread(work: Sequence[Any]) -> Any:
    return ray.data.from_items([pack(each) for each in work], override_num_blocks=len(work))


def _make_arguments(cpus: float) -> dict[str, Any]:
    return {"batch_size": 1, "batch_format": "pyarrow", "zero_copy_batch": True, "num_cpus": cpus}


def _make_pool(name: str, set_up: Any, place: Placement, most: int) -> dict[str, Any]:
    """Return the arguments for a named pool of processes that keep a model; `set_up` as in `KeepsModel`."""
    return {
        "fn": type(name, (KeepsModel,), {}),
        "fn_constructor_args": (set_up,),
        "compute": ActorPoolStrategy(
            size=min(place.workers, most),
            max_tasks_in_flight_per_actor=place.in_flight + _FETCHED,
            max_concurrent_calls_per_actor=place.in_flight,
        ),
        "num_gpus": place.gpus or None,
    }


def _make_context(*, hold_back: bool) -> DataContext:
    """Return Ray Data's settings. With `hold_back`, tasks are delayed until there is room for their CPUs or results.

    If only receipts are returned, tasks wait in Ray instead.
    """
    context = DataContext.get_current().copy()
    context.op_resource_reservation_enabled = hold_back
    context.target_max_block_size = 1  # each packet is a block of its own, sent at once
    context.max_errored_blocks = 0  # with more errors allowed, packets would be dropped with a log line only
    context.enable_progress_bars = False
    return context
