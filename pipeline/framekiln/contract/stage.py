"""The contract between stages and the pipeline, which knows no stage by name.

A stage of the first pass (ROW, CLIP) adds declared columns to rows. A stage of the second pass (MEDIA, DATASET) reads
such columns and tables of earlier steps, and writes declared tables. Arrow tables go in and come out; the libraries
between are the stage's choice.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import Any, ClassVar, Protocol, TypeVar

import pyarrow as pa

from framekiln.contract.array_cache import ArrayCache
from framekiln.contract.drawing import Drawing
from framekiln.contract.phases import ItemCounts, PhaseClock
from framekiln.contract.placement import GpuMemory, Placement

T = TypeVar("T")
Annotate = Callable[[str], AbstractContextManager[Any]]
"""A profiler's context manager for a range of a given name, such as `torch.profiler.record_function`."""
Weights = Mapping[str, Path]
"""Verified local files by their name in the weights lockfile."""


class Scope(Enum):
    """The rows that one call receives together."""

    ROW = "row"  # any frames
    CLIP = "clip"  # consecutive frames of one clip, then up to `halo` frames of the next clip
    MEDIA = "media"  # every row of one file
    DATASET = "dataset"  # every row of the run

    @property
    def first_pass(self) -> bool:
        """True if stages of this scope are called with decoded media."""
        return self in (Scope.ROW, Scope.CLIP)


class Media(Protocol):
    """The frames of a file, for a MEDIA stage with `reads_media`; they need not fit into memory together."""

    def frames(self, pixels: str) -> Iterator[tuple[int, Any]]:
        """Yield the number and the image (h w 3, RGB uint8) of each frame of the file's rows, in display order.

        Frames are decoded while they are read, with the settings of the first pass. Each call decodes them again.

        `pixels`: the size, named as a pixel column: `frame`, `frame_1024`.
        Raises MediaError: the file is gone or cannot be opened any more.
        """


@dataclass(frozen=True, kw_only=True)
class Table:
    """A table that a second-pass stage writes.

    Raises ValueError: there is no key, or a key is no column. Rows of two runs could not be matched.
    """

    schema: pa.Schema
    keys: tuple[str, ...]  # columns that are unique together
    description: str

    def __post_init__(self) -> None:
        if not self.keys or not set(self.keys) <= set(self.schema.names):
            raise ValueError(f"keys of a table must name some of its columns, not {self.keys}")


