"""Toys of the first pass: each adds a column that tells which pixels, or which rows, it was given."""

from __future__ import annotations

import zlib
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from framekiln.contract.columns import field, views
from framekiln.contract.stage import Scope, Stage


class Checksum(Stage):
    """CRC-32 of each frame."""

    @dataclass(frozen=True, kw_only=True)
    class Config(Stage.Config):
        column: str = "frame"

    @property
    def inputs(self):
        return (self.config.column,)

    outputs = pa.schema([field("crc", pa.int64(), "CRC-32 of the pixels")])

    def __call__(self, batch):
        crcs = [zlib.crc32(image) for image in views(batch[self.config.column])]
        return pa.table([pa.array(crcs, pa.int64())], schema=self.outputs)


class Neighbours(Stage):
    """For each frame of a clip.

    How long the clip is, and the CRC of the next frame, looking ahead over the clip's end.
    """

    scope = Scope.CLIP
    halo = 1

    inputs = ("frame", "frame_index", "clip_index", "media_id")
    outputs = pa.schema(
        [field("call_rows", pa.int32(), "rows of the call"), field("next_crc", pa.int64(), "CRC of the next frame")]
    )

    def __call__(self, batch):
        assert len(set(batch["media_id"].to_pylist())) == 1
        assert len(set(batch["clip_index"].to_pylist()) - {-1}) == 1  # the halo's
        indices = batch["frame_index"].to_numpy()
        assert (np.diff(indices) == 1).all(), f"a hole in a clip: {indices}"
        crcs = [zlib.crc32(image) for image in views(batch["frame"])]
        return pa.table({"call_rows": [len(crcs)] * len(crcs), "next_crc": [*crcs[1:], None]}, schema=self.outputs)


class Double(Stage):
    """Twice the CRC: a reader of another step's column."""

    inputs = ("crc",)
    outputs = pa.schema([field("twice", pa.int64(), "twice the CRC")])

    def __call__(self, batch):
        return pa.table({"twice": [2 * value for value in batch["crc"].to_pylist()]}, schema=self.outputs)


class Maybe(Stage):
    """The CRC where another step has computed it, else -1."""

    inputs = ("frame_index",)
    optional_inputs = ("crc",)
    outputs = pa.schema([field("maybe", pa.int64(), "the CRC, or -1")])

    def __call__(self, batch):
        known = batch["crc"].to_pylist() if "crc" in batch.column_names else [None] * len(batch)
        return pa.table({"maybe": [-1 if value is None else value for value in known]}, schema=self.outputs)


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


class Big(Checksum):
    """The same, in another column and wherever it is told to run: full frames must travel there."""

    devices = ("cpu", "cuda")

    outputs = pa.schema([field("again", pa.int64(), "CRC-32 of the pixels")])


class Small(Stage):
    """The number of pixels of a small picture."""

    inputs = ("frame_64",)
    outputs = pa.schema([field("small", pa.int64(), "values of the picture")])

    def __call__(self, batch):
        return pa.table({"small": pa.array([image.size for image in views(batch["frame_64"])], pa.int64())})


class Blurs(Stage):
    """A network of torch: mean brightness after a convolution; it raises on a frame of its choice."""

    @dataclass(frozen=True, kw_only=True)
    class Config(Stage.Config):
        side: int = 32
        never: int = -1  # frame index

    inputs = ("frame_index",)
    outputs = pa.schema([field("mean", pa.float32(), "mean after a convolution")])

    def setup(self, weights, placement):
        import torch

        torch.manual_seed(0)
        self._net = torch.nn.Conv2d(3, 8, 3).eval()

    def __call__(self, batch):
        import torch

        numbers = batch["frame_index"].to_pylist()
        if self.config.never in numbers:
            raise ValueError("no")
        with self.phase("preprocess"):
            pixels = torch.ones(len(numbers), 3, self.config.side, self.config.side)
            pixels *= torch.tensor(numbers, dtype=torch.float32)[:, None, None, None]
        with self.phase("infer"), torch.inference_mode():
            means = self._net(pixels).mean(dim=(1, 2, 3))
        return pa.table({"mean": pa.array(means.numpy())}, schema=self.outputs)
