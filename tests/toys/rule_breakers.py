"""Stages that each break one rule of the contract, and the good one that they are made from."""

from __future__ import annotations

import threading
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa

from framekiln.contract.columns import field, views
from framekiln.contract.drawing import Drawing
from framekiln.contract.stage import Scope, Stage, Table
from tests.toys.rows_holder import HOLDER

HUE = field("redness", pa.float32(), "mean of the red channel", "0 to 255")


class Good(Stage):
    """A stage that keeps every rule."""

    inputs = ("frame_224", "time_s")
    outputs = pa.schema([HUE])

    def red(self, batch):
        with self.phase("infer"):
            return np.array([image[..., 0].mean() for image in views(batch["frame_224"])], np.float32)

    def __call__(self, batch):
        return self.table(self.red(batch))

    def table(self, values):
        return pa.table([pa.array(values, pa.float32())], schema=self.outputs)

    def draw(self, row):
        return Drawing(points=[(0.5, row["redness"] / 255)])

    def agreement(self, a, b, table=""):
        far = np.abs(a["redness"].to_numpy() - b["redness"].to_numpy())
        return {"drift": float(far.mean() / 255) if len(far) else 0.0}


class Squared(Good):
    """A stage that keeps every rule and reads a column of another step."""

    inputs = ("redness",)

    def red(self, batch):
        return batch["redness"].to_numpy() ** 2


class FirstByte(Good):
    """A stage that keeps every rule and has weights."""

    weights = ("toy",)

    def setup(self, weights, placement):
        self._byte = weights["toy"].read_bytes()[0]

    def __call__(self, batch):
        return self.table([self._byte] * batch.num_rows)


def breaker(name, check, **members):
    """Return `Good` with a few other members, which break the rule of one check."""
    return type(name, (Good,), {"__doc__": f"`{check}`.", "__module__": __name__, **members})


HaloOfRows = breaker("HaloOfRows", "check_declarations", halo=1)
WithoutOutputs = breaker("WithoutOutputs", "check_declarations", outputs=pa.schema([]))
RepeatsSource = breaker(
    "RepeatsSource", "check_declarations", outputs=pa.schema([field("time_s", pa.float32(), "already there")])
)
ReadsOneTableTooMany = breaker("ReadsOneTableTooMany", "check_declarations", input_tables=("shots",))
Undescribed = breaker("Undescribed", "check_descriptions", outputs=pa.schema([pa.field("redness", pa.float32())]))
DrawsNowhere = breaker("DrawsNowhere", "check_drawing", draw=lambda self, row: Drawing(points=[(float("nan"), 0.5)]))
DrawsWords = breaker("DrawsWords", "check_drawing", draw=lambda self, row: "red")
DropsRows = breaker("DropsRows", "check_schema", __call__=lambda self, batch: Good.__call__(self, batch).slice(0, 1))
FailsOnNone = breaker("FailsOnNone", "check_schema", red=lambda self, batch: [max(Good.red(self, batch))] * len(batch))
OtherType = breaker("OtherType", "check_schema", table=lambda self, values: pa.table({"redness": list(values)}))
Random = breaker("Random", "check_repeatability", red=lambda self, batch: np.random.default_rng().random(len(batch)))
FirstOfBatch = breaker("FirstOfBatch", "check_batch_independence", red=lambda self, batch: np.arange(len(batch)))
MeanOfBatch = breaker(
    "MeanOfBatch",
    "check_batch_independence",
    red=lambda self, batch: Good.red(self, batch) - np.mean(Good.red(self, batch) if len(batch) else 0),
)
Drifts = breaker("Drifts", "check_agreement", agreement=lambda self, a, b, table="": {"drift": 0.5})
WithoutDrift = breaker("WithoutDrift", "check_agreement", agreement=lambda self, a, b, table="": {"difference": 0.0})


class ThawedConfig(Good):
    """`check_config`."""

    @dataclass(kw_only=True)
    class Config(Stage.Config.__base__):
        size: int = 1


class PositionalConfig(Good):
    """`check_config`."""

    @dataclass(frozen=True)
    class Config:
        size: int = 1


class OpensFiles(Good):
    """`check_construction`."""

    def __init__(self, config=None):
        super().__init__(config)
        self.text = Path(__file__).read_text()