class Stage(ABC):
    """Base class of stages: it declares inputs and outputs, and computes the outputs.

    Construction is cheap and opens no file, since the driver constructs every stage to read its declarations. Heavy
    libraries are imported in `setup`, which runs once in each worker. `framekiln.contract.testing` checks these rules.
    """

    @dataclass(frozen=True, kw_only=True)
    class Config:
        """Settings that change results.

        Types and their limits (`framekiln.contract.limits`) are checked, and unknown keys refused, when the pipeline
        file is read. A ValueError raised in `__post_init__` becomes an error message for the user. A default of None
        that depends on other settings is replaced there, by `settle`.
        """

        def settle(self, name: str, value: Any) -> None:
            """Set a setting that was left open; for use in `__post_init__`."""
            if getattr(self, name) is None:
                object.__setattr__(self, name, value)

    version: ClassVar[int | str] = 1  # change it when outputs change for the same input: all is then computed again
    scope: ClassVar[Scope] = Scope.ROW
    halo: ClassVar[int] = 0  # frames that a CLIP stage looks ahead; such a stage reads source columns only
    placement: ClassVar[Placement] = Placement()
    devices: ClassVar[tuple[str, ...]] = ("cpu",)  # devices that the stage can run on
    # Whether several threads may call it at a time, as with `in_flight`. Otherwise calls are made one after another.
    thread_safe: ClassVar[bool] = False
    reads_media: ClassVar[bool] = False  # a MEDIA stage is also called with its file's `Media`
    reads_urls: ClassVar[bool] = False  # `files` may be URLs of file systems that Arrow supports
    cut_dependence: ClassVar[str] = (
        ""  # reason why results depend on where clips are cut; empty: they do not (`check_stage` verifies it)
    )
    chunk_kinds: ClassVar[tuple[str, ...] | None] = None  # kinds of item that `chunks` may name; None: any
    finds: ClassVar[tuple[tuple[str, str, str], ...]] = ()  # items that the report counts: column or table,
    # then the name of one item and of several
    dummy_weights: ClassVar[bool] = False  # `setup` uses seeded random weights if real ones are missing
    dummy_note: ClassVar[str] = ""  # without the first of its weights: which results are invented, which figures void

    def __init__(self, config: Config | None = None) -> None:
        self.config: Any = config if config is not None else self.Config()
        self.clock = PhaseClock()  # times the phases; replaced by the worker
        self.annotate: Annotate = nullcontext  # entered for each phase; replaced by profilers
        # columns, and tables as `name/`, that its step's condition reads; set by the plan
        self.reads_besides: tuple[str, ...] = ()
        self.reads_also: tuple[str, ...] = ()  # the `optional_inputs` that its run has; set by the plan
        self.chunk_sizes: dict[str, int] = {}  # size of chunks, by kind of item; set by the worker
        self.arrays = ArrayCache()  # kept between runs, in a folder that the worker sets
        self.item_counts = ItemCounts()  # items processed since the worker last read it

    @property
    @abstractmethod
    def inputs(self) -> tuple[str, ...]:
        """Names of the columns that calls receive: source columns, pixels, sound, or outputs of other steps."""

    @property
    def optional_inputs(self) -> tuple[str, ...]:
        """Names of other steps' columns that it can do without.

        A call receives the columns that its run has. They are null in a row that such a step failed on or skipped; the
        row is computed all the same.
        """
        return ()

    @property
    def received(self) -> tuple[str, ...]:
        """Names of all columns that calls receive in its run."""
        return (*self.inputs, *self.reads_also)

    @property
    def outputs(self) -> pa.Schema:
        """First pass: the columns that it adds, one value a row. `columns.field` gives each its description."""
        return pa.schema([])

    @property
    def tables(self) -> dict[str, Table]:
        """Second pass: the tables that it writes, by name."""
        return {}

    @property
    def input_tables(self) -> tuple[str, ...]:
        """Second pass: names of other steps' tables that calls receive.

        A MEDIA stage reads tables of MEDIA stages that have a `media_id`, and receives the rows of its file.
        """
        return ()

    @property
    def keeps(self) -> tuple[str, ...]:
        """DATASET: names of its own tables whose content from the last run in this output is given to calls."""
        return ()

    @property
    def weights(self) -> tuple[str, ...]:
        """Names of its weights, in `manifests/models.yaml` or in `models:` of the pipeline file.

        A stage with weights runs in processes of its own, which keep the model.
        """
        return ()

    @property
    def files(self) -> tuple[str, ...]:
        """Paths of files and folders that its calls read; each machine has them at the same path.

        A change of their content changes the fingerprint, so that results are computed again.
        """
        return ()

    def setup(self, weights: Weights, placement: Placement) -> None:  # noqa: B027 - stages without a model need none
        """Load what calls need, once in each worker.

        Args:
            weights: verified local files. A name is missing only for a stage with `dummy_weights`, in a run with
                `--missing-weights dummy`.
            placement: device, arithmetic and threads to use.

        Raises:
            Exception: of any class; the run stops and names the step.
        """

    @abstractmethod
    def __call__(self, batch: pa.Table) -> Any:
        """Compute the results of some rows.

        Args:
            batch: the columns `inputs`, and those of `optional_inputs` that the run has. For a ROW stage any rows, or
                none. For a CLIP stage one clip followed by up to `halo` frames of the next one, whose `clip_index` is
                -1. For a MEDIA stage all rows of one file, for a DATASET stage all rows of the run, in no fixed order.
                A row that an earlier step failed on is left out.

        A stage with `input_tables` takes a dict of these tables as second argument. A stage with `keeps` takes a dict
        of these tables as last argument, without rows in the first run. A stage with `reads_media` takes the file's
        `Media` as last argument.

        Returns:
            First pass: a `pa.Table` with exactly the columns `outputs` and a row for each row of `batch`, in the same
            order; results of halo rows are dropped. Second pass: a dict of exactly the tables in `tables`.

        Raises:
            Exception: of any class. The batch is halved until one row is left, and that row becomes an error.
        """

    def gpu_memory(self, placement: Placement) -> GpuMemory | None:  # noqa: ARG002
        """Return the GPU memory of its model in this placement, for `plan`; None if unknown."""
        return None

    def draw(self, row: Mapping[str, Any]) -> Drawing | None:  # noqa: ARG002
        """Return what the report draws over a frame's thumbnail; None for nothing.

        Args:
            row: first pass: the values of `outputs`, where a column of encoded files has their content. Second pass:
                the values of stored inputs, and for each of its tables, by name, a list of the rows about this frame.
                They match by `media_id`, and by `frame_index` or a range from `first_frame` to `last_frame` if the
                table has such columns.
        """
        return None

    def summarize(self, rows: pa.Table, scale: float) -> list[str]:  # noqa: ARG002
        """First pass: return short facts for the head of the report, such as "3 black frames", beside `finds`.

        Args:
            rows: `height`, `width` and the columns `outputs` of evenly spaced rows of the run.
            scale: rows of the run for each of these.
        """
        return []

    def agreement(self, a: pa.Table, b: pa.Table, table: str = "") -> dict[str, float] | None:  # noqa: ARG002
        """Measure how well results of two runs agree, for `framekiln compare`.

        The stage was only constructed, and the results may come from other settings or weights.

        Args:
            a: results of one run: the columns that both runs have.
            b: results of the other run for the same rows, in the same order.
            table: second pass: the name of the table with these rows.

        Returns:
            Measures by name. One of them is `drift`, from 0 (equal results) to 1 (nothing in common). None: values
            are compared one by one.
        """
        return None

    @contextmanager
    def phase(self, name: str) -> Iterator[None]:
        """Time this block as a phase: one of `phases.PHASES`.

        On a GPU the phase ends when its kernels have finished, by CUDA events; this block does not wait for them.
        """
        with self.annotate(name):
            self.clock.begin()
            try:
                yield
            finally:
                self.clock.end(name)

    def chunks(self, items: Sequence[T], kind: str, default: int = 64) -> Iterator[Sequence[T]]:
        """Yield consecutive parts of a long list, such as prompts or faces of one image.

        Args:
            items: the list.
            kind: name of the items, under which profiles set the size of parts (`chunks:`).
            default: size of parts otherwise. On out-of-memory the worker halves it.
        """
        size = self.chunk_sizes.setdefault(kind, default)
        self.item_counts.add(kind, len(items))
        for start in range(0, len(items), size):
            yield items[start : start + size]
