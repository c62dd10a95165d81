"""Toys with weights, whose first byte they say; one takes random ones in their place, the others do not."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from pipeline.contract.columns import field
from pipeline.contract.placement import Placement
from pipeline.contract.stage import Stage


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


class Greedy(Bound):
    """The same, and reads another step's column."""

    @property
    def inputs(self):
        return ("crc",)
