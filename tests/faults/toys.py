"""Stages that leave time for something to go wrong."""

from __future__ import annotations

import time
from dataclasses import dataclass

import pyarrow as pa

from pipeline.columns import field
from pipeline.stage import Stage


class Slow(Stage):
    """Takes its time for each row, and adds its frame's number."""

    @dataclass(frozen=True, kw_only=True)
    class Config(Stage.Config):
        seconds: float = 0.02  # a row

    @property
    def inputs(self):
        return ("frame_index",)

    @property
    def outputs(self):
        return pa.schema([field("number", pa.int64(), "the frame's number")])

    def __call__(self, batch):
        time.sleep(self.config.seconds * batch.num_rows)
        return pa.table({"number": batch["frame_index"].cast(pa.int64())}, schema=self.outputs)
