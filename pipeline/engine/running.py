"""Steps on Ray Data, which brings back-pressure, spilling, pools of processes, restarts and placement on many nodes.

    units and shares of them -> [decode + steps without a model] -> [a pool of processes for each model] ... -> receipts

What travels is sealed packets (pipeline/packet.py); what is computed is written by the process that made it
(pipeline/worker.py), so all that comes back to the driver is a receipt. The second pass maps over units too: a unit
holds whole files.
"""

from __future__ import annotations

import threading
import time
import uuid
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Any, TypeVar

import pyarrow as pa
import ray
import ray.data
from ray.data import ActorPoolStrategy, DataContext, TaskPoolStrategy

from pipeline.budget import Budgets
from pipeline.engine.board import Reporter, start_board
from pipeline.engine.ending import ended
from pipeline.engine.hosting import Group, KeepsLaterModel, actor_class, decoding_function, pack, task_function, unpack
from pipeline.engine.sampler import Samplers
from pipeline.errors import FramemillError
from pipeline.ledger import Ledger, Span
from pipeline.media.units import Unit, shares
from pipeline.plan import Plan
from pipeline.sample import Sample
from pipeline.second import SecondPass
from pipeline.storage import Store
from pipeline.waves import Wave

T = TypeVar("T")
_Piece = tuple[Unit, int, frozenset[Span]]

_IN_FLIGHT = 2  # packets of an actor: one being worked on, one fetched
_TASK_UNITS = 8  # ten seconds of small photos: what a dying task wastes, at most
_TASKS_PER_SLOT = 4  # lets fast slots take over what slow ones leave
_SAMPLED_SECONDS = 5.0  # of a run, before a process on each other machine watches it
_STOP_SECONDS = 5.0  # for the board's last lines
_WATCH_SECONDS = 0.5  # fast enough for a progress bar


def _last_line(error: BaseException) -> str:
    return (str(error).strip().splitlines() or [type(error).__name__])[-1]


