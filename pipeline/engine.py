"""Steps on Ray Data, which brings back-pressure, spilling, pools of processes, restarts and placement on many nodes.

    units -> [decode + steps without a model] -> [a pool of processes for each model] ... -> receipts

What travels is sealed packets (pipeline/packet.py); what is computed is written by the process that made it (pipeline/worker.py), so all
that comes back to the driver is a receipt. The second pass maps over units too: a unit holds whole files.
"""

from __future__ import annotations

import logging
import os
import socket
import threading
import uuid
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import ray
import ray.data
from ray.data import ActorPoolStrategy, DataContext, TaskPoolStrategy

from pipeline.errors import FramemillError, ResourceError
from pipeline.machines import Node, this_machine
from pipeline.media.units import Unit
from pipeline.sample import Sample
from pipeline.packet import Packet
from pipeline.plan import Plan
from pipeline.second import SecondPass
from pipeline.step import DecodeStep, Step
from pipeline.storage import Store
from pipeline.worker import Worker

_IN_FLIGHT = 2  # packets of an actor: one being worked on, one fetched
_WATCH_SECONDS = 0.5  # fast enough for a progress bar


@ray.remote(num_cpus=0)
class Board:
    """Where workers leave their samples for the driver to take."""

    def __init__(self) -> None:
        self._samples: list[Sample] = []
        self._error: FramemillError | None = None

    def fail(self, error: FramemillError) -> None:
        """Leave what must stop the run: Ray wraps exceptions until nobody can tell what they were."""
        self._error = self._error or error

    def error(self) -> FramemillError | None:
        """What must stop the run."""
        return self._error

    def add(self, sample: Sample) -> None:
        """Leave one."""
        self._samples.append(sample)

    def take(self) -> list[Sample]:
        """All since the last time."""
        taken, self._samples = self._samples, []
        return taken


@dataclass(frozen=True)
class Reporter:
    """Sends samples to the board without waiting for it."""

    board: Any

    def __call__(self, sample: Sample) -> None:
        self.board.add.remote(sample)

    @contextmanager
    def fatal(self) -> Iterator[None]:
        """Hand our own errors to the driver before Ray wraps them."""
        try:
            yield
        except FramemillError as error:
            ray.get(self.board.fail.remote(error))
            raise


@dataclass(frozen=True, kw_only=True)
class Group:
    """Steps that share a process, and what they need there."""

    key: str  # of this run and this group: workers are set up once for each
    steps: tuple[Step, ...]
    store: Store
    report: Reporter
    decode: DecodeStep | None = None
    later: tuple[Step, ...] = ()  # for the decoding group: all first-pass steps
    last: bool = False

    @property
    def name(self) -> str:
        """What Ray's dashboard shows."""
        return "+".join([*(["decode"] if self.decode else []), *(step.name for step in self.steps)])


class _Hosted:
    """Workers of task groups by their key: Ray reuses task processes, so a stage is set up once in each."""

    workers: dict[str, Worker] = {}  # noqa: RUF012

    @classmethod
    def get(cls, group: Group) -> Worker:
        if group.key not in cls.workers:
            with group.report.fatal():
                cls.workers[group.key] = Worker(group.steps, group.store, group.report)
        return cls.workers[group.key]


def _forward(worker: Worker, group: Group, sealed: pa.Table) -> pa.Table:
    with group.report.fatal():
        return _hand_on(worker.apply(Packet.open(sealed)), group)


def _hand_on(packet: Packet, group: Group) -> pa.Table:
    if group.last:
        return pa.table({"unit": [packet.unit], "start": [packet.start], "stop": [packet.stop]})
    return packet.seal()


def _decoding(group: Group) -> Callable[[pa.Table], Iterator[pa.Table]]:
    def run(batch: pa.Table) -> Iterator[pa.Table]:
        assert group.decode is not None
        with group.report.fatal():
            for packet in _Hosted.get(group).decode(group.decode, unpack(batch), group.later):
                yield _hand_on(packet, group)

    run.__name__ = run.__qualname__ = group.name
    return run


