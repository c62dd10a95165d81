"""An honest toy card: a stage takes memory of it by a law, and fails as torch does when it asks for more than it has.

Card and stage live in one process, be it the test's own or a child's.
"""

from __future__ import annotations

import os
import signal
import time
from dataclasses import dataclass

import pyarrow as pa

from framekiln.contract.columns import field
from framekiln.contract.stage import Stage
from framekiln.device import DeviceMemory, Meter

PEAK = {"gb": 0.0}


class ToyMeter(Meter):
    """Reads the toy card."""

    def begin(self):
        pass

    def clear(self):
        PEAK["gb"] = 0.0

    def held(self):
        return 0.25

    def peaks(self):
        return PEAK["gb"], PEAK["gb"] + 0.125

    def seen(self):
        return DeviceMemory(name="Toy Card 2", total_gb=2.0, context_gb=0.5)


class Eats(Stage):
    """Takes base + row·n + pixel·megapixels of n rows, and so long for a call."""

    devices = ("cpu", "cuda")
    dummy_weights = True

    @dataclass(frozen=True, kw_only=True)
    class Config(Stage.Config):
        holds: float = 1.5  # GB
        base: float = 0.25
        row: float = 0.01
        pixel: float = 0.05  # GB a megapixel
        dies_at: int = 0  # rows of a call that kills its process; 0 for none
        hangs_at: int = 0
        refuses_at: int = 0
        idle: bool = False  # as a model that finds nothing to do
        call_s: float = 0.001
        row_s: float = 0.0

    inputs = ("height", "width")
    weights = ("clip-vit-b32",)
    outputs = pa.schema([field("eaten", pa.float64(), "GB")])

    def setup(self, weights, placement):
        import torch

        self._net = torch.nn.Linear(8, 4, bias=False)

    def __call__(self, batch):
        import torch

        config, count = self.config, batch.num_rows
        pixels = sum(h * w for h, w in zip(batch["height"].to_pylist(), batch["width"].to_pylist(), strict=True)) / 1e6
        wanted = config.base + config.row * count + config.pixel * pixels
        if config.dies_at and count >= config.dies_at:
            os.kill(os.getpid(), signal.SIGKILL)
        if config.hangs_at and count >= config.hangs_at:
            time.sleep(60)
        if config.refuses_at and count >= config.refuses_at:
            raise ValueError("so many are not to my taste")
        if wanted > config.holds:
            raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 20.00 GiB")
        PEAK["gb"] = max(PEAK["gb"], wanted)
        with self.phase("preprocess" if config.idle else "infer"), torch.inference_mode():
            self._net(torch.zeros(count, 8))
            time.sleep(config.call_s + config.row_s * count)
        return pa.table([[wanted] * count], schema=self.outputs)