class Unpicklable(Good):
    """`check_pickling`."""

    def __init__(self, config=None):
        super().__init__(config)
        self.scale = lambda value: value


class Forgetful(Good):
    """`check_pickling`."""

    def __init__(self, config=None):
        super().__init__(config)
        self.files = ("a",)

    files = ()

    def __getstate__(self):
        return {**vars(self), "files": ("b",)}


class HiddenNull(Good):
    """`check_schema`."""

    outputs = pa.schema([HUE.with_nullable(False)])

    def __call__(self, batch):
        return pa.table([pa.nulls(batch.num_rows, pa.float32())], schema=self.outputs)


class Overwrites(Good):
    """`check_inputs_unchanged`."""

    def __call__(self, batch):
        result = super().__call__(batch)
        for chunk in batch["frame_224"].chunks:
            data = np.frombuffer(chunk.field(0).buffers()[2], np.uint8)
            if data.flags.writeable:
                data[:] = 0
        return result


class KeepsRows(Good):
    """`check_thread_safety`."""

    thread_safe = True

    def __call__(self, batch):
        self.rows = batch
        red = self.red(self.rows)
        return self.table(red)


class Careful(KeepsRows):
    """A stage that keeps every rule: it says that one call of it may be made at a time."""

    thread_safe = False


class CountsRows(Good):
    """`check_thread_safety`."""

    thread_safe = True

    def __call__(self, batch):
        self.left = batch.num_rows
        while self.left:
            self.left -= 1
            if self.left < 0:
                raise IndexError("another call took a row")
        return super().__call__(batch)


class KeepsRowsElsewhere(Good):
    """`check_thread_safety`."""

    thread_safe = True

    def __call__(self, batch):
        return self.table(HOLDER.red(batch))


class Locks(Good):
    """A stage that keeps every rule: one thread waits in it while another keeps its rows on it."""

    thread_safe = True

    def setup(self, weights, placement):
        self.lock = threading.Lock()

    def __call__(self, batch):
        with self.lock:
            self.rows = batch
            red = self.red(self.rows)
            return self.table(red)


class LooksTooFar(Good):
    """`check_cut_independence`."""

    scope = Scope.CLIP
    halo = 1

    def __call__(self, batch):
        red = self.red(batch)
        return self.table(np.concatenate([red[2:], red[:2]]))


class UnknownPhase(Good):
    """`check_phases`."""

    def __call__(self, batch):
        with self.phase("thinking"):
            return super().__call__(batch)


class GoodTables(Stage):
    """A second-pass stage that keeps every rule."""

    scope = Scope.MEDIA
    inputs = ("media_id", "frame_index")
    SCHEMA = pa.schema([field("media_id", pa.string(), "file"), field("frames", pa.int64(), "number of its frames")])

    @property
    def tables(self):
        return {"lengths": Table(schema=self.SCHEMA, keys=("media_id",), description="length of each file")}

    def __call__(self, batch):
        names = batch["media_id"].unique()
        return {"lengths": pa.table([names, pa.array([batch.num_rows] * len(names))], schema=self.SCHEMA)}


class Watches(GoodTables):
    """A second-pass stage that keeps every rule and reads the file's frames."""

    reads_media = True

    def __call__(self, batch, media):
        assert {image.shape for _, image in media.frames("frame_90")} == {(90, 120, 3)}
        return super().__call__(batch)


class OtherTables(GoodTables):
    """`check_tables`."""

    def __call__(self, batch):
        return {"length": super().__call__(batch)["lengths"]}


class RepeatsKeys(GoodTables):
    """`check_tables`."""

    def __call__(self, batch):
        table = super().__call__(batch)["lengths"]
        return {"lengths": pa.concat_tables([table, table])}


class FirstRow(GoodTables):
    """`check_table_repeatability`."""

    def __call__(self, batch):
        name, number = batch["media_id"].slice(0, 1), batch["frame_index"].slice(0, 1).cast(pa.int64())
        return {"lengths": pa.table([name, number], schema=self.SCHEMA)}


class Counts(GoodTables):
    """`check_table_repeatability`."""

    calls = 0

    def __call__(self, batch):
        self.calls += 1
        return {"lengths": pa.table([["a"], [self.calls]], schema=self.SCHEMA)}
