"""Stages that fail as real ones do: raise, hang, crash, fill memory, lose the GPU, die before they are ready."""

from __future__ import annotations

import ctypes
import os
import signal
import time
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa

from framekiln.contract.columns import field
from framekiln.contract.placement import Placement
from framekiln.contract.stage import Scope, Stage
from tests.toys.faulty import Picky, Unready
from tests.toys.tables import written


def die(how: str) -> None:
    """End this process, or never return."""
    if how == "segfault":
        ctypes.string_at(0)
    elif how == "kill":  # as the kernel does when memory runs out
        os.kill(os.getpid(), signal.SIGKILL)
    elif how == "exit":
        os._exit(3)
    elif how == "abort":
        os.abort()
    elif how == "hang":
        time.sleep(3600)
    elif how == "gpu":  # as torch says it of a wrong address; all later calls of the process would fail likewise
        import torch

        raise torch.AcceleratorError("CUDA error: an illegal memory access was encountered")


class Poison(Stage):
    """The frame's number times ten; some frames kill whoever looks at them."""

    devices = ("cpu", "cuda")  # "cuda" gives it processes of its own, on any machine
    placement = Placement(batch=4, cpus=0.5)

    @dataclass(frozen=True, kw_only=True)
    class Config(Stage.Config):
        frames: tuple[int, ...] = ()
        how: str = "segfault"
        times: int = 0  # deaths before it lets them live; 0 for never
        log: str = ""  # a folder with a file for each death
        column: str = "tenfold"

    inputs = ("frame_index", "media_id", "clip_index")

    @property
    def outputs(self):
        return pa.schema([field(self.config.column, pa.int64(), "ten times the number")])

    def __call__(self, batch):
        self._look(batch)
        return pa.table([pa.array([10 * n for n in batch["frame_index"].to_pylist()], pa.int64())], self.outputs.names)

    def _look(self, batch):
        found = set(batch["frame_index"].to_pylist()) & set(self.config.frames)
        if found and not (self.config.times and len(list(Path(self.config.log).iterdir())) >= self.config.times):
            if self.config.log:
                (Path(self.config.log) / f"{time.time_ns()}").touch()
            die(self.config.how)


class PoisonClip(Poison):
    """The same, for whole clips."""

    scope = Scope.CLIP


class PoisonFile(Stage):
    """Rows of each file, in the second pass; some files kill whoever looks at them."""

    scope = Scope.MEDIA

    @dataclass(frozen=True, kw_only=True)
    class Config(Stage.Config):
        files: tuple[str, ...] = ()

    inputs = ("media_id",)

    tables = written("sizes", ("media_id",), media_id=pa.string(), rows=pa.int64())

    def __call__(self, batch):
        name = batch["media_id"][0].as_py()
        if name in self.config.files:
            die("segfault")
        return {"sizes": pa.table([[name], [batch.num_rows]], schema=self.tables["sizes"].schema)}


class StillBorn(Unready):
    """Dies in its set-up."""

    def setup(self, weights, placement):
        print("the model file is from the future", file=os.sys.stderr, flush=True)
        die("segfault")


class Unborn(Unready):
    """Dies where it arrives, before the set-up of its process begins."""

    def __reduce__(self):
        return die, ("kill",)


class Moody(Picky):
    """Frames' numbers plus one; raises on some until its mood has changed, and notes the rows of each call."""

    @dataclass(frozen=True, kw_only=True)
    class Config(Picky.Config):
        mood: str = ""  # a folder: while it is empty, the mood is bad
        log: str = ""

    def __call__(self, batch):
        with Path(self.config.log).open("a", encoding="utf-8") as log:
            log.write(f"{batch.num_rows}\n")
        bad = set(batch["frame_index"].to_pylist()) & set(self.config.refuse)
        if bad and not list(Path(self.config.mood).iterdir()):
            raise KeyError(min(bad)) if min(bad) == 5 else ValueError(f"frame {min(bad)} is not to my taste")
        return pa.table([[n + 1 for n in batch["frame_index"].to_pylist()]], names=["crc"])


class Slow(Stage):
    """Takes its time for each row, and adds its frame's number."""

    @dataclass(frozen=True, kw_only=True)
    class Config(Stage.Config):
        seconds: float = 0.02  # a row

    inputs = ("frame_index",)
    outputs = pa.schema([field("number", pa.int64(), "the frame's number")])

    def __call__(self, batch):
        time.sleep(self.config.seconds * batch.num_rows)
        return pa.table({"number": batch["frame_index"].cast(pa.int64())}, schema=self.outputs)
