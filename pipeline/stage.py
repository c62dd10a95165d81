"""The one contract: what a stage is, so that the engine, the profiler and the tests need to know no stage by name.

A stage of the first pass (ROW, CLIP) adds declared columns to rows; one of the second pass (MEDIA, DATASET) reads
such columns, and tables of steps before it, and writes declared tables. Arrow goes in and comes out; numpy, torch and
OpenCV are a stage's private business.
"""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, field
from enum import Enum
from pathlib import Path
from typing import Any, ClassVar, Protocol, TypeVar

import pyarrow as pa

T = TypeVar("T")
Mark = Callable[[str], AbstractContextManager[Any]]
Weights = Mapping[str, Path]
"""Verified local files by their name in the weights lockfile."""


class Scope(Enum):
    """Which rows must share one call."""

    ROW = "row"  # any frames
    CLIP = "clip"  # one clip's consecutive frames, followed by `halo` frames of the next clip where there is one
    MEDIA = "media"  # every row of one file
    DATASET = "dataset"  # every row of the run

    @property
    def first_pass(self) -> bool:
        """Whether stages of this scope see decoded media."""
        return self in (Scope.ROW, Scope.CLIP)


@dataclass(frozen=True, kw_only=True)
class Placement:
    """Where and how a stage runs; a profile may replace any of these."""

    device: str = "cpu"  # "cpu" or "cuda"
    cpus: float = 1.0  # of each worker; also its number of threads
    gpus: float = 0.0  # share of one GPU in the books of the cluster, not a limit on memory
    workers: int = 1  # processes with a model; for a stage without one, at most so many calls at a time
    batch_rows: int = 16  # rows of one call; a CLIP stage always gets one clip
    vram_gb: float = 0.0  # what a worker may allocate on the GPU
    # Arithmetic of a model: full (fp32), mixed (on a GPU the 16-bit type that suits the model, fp32 on the CPU), or
    # fp16 or bf16 on either.
    precision: str = "full"
    compile: bool = False  # by torch.compile, for batches of one size: takes 7 to 47 s at the start
    channels_last: bool = False  # how a convolutional model's values lie in memory
    pin_memory: bool = False  # page-locked staging buffers for copies to a GPU
    too_large: str = "set_aside"  # what the GPU does not hold alone: a line in errors, or "cpu", where it takes longer
    deadline_s: float = 1800.0  # of one first-pass call; SAM 2.1 tiny with 64 prompts takes one core 20 s a photo
    group: str = ""  # steps of one group share one process, and so one GPU context


class Media(Protocol):
    """A file's frames, for a MEDIA stage with `reads_media`: its rows hold no pixels, and need not fit into memory."""

    def frames(self, pixels: str) -> Iterator[tuple[int, Any]]:
        """Number and picture (RGB uint8 h w 3) of each frame of its rows, in display order.

        They are decoded as they are read, once more at each call, by the rule of the first pass. `pixels` names the
        size as a pixel column does: `frame`, `frame_1024`.

        Raises:
            MediaError: the file has gone or cannot be opened any more.
        """


@dataclass(frozen=True, kw_only=True)
class Table:
    """A table that a second-pass stage writes."""

    schema: pa.Schema
    keys: tuple[str, ...]  # columns that together are unique
    description: str


@dataclass(frozen=True, kw_only=True)
class Area:
    """A part of a picture, filled half transparently and outlined; places are shares of width and height, 0 to 1."""

    rings: Sequence[Sequence[tuple[float, float]]]  # closed outlines; what lies inside two of them is a hole
    colour: int = 0  # what has one number has one colour; colours come round again


@dataclass(frozen=True, kw_only=True)
class Label:
    """Words at a place, which is where they begin; shares of width and height, 0 to 1."""

    x: float
    y: float
    text: str


@dataclass(frozen=True, kw_only=True)
class Legend:
    """What the colours of an overlay mean."""

    picture: bytes  # PNG, JPEG or WebP
    text: str


@dataclass(frozen=True, kw_only=True)
class Drawing:
    """What a stage would draw over a thumbnail; all coordinates are shares of width and height, 0 to 1."""

    lines: list[tuple[float, float, float, float]] = field(default_factory=list)  # x0, y0, x1, y1
    points: list[tuple[float, float]] = field(default_factory=list)
    areas: list[Area] = field(default_factory=list)
    labels: list[Label] = field(default_factory=list)
    overlay: bytes | None = None  # a picture to lay over the whole frame: PNG, with transparency
    after: bytes | None = None  # the same frame as the stage made it, to be held against it: PNG, JPEG or WebP
    legend: Legend | None = None
    caption: str = ""


class Clock:
    """Seconds by phase, on the processor's clock; a worker gives stages on a GPU one that reads the GPU's.

    A phase inside another one is taken off that one's time, so that phases add up to no more than the whole.
    """

    def __init__(self) -> None:
        self._open: list[float] = []  # of each open phase: when it began, later by what phases inside it took
        self._seconds: dict[str, float] = {}

    @property
    def seconds(self) -> Mapping[str, float]:
        """Since it was last read by `take`."""
        return self._seconds

    def begin(self) -> None:
        """A phase begins, perhaps inside another one."""
        self._open.append(time.perf_counter())

    def end(self, name: str) -> None:
        """The phase that began last ends."""
        now, began = time.perf_counter(), self._open.pop()
        self._seconds[name] = self._seconds.get(name, 0.0) + now - began
        if self._open:
            self._open[-1] += now - began

    def take(self) -> Mapping[str, float]:
        """Seconds by phase since the last time."""
        taken, self._seconds = self.seconds, {}
        return taken