class Engine:
    """Runs a plan on the connected Ray."""

    def __init__(self, plan: Plan, store: Store, on_samples: Callable[[list[Sample]], None]) -> None:
        self._plan, self._store, self._on_samples = plan, store, on_samples
        self._run = uuid.uuid4().hex[:8]
        self._board = start_board(Budgets(plan.budgets), store)
        self._began = time.monotonic()
        self._samplers: Samplers | None = None

    def close(self) -> None:
        """End the processes of the board and of the samplers; where several runs share one Ray, nothing else would."""
        if self._samplers is not None:
            self._samplers.stop()
            self._samplers = None
        with suppress(ray.exceptions.RayError):
            ray.wait([self._board.stop.remote()], timeout=_STOP_SECONDS)
        ray.kill(self._board)

    def first_pass(self, number: int, units: Sequence[Unit], ledger: Ledger) -> None:
        """Decode units and add the columns of a wave's steps, where the ledger does not have them all."""
        if not units:
            return
        wave = self._plan.waves[number]
        groups = self._groups(wave, f"{self._run}-{number}")
        with DataContext.current(_context()):
            tasks = _by_task(_shares(wave, units, ledger), wave.decode.workers)
            dataset = _spread(tasks)
            for group in groups:
                dataset = self._add(dataset, group, len(tasks))
            self._consume(dataset)

    def second_pass(self, step: SecondPass, pieces: Sequence[Any]) -> None:
        """Run one second-pass step, or the final assembly, over pieces of work."""
        if not pieces:
            return
        reporter, place = Reporter(self._board), step.processes

        def run(batch: pa.Table) -> pa.Table:
            with reporter.fatal():
                step(unpack(batch), reporter, reporter)
            return pa.table({"done": [1]})

        run.__name__ = run.__qualname__ = step.name
        with DataContext.current(_context()):
            if place is None:
                self._consume(_spread(pieces).map_batches(run, **_arguments(step.cpus)))
                return
            pool = ActorPoolStrategy(size=min(place.workers, len(pieces)), max_tasks_in_flight_per_actor=_IN_FLIGHT)
            kept = type(step.name, (KeepsLaterModel,), {})
            asks = {"compute": pool, "num_gpus": place.gpus or None, "fn_constructor_args": (step, reporter)}
            self._consume(_spread(pieces).map_batches(kept, **asks, **_arguments(step.cpus)))

    def _groups(self, wave: Wave, key: str) -> list[Group]:
        made = wave.groups()
        reporter = Reporter(self._board)
        return [
            Group(
                key=f"{key}-{i}",
                steps=steps,
                store=self._store,
                report=reporter,
                decode=wave.decode if i == 0 else None,
                last=i == len(made) - 1,
            )
            for i, steps in enumerate(made)
        ]

    def _add(self, dataset: Any, group: Group, most: int) -> Any:
        if group.decode is not None:
            pool = TaskPoolStrategy(size=min(group.decode.workers, most))
            return dataset.map_batches(decoding_function(group), compute=pool, **_arguments(group.decode.cpus))
        placement = group.placement
        if not group.keeps_model:
            pool = TaskPoolStrategy(size=placement.workers)
            return dataset.map_batches(task_function(group), compute=pool, **_arguments(placement.cpus))
        return dataset.map_batches(
            actor_class(group),
            fn_constructor_args=(group,),
            compute=ActorPoolStrategy(size=placement.workers, max_tasks_in_flight_per_actor=_IN_FLIGHT),
            label_selector={},  # keeps the tasks before it from being fused into the model's process
            num_gpus=placement.gpus or None,
            **_arguments(placement.cpus),
        )

    def _consume(self, dataset: Any) -> None:
        batches = iter(dataset.iter_batches(batch_size=None, batch_format="pyarrow", prefetch_batches=0))
        try:
            with ended(batches), self._watching():
                for _ in batches:
                    pass
        except ray.exceptions.RayError as error:
            told = ray.get(self._board.error.remote())
            raise told or FramemillError(f"Ray stopped the run: {_last_line(error)}") from error
        Reporter(self._board).check()

    @contextmanager
    def _watching(self) -> Iterator[None]:
        """Take samples from the board meanwhile: packets may take minutes to reach the end, and people watch."""
        done = threading.Event()
        asked: list[Any] = []  # what the board was asked and has not answered; at most one

        def watch() -> None:
            while not done.wait(_WATCH_SECONDS):
                self._sample_machines()
                if not asked:
                    asked.append(self._board.take.remote())
                if ray.wait(asked, timeout=_WATCH_SECONDS)[0]:
                    self._on_samples(ray.get(asked.pop()))

        thread = threading.Thread(target=watch, daemon=True)
        thread.start()
        try:
            yield
        finally:
            done.set()
            thread.join(timeout=10 * _WATCH_SECONDS)
        for answer in (*asked, self._board.take.remote()):
            self._on_samples(ray.get(answer))

    def _sample_machines(self) -> None:
        """Have other machines than the board's watched, once a run has lasted: it takes a process on each."""
        if self._samplers is None and self._store.run and time.monotonic() - self._began >= _SAMPLED_SECONDS:
            with suppress(ray.exceptions.RayError):
                self._samplers = Samplers(self._store, self._board)


def _shares(wave: Wave, units: Sequence[Unit], ledger: Ledger) -> list[list[_Piece]]:
    """By unit, its shares, and which of its packets were finished before."""
    finished = [ledger.common(wave.folders, unit.name) for unit in units]
    return [
        [(unit, share, spans) for share in range(shares(unit, wave.decode.config))]
        for unit, spans in zip(units, finished, strict=True)
    ]


def _by_task(units: Sequence[Sequence[T]], slots: int) -> list[tuple[T, ...]]:
    """Work for each decoding task, long ones first: a share of a film, or several units where there are many.

    Ray takes a fifth of a second between tasks.
    """
    films = [(share,) for pieces in units if len(pieces) > 1 for share in pieces]
    small = [pieces[0] for pieces in units if len(pieces) == 1]
    each = min(_TASK_UNITS, max(1, len(small) // (_TASKS_PER_SLOT * slots)))
    return [*films, *(tuple(small[start : start + each]) for start in range(0, len(small), each))]


def _spread(pieces: Sequence[Any]) -> Any:
    """A dataset of one block for each piece of work."""
    return ray.data.from_items([pack(piece) for piece in pieces], override_num_blocks=len(pieces))


def _arguments(cpus: float) -> dict[str, Any]:
    return {"batch_size": 1, "batch_format": "pyarrow", "zero_copy_batch": True, "num_cpus": cpus}


def _context() -> DataContext:
    context = DataContext.get_current().copy()
    context.target_max_block_size = 1  # every packet is a block of its own, and leaves at once
    context.max_errored_blocks = 0  # more would drop packets with a line in a log
    context.max_tasks_in_flight_per_actor = _IN_FLIGHT
    context.enable_progress_bars = False
    return context
