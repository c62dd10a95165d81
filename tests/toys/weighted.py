"""Toys with weights, whose first byte they say; one takes random ones in their place, the others do not."""

from __future__ import annotations

import os
import signal
import threading
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa

from framekiln.contract.columns import field
from framekiln.contract.placement import Placement
from framekiln.contract.stage import Stage
from framekiln.device import Batches, CallScheduler, dtype_of, ready, torch


class Seeded(Stage):
    """The first byte of its weights, or of random ones: what random weights must leave behind."""

    dummy_weights = True
    placement = Placement(cpus=0.25)  # several of them fit beside the loader on two cores

    @dataclass(frozen=True, kw_only=True)
    class Config(Stage.Config):
        model: str = "pose_landmarker_heavy"  # of the lockfile that ships
        column: str = "byte"

    inputs = ("frame_index",)

    @property
    def outputs(self):
        return pa.schema([field(self.config.column, pa.int64(), "first byte of the weights")])

    @property
    def weights(self):
        return (self.config.model,)

    def setup(self, weights, placement):
        path = weights.get(self.config.model)
        self._byte = path.read_bytes()[0] if path else int(np.random.default_rng(0).integers(256))

    def __call__(self, batch):
        return pa.table([pa.array([self._byte] * batch.num_rows, pa.int64())], schema=self.outputs)


class Bound(Seeded):
    """The same, without random weights."""

    dummy_weights = False


class Products(Stage):
    """A product with a matrix of `SIDE` by `SIDE`, on either device: 2 * SIDE ** 2 operations a row."""

    SIDE = 1024
    devices = ("cpu", "cuda")
    inputs = ("frame_index",)

    @dataclass(frozen=True, kw_only=True)
    class Config(Stage.Config):
        column: str = "product"

    @property
    def outputs(self):
        return pa.schema([field(self.config.column, pa.float32(), "sum of a product")])

    def setup(self, weights, placement):
        net = torch.nn.Linear(self.SIDE, self.SIDE, bias=False)
        self._net = ready(net, placement, dtype_of(placement))
        self._batches = Batches(self._net.forward, placement)

    def __call__(self, batch):
        ones = torch.ones(batch.num_rows, self.SIDE, dtype=self._net.weight.dtype)
        return pa.table([pa.array(self._batches(ones).float().sum(1).tolist(), pa.float32())], schema=self.outputs)


class Greedy(Bound):
    """The same, and reads another step's column."""

    @property
    def inputs(self):
        return ("crc",)


class Meeting(Seeded):
    """Ten times each frame's number, by a model; the first calls wait for each other."""

    devices = ("cpu", "cuda")
    placement = Placement(cpus=0.25, in_flight=3, batch=4)
    thread_safe = True

    @dataclass(frozen=True, kw_only=True)
    class Config(Seeded.Config):
        column: str = "tenfold"
        joint: bool = False  # rows of all calls share batches, as in a process with a GPU
        meet: int = 1  # packets that must be in work at once, or calls raise
        raises: tuple[int, ...] = ()  # frames
        kills: tuple[int, ...] = ()  # frames, which kill every process
        ends: str = ""  # path of a file: without it, it is made, and the thread that calls the model ends

    inputs = ("frame_index",)

    def setup(self, weights, placement):
        if self.config.joint:
            Batches.calls = CallScheduler("cpu", placement.linger_ms / 1000)
        self._batches = Batches(self._tenfold, placement)
        self._changed, self._inside = threading.Condition(), set()

    def _tenfold(self, numbers):
        if self.config.ends and not Path(self.config.ends).exists():
            Path(self.config.ends).touch()
            raise SystemExit
        return 10 * numbers

    def __call__(self, batch):
        import torch

        with self._changed:
            self._inside.add(threading.get_ident())
            self._changed.notify_all()
            if not self._changed.wait_for(lambda: len(self._inside) >= self.config.meet, 60):
                raise TimeoutError("no other packet came")
        numbers = batch["frame_index"].to_pylist()
        if set(numbers) & set(self.config.raises):
            raise ValueError("not this one")
        if set(numbers) & set(self.config.kills):
            os.kill(os.getpid(), signal.SIGKILL)
        with self.phase("infer"):
            tenfold = self._batches(torch.tensor(numbers)).tolist() if numbers else []
        return pa.table([pa.array(tenfold, pa.int64())], schema=self.outputs)


class SharedMemory(Seeded):
    """Each call wants the memory for itself; the first two want it at once, and one of them is refused."""

    thread_safe = True

    def setup(self, weights, placement):
        self._meet, self._memory, self.refused = threading.Barrier(2), threading.Lock(), threading.Event()
        super().setup(weights, placement)

    def __call__(self, batch):
        if not self.refused.is_set():
            self._meet.wait(30)
        if not self._memory.acquire(blocking=False):
            self.refused.set()
            raise MemoryError
        try:
            self.refused.wait(30)
            return super().__call__(batch)
        finally:
            self._memory.release()


class KeepsRows(Seeded):
    """Each frame's number, by way of `self`: not thread-safe, as it says."""

    def __call__(self, batch):
        self.rows = batch["frame_index"].to_pylist()
        threading.Event().wait(0.001)  # others may come between
        return pa.table([pa.array(self.rows, pa.int64())], schema=self.outputs)
