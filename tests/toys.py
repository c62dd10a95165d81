"""Small honest stages for tests of the engine.

Each says what it was given, so that a test can see whether that was right.
"""

from __future__ import annotations

import os
import signal
import time
import zlib
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa

from pipeline.columns import field, views
from pipeline.stage import Placement, Scope, Stage, Table
from stages.nets.masks import MASK, encode


class Checksum(Stage):
    """CRC-32 of each frame."""

    @dataclass(frozen=True, kw_only=True)
    class Config(Stage.Config):
        column: str = "frame"

    @property
    def inputs(self):
        return (self.config.column,)

    @property
    def outputs(self):
        return pa.schema([field("crc", pa.int64(), "CRC-32 of the pixels")])

    def __call__(self, batch):
        return pa.table(
            {"crc": pa.array([zlib.crc32(image) for image in views(batch[self.config.column])], pa.int64())},
            schema=self.outputs,
        )


class Neighbours(Stage):
    """For each frame of a clip.

    How long the clip is, and the CRC of the next frame, looking ahead over the clip's end.
    """

    scope = Scope.CLIP
    halo = 1

    @property
    def inputs(self):
        return ("frame", "frame_index", "clip_index", "media_id")

    @property
    def outputs(self):
        return pa.schema(
            [field("call_rows", pa.int32(), "rows of the call"), field("next_crc", pa.int64(), "CRC of the next frame")]
        )

    def __call__(self, batch):
        assert len(set(batch["media_id"].to_pylist())) == 1
        assert len(set(batch["clip_index"].to_pylist())) == 1
        indices = batch["frame_index"].to_numpy()
        assert (np.diff(indices) == 1).all(), f"a hole in a clip: {indices}"
        crcs = [zlib.crc32(image) for image in views(batch["frame"])]
        return pa.table({"call_rows": [len(crcs)] * len(crcs), "next_crc": [*crcs[1:], None]}, schema=self.outputs)


class Double(Stage):
    """Twice the CRC: a reader of another step's column."""

    @property
    def inputs(self):
        return ("crc",)

    @property
    def outputs(self):
        return pa.schema([field("twice", pa.int64(), "twice the CRC")])

    def __call__(self, batch):
        return pa.table({"twice": [2 * value for value in batch["crc"].to_pylist()]}, schema=self.outputs)


class Picky(Stage):
    """Raises on frames whose index is in a list."""

    @dataclass(frozen=True, kw_only=True)
    class Config(Stage.Config):
        refuse: tuple[int, ...] = ()

    @property
    def inputs(self):
        return ("frame_index",)

    @property
    def outputs(self):
        return pa.schema([field("crc", pa.int64(), "the index")])

    def __call__(self, batch):
        bad = set(batch["frame_index"].to_pylist()) & set(self.config.refuse)
        if bad:
            raise ValueError(f"frame {min(bad)} is not to my taste")
        return pa.table({"crc": batch["frame_index"].cast(pa.int64())})


class Liar(Stage):
    """Promises one column and returns another."""

    @property
    def inputs(self):
        return ("frame_index",)

    @property
    def outputs(self):
        return pa.schema([field("promised", pa.int64(), "never made")])

    def __call__(self, batch):
        return pa.table({"delivered": batch["frame_index"]})


class Count(Stage):
    """Frames of each file, in the second pass."""

    scope = Scope.MEDIA

    @property
    def inputs(self):
        return ("media_id", "crc")

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

    @property
    def inputs(self):
        return ("media_id",)

    @property
    def reads(self):
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

    @property
    def inputs(self):
        return ("media_id",)

    @property
    def reads(self):
        return ("counts", "everything")

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

    @property
    def inputs(self):
        return ("crc",)

    @property
    def tables(self):
        return {
            "everything": Table(
                schema=pa.schema([field("frames", pa.int64(), "all frames")]), keys=(), description="all frames"
            )
        }

    def __call__(self, batch):
        return {"everything": pa.table({"frames": [batch.num_rows]}, schema=self.tables["everything"].schema)}