def _task(group: Group) -> Callable[[pa.Table], pa.Table]:
    def run(sealed: pa.Table) -> pa.Table:
        return _forward(_Hosted.get(group), group, sealed)

    run.__name__ = run.__qualname__ = group.name
    return run


class _Actor:
    """A process that keeps a model."""

    def __init__(self, group: Group) -> None:
        self._group = group
        with group.report.fatal():
            self._worker = Worker(group.steps, group.store, group.report)

    def __call__(self, sealed: pa.Table) -> pa.Table:
        return _forward(self._worker, self._group, sealed)


@contextmanager
def session(address: str | None) -> Iterator[list[Node]]:
    """A connection to Ray: a local one of our own, or a running cluster. Yields the machines.

    Raises:
        ResourceError: there is no cluster at the address.
    """
    os.environ.setdefault(
        "RAY_BACKEND_LOG_LEVEL", "fatal"
    )  # Ray's C++ core writes notes on its own doings to the terminal
    for name in ("ray", "ray.data"):  # what stops a run is told once, by us
        logging.getLogger(name).setLevel(logging.CRITICAL)
    if ray.is_initialized():  # inside another session: share it
        yield _nodes()
        return
    try:
        if address is not None:
            _check_answers(address)
        ray.init(**_init_arguments(address))
    except (OSError, RuntimeError, ValueError) as error:
        raise ResourceError(
            f"No Ray cluster answers at {address!r} ({_first_line(error)}); start one, or leave out --address."
        ) from error
    try:
        yield _nodes()
    finally:
        ray.shutdown()


def _check_answers(address: str) -> None:
    """Ray tries for minutes to reach a port that nobody listens on; ask first."""
    host, colon, port = address.rpartition(":")
    if colon and port.isdecimal():
        socket.create_connection((host.rpartition("/")[2] or "127.0.0.1", int(port)), timeout=10).close()


def _nodes() -> list[Node]:
    alive = [node for node in ray.nodes() if node["Alive"]]
    sizes = [(str(node["NodeManagerAddress"]), node["Resources"]) for node in alive]
    return [Node(name=name, cpus=size.get("CPU", 0.0), gpus=size.get("GPU", 0.0)) for name, size in sizes]


def _init_arguments(address: str | None) -> dict[str, Any]:
    quiet = {"log_to_driver": False, "logging_level": "error"}
    if address is not None:
        return {"address": address, **quiet}
    roots = [str(Path(__file__).resolve().parents[1]), *os.environ.get("PYTHONPATH", "").split(os.pathsep)]
    os.environ["PYTHONPATH"] = os.pathsep.join(
        dict.fromkeys(root for root in roots if root)
    )  # this checkout, also in its workers
    here = this_machine()
    return {
        "address": "local",
        "num_cpus": int(here.cpus),
        "num_gpus": int(here.gpus),
        "include_dashboard": False,
        **quiet,
    }


def _first_line(error: BaseException) -> str:
    return (str(error).strip().splitlines() or [type(error).__name__])[0].rstrip(".")


def _last_line(error: BaseException) -> str:
    return (str(error).strip().splitlines() or [type(error).__name__])[-1]