class Stage(ABC):
    """One noun: a class that declares what it reads and adds, and does it.

    Construction is cheap and touches no file: the driver builds every stage to read its declarations. Heavy libraries
    are imported in `setup`, which runs once in the worker.
    """

    @dataclass(frozen=True, kw_only=True)
    class Config:
        """Settings that change results; unknown keys are refused when the manifest is read."""

    version: ClassVar[int] = 1  # raise it when the same input gives another output: results are then computed again
    scope: ClassVar[Scope] = Scope.ROW
    halo: ClassVar[int] = 0  # a CLIP stage's look-ahead in frames; a stage with one reads source columns only
    placement: ClassVar[Placement] = Placement()
    devices: ClassVar[tuple[str, ...]] = ("cpu",)  # where it can run
    reads_media: ClassVar[bool] = False  # of a MEDIA stage: it is called with a file's `Media` too
    reads_urls: ClassVar[bool] = False  # whether `files` may be URLs of a file system that Arrow knows
    cut_matters: ClassVar[str] = (
        ""  # why the result depends on where clips are cut; empty: it does not, and a test shows it
    )
    dummy_weights: ClassVar[bool] = (
        False  # whether it builds itself with seeded random weights where `setup` lacks them
    )

    def __init__(self, config: Config | None = None) -> None:
        self.config: Any = config if config is not None else self.Config()
        self.clock = Clock()  # of its phases; set by the worker
        self.mark: Mark = nullcontext  # round each phase, by its name; an instrument may set it
        self.chunk_rows: dict[str, int] = {}  # by kind of item; set by the worker
        self.items: dict[str, int] = {}  # by kind, how many were gone through since the worker last looked

    @property
    @abstractmethod
    def inputs(self) -> tuple[str, ...]:
        """Columns it reads, and the only ones it is given."""

    @property
    def outputs(self) -> pa.Schema:
        """First pass: the columns it adds, one value a row."""
        return pa.schema([])

    @property
    def tables(self) -> dict[str, Table]:
        """Second pass: the tables it writes, by name."""
        return {}

    @property
    def reads(self) -> tuple[str, ...]:
        """Second pass: tables of other steps that its calls are given, and the only ones.

        A MEDIA stage reads tables of MEDIA stages that have a `media_id`, and is given the rows of its file.
        """
        return ()

    @property
    def weights(self) -> tuple[str, ...]:
        """Names in the weights lockfile. A stage with weights gets processes of its own that keep the model."""
        return ()

    @property
    def files(self) -> tuple[str, ...]:
        """Files and folders that its settings name and its calls read, on every machine at the same path.

        What they hold decides results as settings do.
        """
        return ()

    def setup(self, weights: Weights, placement: Placement) -> None:  # noqa: B027 - stages without a model need none
        """Load what the calls need, and make it run as the placement says: once, in the worker.

        A name is absent from `weights` only where the stage has `dummy_weights` and somebody asked for them.
        """

    @abstractmethod
    def __call__(self, batch: pa.Table) -> Any:
        """First pass: a `pa.Table` of exactly `outputs`, with the rows of `batch` in their order.

        A CLIP stage is given one clip and after it up to `halo` frames of the next; it answers for all rows, and what
        it says of the halo is dropped. Second pass: a dict of tables as declared in `tables`; a stage that declares
        `reads` takes those tables by name after its rows, and one with `reads_media` the file's `Media` last.
        """

    def preview(self, row: Mapping[str, Any]) -> Drawing | None:  # noqa: ARG002
        """What to draw over a frame's thumbnail in the report; None for nothing.

        Args:
            row: first pass: its outputs, with the content of files where a column holds whole encoded files. Second
                pass: those of its inputs that are stored, and of each of its tables, by name, a list of the rows that
                speak of this frame: of its `media_id`, and of its `frame_index`, or of a stretch from `first_frame`
                to `last_frame` that it lies in, where the table has such columns.
        """
        return None

    def agreement(self, a: pa.Table, b: pa.Table, table: str = "") -> dict[str, float] | None:  # noqa: ARG002
        """How far its results of two runs agree, for `framemill compare`; None to have values compared one by one.

        A pure function: of a stage that was only constructed, whose results may come from other settings or weights.

        Args:
            a: rows of one run, the columns that both have.
            b: the same rows, in the same order, of the other.
            table: of the second pass, which of its tables these are.

        Returns:
            Figures by name, and among them `drift`: 0 where results are the same, 1 where they have nothing in common.
        """
        return None

    @contextmanager
    def phase(self, name: str) -> Iterator[None]:
        """Count the time of this block under a phase: preprocess, upload, infer, download or postprocess.

        Upload is to the device, download back from it. On a GPU, where work is only asked for, a phase ends when the
        GPU has done it; nothing waits for that here.
        """
        with self.mark(name):
            self.clock.begin()
            try:
                yield
            finally:
                self.clock.end(name)

    def chunks(self, items: Sequence[T], kind: str, default: int = 64) -> Iterator[Sequence[T]]:
        """Parts of a long list of prompts or faces; the worker owns the part's size, and makes it smaller in need."""
        size = self.chunk_rows.setdefault(kind, default)
        self.items[kind] = self.items.get(kind, 0) + len(items)
        for start in range(0, len(items), size):
            yield items[start : start + size]
