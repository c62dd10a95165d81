"""Toys of the second pass: each counts the rows, tables or frames that it was given of a file or of the run."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa

from framekiln.contract.columns import field
from framekiln.contract.placement import Placement
from framekiln.contract.stage import Scope, Stage, Table


def written(name, keys=(), **columns):
    """Return the declaration of a toy's table, by its name; columns are types by name, the first is the key."""
    schema = pa.schema([field(column, kind, f"{column} of a toy") for column, kind in columns.items()])
    return {name: Table(schema=schema, keys=keys or (schema.names[0],), description=f"{name} of a toy")}


class Count(Stage):
    """Frames of each file, in the second pass."""

    scope = Scope.MEDIA

    inputs = ("media_id", "crc")

    tables = written("counts", ("media_id",), media_id=pa.string(), frames=pa.int64())

    def __call__(self, batch):
        return {"counts": pa.table([batch["media_id"][:1], [batch.num_rows]], schema=self.tables["counts"].schema)}


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

    # given: files of the rows of the table that it was given
    tables = written("shares", ("media_id",), media_id=pa.string(), given=pa.list_(pa.string()), share=pa.float64())

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

    tables = written("totals", counted=pa.int64(), frames=pa.int64())

    def __call__(self, batch, tables):
        counted, frames = sum(tables["counts"]["frames"].to_pylist()), tables["everything"]["frames"][0].as_py()
        return {"totals": pa.table([[counted], [frames]], schema=self.tables["totals"].schema)}


class Everything(Stage):
    """One row for the whole run, in the second pass."""

    scope = Scope.DATASET

    inputs = ("crc",)

    tables = written("everything", frames=pa.int64())

    def __call__(self, batch):
        return {"everything": pa.table([[batch.num_rows]], schema=self.tables["everything"].schema)}


class Guests(Stage):
    """A number for each file, which it keeps as long as the output lasts, by the table of the last run."""

    scope = Scope.DATASET

    @dataclass(frozen=True, kw_only=True)
    class Config(Stage.Config):
        note: str = ""
        log: str = ""  # a call that finds this file fails

    inputs = ("media_id", "crc")
    keeps = ("guests",)

    tables = written("guests", ("media_id",), media_id=pa.string(), number=pa.int64())
    tables |= written("visits", ("media_id",), media_id=pa.string())

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

    tables = written("bytes", bytes=pa.int64())

    def __call__(self, batch):
        return {"bytes": pa.table([[batch.num_rows - batch["byte"].null_count]], schema=self.tables["bytes"].schema)}


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

    tables = written("watched", ("media_id",), media_id=pa.string(), rows=pa.int64(), greys=pa.list_(pa.int64()))

    def setup(self, weights, placement):
        with Path(self.config.note).open("a") as file:
            file.write(f"{os.getpid()}\n")

    def __call__(self, batch, media):
        seen = dict(media.frames("frame"))
        numbers = batch["frame_index"].to_pylist()
        values = [[batch["media_id"][0].as_py()], [len(numbers)], [[int(seen[n][-1, -1, 0]) for n in numbers]]]
        schema = self.tables["watched"].schema
        return {"watched": pa.table([pa.array(v, f.type) for v, f in zip(values, schema, strict=True)], schema=schema)}