class Engine:
    """Runs a plan on the connected Ray."""

    def __init__(self, plan: Plan, store: Store, on_samples: Callable[[list[Sample]], None]) -> None:
        self._plan, self._store, self._on_samples = plan, store, on_samples
        self._run = uuid.uuid4().hex[:8]
        self._board = Board.remote()

    def first_pass(self, units: Sequence[Unit]) -> None:
        """Decode units and add every first-pass step's columns."""
        if not units:
            return
        groups = self._groups()
        with DataContext.current(_context()):
            dataset = _spread(units)
            for group in groups:
                dataset = self._add(dataset, group)
            self._consume(dataset)

    def second_pass(self, step: SecondPass, pieces: Sequence[Any]) -> None:
        """Run one second-pass step, or the final assembly, over pieces of work."""
        if not pieces:
            return
        reporter = Reporter(self._board)

        def run(batch: pa.Table) -> pa.Table:
            with reporter.fatal():
                step(unpack(batch), reporter)
            return pa.table({"done": [1]})

        run.__name__ = run.__qualname__ = step.name
        with DataContext.current(_context()):
            self._consume(_spread(pieces).map_batches(run, **_arguments(step.cpus)))

    def _groups(self) -> list[Group]:
        made = self._plan.groups()
        reporter = Reporter(self._board)
        return [
            Group(
                key=f"{self._run}-{i}",
                steps=steps,
                store=self._store,
                report=reporter,
                decode=self._plan.decode if i == 0 else None,
                later=self._plan.first if i == 0 else (),
                last=i == len(made) - 1,
            )
            for i, steps in enumerate(made)
        ]

    def _add(self, dataset: Any, group: Group) -> Any:
        if group.decode is not None:
            pool = TaskPoolStrategy(size=group.decode.workers)
            return dataset.map_batches(_decoding(group), compute=pool, **_arguments(group.decode.cpus))
        placement = group.steps[0].placement
        if not group.steps[0].keeps_model:
            pool = TaskPoolStrategy(size=placement.workers)
            return dataset.map_batches(_task(group), compute=pool, **_arguments(placement.cpus))
        return dataset.map_batches(
            type(group.name, (_Actor,), {}),
            fn_constructor_args=(group,),
            compute=ActorPoolStrategy(size=placement.workers, max_tasks_in_flight_per_actor=_IN_FLIGHT),
            label_selector={},  # keeps the tasks before it from being fused into the model's process
            num_gpus=placement.gpus or None,
            **_arguments(placement.cpus),
        )

    def _consume(self, dataset: Any) -> None:
        try:
            with self._watching():
                for _ in dataset.iter_batches(batch_size=None, batch_format="pyarrow", prefetch_batches=0):
                    pass
        except ray.exceptions.RayError as error:
            raise ray.get(self._board.error.remote()) or FramemillError(
                f"Ray stopped the run: {_last_line(error)}"
            ) from error

    @contextmanager
    def _watching(self) -> Iterator[None]:
        """Take samples from the board meanwhile: packets may take minutes to reach the end, and people watch."""
        done = threading.Event()

        def watch() -> None:
            while not done.wait(_WATCH_SECONDS):
                self._on_samples(ray.get(self._board.take.remote()))

        thread = threading.Thread(target=watch, daemon=True)
        thread.start()
        try:
            yield
        finally:
            done.set()
            thread.join(timeout=10 * _WATCH_SECONDS)
        self._on_samples(ray.get(self._board.take.remote()))


def _spread(pieces: Sequence[Any]) -> Any:
    """A dataset of one block for each piece of work. Pickled: paths may hold bytes that Arrow's strings cannot."""
    return ray.data.from_items(
        [{"piece": ray.cloudpickle.dumps(piece)} for piece in pieces], override_num_blocks=len(pieces)
    )


def unpack(batch: pa.Table) -> Any:
    """The piece of work in a row."""
    return ray.cloudpickle.loads(batch["piece"][0].as_py())


def _arguments(cpus: float) -> dict[str, Any]:
    return {"batch_size": 1, "batch_format": "pyarrow", "zero_copy_batch": True, "num_cpus": cpus}


def _context() -> DataContext:
    context = DataContext.get_current().copy()
    context.target_max_block_size = 1  # every packet is a block of its own, and leaves at once
    context.max_errored_blocks = 0  # more would drop packets with a line in a log
    context.max_tasks_in_flight_per_actor = _IN_FLIGHT
    context.enable_progress_bars = False
    return context
