"""Toys of the second pass: each counts the rows, tables or frames that it was given of a file or of the run."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa

from pipeline.contract.columns import field
from pipeline.contract.placement import Placement
from pipeline.contract.stage import Scope, Stage, Table


class Count(Stage):
    """Frames of each file, in the second pass."""

    scope = Scope.MEDIA

    inputs = ("media_id", "crc")

    @property
    def tables(self):
        schema = pa.schema([field("media_id", pa.string(), "the file"), field("frames", pa.int64(), "its frames")])
        return {"counts": Table(schema=schema, keys=("media_id",), description="frames of each file")}

    def __call__(self, batch):
        return {
            "counts": pa.table(
                {"media_id": batch["media_id"][:1], "frames": [batch.num_rows]}, schema=self.tables["counts"].schema
            )
        }


class Shares(Stage):
    """Of each file the rows, and the share of them that another step counted: a reader of a table."""

    scope = Scope.MEDIA

    @dataclass(frozen=True, kw_only=True)
    class Config(Stage.Config):
        table: str = "counts"

    inputs = ("media_id",)

    @property
    def input_tables(self):
        return (self.config.table,)

    @property
    def tables(self):
        schema = pa.schema(
            [
                field("media_id", pa.string(), "the file"),
                field("given", pa.list_(pa.string()), "files of the rows of the table that it was given"),
                field("share", pa.float64(), "frames counted over rows"),
            ]
        )
        return {"shares": Table(schema=schema, keys=("media_id",), description="frames counted over rows")}

    def __call__(self, batch, tables):
        (counts,) = tables.values()
        own = {"media_id": batch["media_id"][0].as_py(), "given": counts["media_id"].to_pylist()}
        own["share"] = sum(counts["frames"].to_pylist()) / batch.num_rows
        return {"shares": pa.Table.from_pylist([own], schema=self.tables["shares"].schema)}


class Total(Stage):
    """The sum of another step's counts over the whole run."""

    scope = Scope.DATASET

    inputs = ("media_id",)
    input_tables = ("counts", "everything")

    @property
    def tables(self):
        schema = pa.schema(
            [field("counted", pa.int64(), "sum over files"), field("frames", pa.int64(), "of the other table")]
        )
        return {"totals": Table(schema=schema, keys=(), description="two sums that agree")}

    def __call__(self, batch, tables):
        counted, frames = sum(tables["counts"]["frames"].to_pylist()), tables["everything"]["frames"][0].as_py()
        made = pa.table({"counted": [counted], "frames": [frames]}, schema=self.tables["totals"].schema)
        return {"totals": made}


class Everything(Stage):
    """One row for the whole run, in the second pass."""

    scope = Scope.DATASET

    inputs = ("crc",)

    @property
    def tables(self):
        return {
            "everything": Table(
                schema=pa.schema([field("frames", pa.int64(), "all frames")]), keys=(), description="all frames"
            )
        }

    def __call__(self, batch):
        return {"everything": pa.table({"frames": [batch.num_rows]}, schema=self.tables["everything"].schema)}


class Guests(Stage):
    """A number for each file, which it keeps as long as the output lasts, by the table of the last run."""

    scope = Scope.DATASET

    @dataclass(frozen=True, kw_only=True)
    class Config(Stage.Config):
        note: str = ""
        log: str = ""  # a call that finds this file fails

    inputs = ("media_id", "crc")
    keeps = ("guests",)

    @property
    def tables(self):
        fields = [field("media_id", pa.string(), "the file"), field("number", pa.int64(), "its number")]
        return {
            "guests": Table(schema=pa.schema(fields), keys=("media_id",), description="files with numbers"),
            "visits": Table(schema=pa.schema(fields[:1]), keys=("media_id",), description="files of this run"),
        }

    def __call__(self, batch, kept):
        if self.config.log and Path(self.config.log).exists():
            raise ValueError("closed")
        here = sorted(set(batch["media_id"].to_pylist()))
        numbers = dict(zip(*kept["guests"].to_pydict().values(), strict=True))
        numbers |= {name: len(numbers) + i for i, name in enumerate(n for n in here if n not in numbers)}
        guests = pa.table([list(numbers), list(numbers.values())], schema=self.tables["guests"].schema)
        return {"guests": guests, "visits": pa.table([here], schema=self.tables["visits"].schema)}


class Bytes(Stage):
    """How many rows of each file have a byte: a second-pass reader of Seeded."""

    scope = Scope.MEDIA

    inputs = ("media_id", "byte")

    @property
    def tables(self):
        schema = pa.schema([field("bytes", pa.int64(), "rows with a byte")])
        return {"bytes": Table(schema=schema, keys=(), description="rows with a byte")}

    def __call__(self, batch):
        count = batch.num_rows - batch["byte"].null_count
        return {"bytes": pa.table({"bytes": [count]}, schema=self.tables["bytes"].schema)}


class Reader(Shares):
    """A reader of what Bytes writes."""

    scope = Scope.DATASET

    input_tables = ("bytes",)


class Watches(Stage):
    """The greys of a file's frames, read from the file itself; writes a line for each time it is set up."""

    scope = Scope.MEDIA
    reads_media = True
    devices = ("cpu", "cuda")
    dummy_weights = True
    placement = Placement(cpus=0.5)

    @dataclass(frozen=True, kw_only=True)
    class Config(Stage.Config):
        model: str = ""
        note: str = ""

    inputs = ("media_id", "frame_index")

    @property
    def weights(self):
        return (self.config.model,) if self.config.model else ()

    @property
    def tables(self):
        fields = [
            field("media_id", pa.string(), "file"),
            field("rows", pa.int64(), "rows of the file"),
            field("greys", pa.list_(pa.int64()), "of the frames"),
        ]
        return {"watched": Table(schema=pa.schema(fields), keys=("media_id",), description="what was seen")}

    def setup(self, weights, placement):
        with Path(self.config.note).open("a") as file:
            file.write(f"{os.getpid()}\n")

    def __call__(self, batch, media):
        seen = dict(media.frames("frame"))
        numbers = batch["frame_index"].to_pylist()
        values = [[batch["media_id"][0].as_py()], [len(numbers)], [[int(seen[n][-1, -1, 0]) for n in numbers]]]
        schema = self.tables["watched"].schema
        return {"watched": pa.table([pa.array(v, f.type) for v, f in zip(values, schema, strict=True)], schema=schema)}