class Unready(Stage):
    """Cannot be set up."""

    devices = ("cpu", "cuda")

    @property
    def inputs(self):
        return ("frame_index",)

    @property
    def outputs(self):
        return pa.schema([field("never", pa.int64(), "never made")])

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

    @property
    def inputs(self):
        return ("frame_index",)

    @property
    def outputs(self):
        return pa.schema([field("rows_at_once", pa.int64(), "rows"), field("items_at_once", pa.int64(), "items")])

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

    @property
    def inputs(self):
        return ("frame_index",)

    @property
    def outputs(self):
        return pa.schema([field("lived", pa.bool_(), "always true")])

    def __call__(self, batch):
        mark = Path(self.config.mark)
        if self.config.at in batch["frame_index"].to_pylist() and not mark.exists():
            mark.touch()
            time.sleep(self.config.after)
            os.kill(os.getpid(), signal.SIGKILL)
        return pa.table({"lived": [True] * batch.num_rows}, schema=self.outputs)


class Seeded(Stage):
    """The first byte of its weights, or of random ones: what random weights must leave behind."""

    dummy_weights = True
    placement = Placement(cpus=0.25)  # several of them fit beside the loader on two cores

    @dataclass(frozen=True, kw_only=True)
    class Config(Stage.Config):
        model: str = "pose_landmarker_heavy"  # of the lockfile that ships
        column: str = "byte"

    @property
    def inputs(self):
        return ("frame_index",)

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


class Bytes(Stage):
    """How many rows of each file have a byte: a second-pass reader of Seeded."""

    scope = Scope.MEDIA

    @property
    def inputs(self):
        return ("media_id", "byte")

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

    @property
    def reads(self):
        return ("bytes",)


class Reads(Stage):
    """Counts the values of another step's column, wherever it is told to run."""

    devices = ("cpu", "cuda")

    @dataclass(frozen=True, kw_only=True)
    class Config(Stage.Config):
        column: str = "crc"
        folder: str = ""

    @property
    def inputs(self):
        return (self.config.column,)

    @property
    def files(self):
        return (self.config.folder,) if self.config.folder else ()

    @property
    def outputs(self):
        return pa.schema([field(f"has_{self.config.column}", pa.bool_(), "whether there is a value")])

    def __call__(self, batch):
        return pa.table([batch[self.config.column].is_valid()], schema=self.outputs)


class Halves(Stage):
    """Two masks of each picture: its left half and its right one, at half the picture's size."""

    @property
    def inputs(self):
        return ("frame",)

    @property
    def outputs(self):
        return pa.schema([field("masks", pa.list_(MASK), "left and right half")])

    def __call__(self, batch):
        return pa.table([pa.array([self._masks(image) for image in views(batch["frame"])], pa.list_(MASK))], ["masks"])

    def _masks(self, image):
        left = np.zeros([max(2, side // 2) for side in image.shape[:2]], bool)
        left[:, : left.shape[1] // 2] = True
        return [{"segmentation": coded, "area": int(left.sum())} for coded in encode([left, ~left])]


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

    @property
    def inputs(self):
        return ("media_id", "frame_index")

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


class Big(Checksum):
    """The same, in another column and wherever it is told to run: full frames must travel there."""

    devices = ("cpu", "cuda")

    @property
    def outputs(self):
        return pa.schema([field("again", pa.int64(), "CRC-32 of the pixels")])

    def __call__(self, batch):
        crcs = [zlib.crc32(image) for image in views(batch[self.config.column])]
        return pa.table([pa.array(crcs, pa.int64())], names=["again"])


class Small(Stage):
    """The number of pixels of a small picture."""

    @property
    def inputs(self):
        return ("frame_64",)

    @property
    def outputs(self):
        return pa.schema([field("small", pa.int64(), "values of the picture")])

    def __call__(self, batch):
        return pa.table({"small": pa.array([image.size for image in views(batch["frame_64"])], pa.int64())})
