"""Toys that raise, lie, die, run out of memory or cannot be set up, where they are told to."""

from __future__ import annotations

import os
import signal
import sys
import time
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa

from framekiln.contract.columns import field
from framekiln.contract.stage import Stage


class Picky(Stage):
    """Raises on frames whose index is in a list."""

    @dataclass(frozen=True, kw_only=True)
    class Config(Stage.Config):
        refuse: tuple[int, ...] = ()

    inputs = ("frame_index",)
    outputs = pa.schema([field("crc", pa.int64(), "the index")])

    def __call__(self, batch):
        bad = set(batch["frame_index"].to_pylist()) & set(self.config.refuse)
        if bad:
            raise ValueError(f"frame {min(bad)} is not to my taste")
        return pa.table({"crc": batch["frame_index"].cast(pa.int64())})


class Liar(Stage):
    """Promises one column and returns another."""

    inputs = ("frame_index",)
    outputs = pa.schema([field("promised", pa.int64(), "never made")])

    def __call__(self, batch):
        return pa.table({"delivered": batch["frame_index"]})


class Unready(Stage):
    """Cannot be set up."""

    devices = ("cpu", "cuda")

    inputs = ("frame_index",)
    outputs = pa.schema([field("never", pa.int64(), "never made")])

    def setup(self, weights, placement):
        raise RuntimeError("the model is upside down")

    def __call__(self, batch):
        raise AssertionError("called without a set-up")


class Hungry(Stage):
    """Runs out of memory on more than a few rows or items at once, and says how many it was given."""

    @dataclass(frozen=True, kw_only=True)
    class Config(Stage.Config):
        rows: int = 2
        items: int = 3
        never: int = -1  # a frame that is too large by itself
        gpu: bool = False  # whether it says so as torch does of a GPU

    inputs = ("frame_index",)
    outputs = pa.schema([field("rows_at_once", pa.int64(), "rows"), field("items_at_once", pa.int64(), "items")])

    def __call__(self, batch):
        if batch.num_rows > self.config.rows or self.config.never in batch["frame_index"].to_pylist():
            raise self._full()
        largest = 0
        for part in self.chunks(range(8), "items", default=8):
            if len(part) > self.config.items:
                raise self._full()
            largest = max(largest, len(part))
        return pa.table([[batch.num_rows] * batch.num_rows, [largest] * batch.num_rows], schema=self.outputs)

    def _full(self):
        if not self.config.gpu:
            return MemoryError()
        import torch

        return torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 20.00 GiB")


class DiesOnce(Stage):
    """Kills its own process at a given frame, the first time."""

    @dataclass(frozen=True, kw_only=True)
    class Config(Stage.Config):
        at: int = 0
        mark: str = ""
        after: float = 0.0  # seconds that it takes to die

    inputs = ("frame_index",)
    outputs = pa.schema([field("lived", pa.bool_(), "always true")])

    def __call__(self, batch):
        mark = Path(self.config.mark)
        if self.config.at in batch["frame_index"].to_pylist() and not mark.exists():
            mark.touch()
            time.sleep(self.config.after)
            os.kill(os.getpid(), signal.SIGKILL)
        return pa.table({"lived": [True] * batch.num_rows}, schema=self.outputs)


class Gate(Stage):
    """Frames' numbers times a factor; files in a list wait until a gate opens, and may break the promise behind it.

    Its drawing may kill the process, if that is the child of a run that is at work.
    """

    @dataclass(frozen=True, kw_only=True)
    class Config(Stage.Config):
        factor: int = 1
        held: tuple[str, ...] = ()
        gate: str = ""  # a file: while it is missing, the gate is closed
        breaks: bool = False
        fatal: bool = False  # to draw

    inputs = ("frame_index", "media_id")
    outputs = pa.schema([field("passed", pa.int64(), "the frame's number, times a factor")])

    def __call__(self, batch):
        waits = bool(set(batch["media_id"].to_pylist()) & set(self.config.held))
        while waits and not Path(self.config.gate).exists():
            time.sleep(0.02)
        numbers = [self.config.factor * number for number in batch["frame_index"].to_pylist()]
        return pa.table([pa.array(numbers, pa.int64())], names=["liar" if waits and self.config.breaks else "passed"])

    def draw(self, row):
        if self.config.fatal and "child_process" in sys.argv[0]:
            os.abort()
        return super().draw(row)
