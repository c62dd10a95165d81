"""Steps: configured stages with their place in the plan.

A step holds everything that a worker needs to run the stage, and that storage needs to name the results.
"""

import hashlib
import json
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.fs as pafs

from framekiln.contract import Placement, Stage
from framekiln.contract.errors import ConfigError
from framekiln.contract.row_errors import DECODE
from framekiln.contract.user_files import expand
from framekiln.media.config import DECODE_VERSION, DecodeConfig
from framekiln.media.files import open_url
from framekiln.planning.condition import EVERY_ROW, Condition
from framekiln.weights.checksums import digest_of
from framekiln.weights.lockfile import WeightsEntry

DUMMY = "framekiln.dummy"
"""Metadata key of a Parquet file for the steps with random weights behind its values."""


@dataclass(frozen=True, kw_only=True)
class Step:
    """One stage with its settings and its placement."""

    name: str
    use: str  # module:Class
    stage: Stage
    placement: Placement
    fingerprint: str
    values: str = ""  # of everything that decides a row's values: `alike` for a ROW stage, `fingerprint` for others
    alike: str = ""  # as `fingerprint`, without its own condition: equal for the same values of the same rows
    condition: Condition = EVERY_ROW
    narrowing: tuple[Condition, ...] = ()  # its own condition and its producers': a row must meet them all
    others: tuple[str, ...] = ()  # folders of its parts with other conditions: the same values of other rows
    depends: frozenset[str] = frozenset()  # all producers behind it, direct or not
    needs: frozenset[str] = frozenset()  # producers that a row needs: without their values it is skipped
    drops: tuple[str, ...] = ()  # columns of a packet that no later step reads
    weights: Mapping[str, Path] = field(default_factory=dict)
    entries: Mapping[str, WeightsEntry] = field(default_factory=dict)  # lockfile entries by name of weights
    dummies: tuple[str, ...] = ()  # steps with random weights behind its results, itself included
    facts: Mapping[str, Any] = field(default_factory=dict)  # the input of the fingerprint, with `reads` by name
    recalled: bool = False  # an earlier wave computed its parts, which are read

    @property
    def folder(self) -> str:
        """Its name and fingerprint: the folder of its parts under `columns/`."""
        return f"{self.name}-{self.fingerprint}"

    @property
    def first_pass(self) -> bool:
        """True if it adds columns to decoded frames."""
        return self.stage.scope.first_pass

    @property
    def is_narrowed(self) -> bool:
        """True if it may skip rows, by its own condition or a producer's."""
        return bool(self.narrowing)

    @property
    def reads(self) -> tuple[str, ...]:
        """Columns of packets that it and its condition read."""
        test = self.condition.test
        return (*self.stage.received, *sorted(test.names if test is not None and self.first_pass else ()))

    @property
    def keeps_model(self) -> bool:
        """True if it runs in processes of its own, which load a model once."""
        return self.first_pass and not self.recalled and (self._has_model or bool(self.placement.group))

    @property
    def keeps_model_later(self) -> bool:
        """True for a second-pass step in processes of its own, which end before the next step starts."""
        return not self.first_pass and self._has_model

    @property
    def _has_model(self) -> bool:
        return bool(self.stage.weights) or self.placement.device != "cpu"

    @property
    def carried(self) -> list[str]:
        """Its columns that later steps read."""
        return [name for name in self.stage.outputs.names if name not in self.drops]

    @property
    def table_schema(self) -> pa.Schema:
        """The schema of its parts: its columns, with paths for encoded files."""
        return parts_schema(self.stage)

    def images(self, column: str) -> str:
        """Return the folder of a column's encoded files, under `images/`; the choice of rows does not change it."""
        return f"{column}-{self.values or self.fingerprint}"

    def placed(self, **changes: Any) -> "Step":
        return replace(self, placement=replace(self.placement, **changes))

    def mark(self, table: pa.Table) -> pa.Table:
        """Return one of its tables, marked if it comes from random weights."""
        return table.replace_schema_metadata(marked(table.schema, self.dummies).metadata)


@dataclass(frozen=True, kw_only=True)
class DecodeStep:
    """The step before all others: files to packets."""

    config: DecodeConfig
    columns: tuple[str, ...]  # pixels and sound that any step reads
    narrowed: Mapping[str, tuple[tuple[Condition, ...], ...]] = field(default_factory=dict)  # pixel columns
    # that only some frames need: a frame needs one if it meets all conditions of any of the column's readers
    drops: tuple[str, ...] = ()  # columns that no step of this wave reads
    adopters: tuple[Step, ...] = ()  # all steps of this wave, if earlier conditions have left values of some
    halo: int  # the longest look-ahead of any step
    cpus: float
    workers: int
    timeout_s: float = 600.0  # s for the next frame: 100 MP take seconds, 0.001 of a long video half a minute
    name: str = DECODE

    @property
    def spares(self) -> bool:
        """True if some rows need no decoding at all, so that their earlier values can be reused."""
        read = set(self.columns) - set(self.drops)
        return bool(read) and read <= self.narrowed.keys() and not self.config.fast_mode

    @property
    def facts(self) -> Mapping[str, Any]:
        """The settings that decide which rows exist, not how they are packed."""
        names = ("every_nth", "max_frames", "max_pixels", "max_length", "fast_mode", "clip_frames")
        return {
            "use": self.name,
            "version": DECODE_VERSION,
            "settings": {name: getattr(self.config, name) for name in names},
        }

    @property
    def fingerprint(self) -> str:
        return fingerprint({"version": DECODE_VERSION, **self.facts["settings"]})

    @property
    def folder(self) -> str:
        return f"{self.name}-{self.fingerprint}"


def marked(schema: pa.Schema, dummies: Iterable[str]) -> pa.Schema:
    """Return a table's schema, with the steps with random weights in its metadata; unchanged if there are none."""
    if not (names := ",".join(sorted(dummies))):
        return schema
    return schema.with_metadata({**(schema.metadata or {}), DUMMY: names})


def fingerprint(facts: Mapping[str, Any]) -> str:
    """Return twelve hex digits of the facts that decide a result."""
    return hashlib.sha256(json.dumps(facts, sort_keys=True, default=str).encode()).hexdigest()[:12]


def identify(
    facts: Mapping[str, Any], condition: Condition, producers: Iterable[Step], inputs: Collection[str], *, by_row: bool
) -> dict[str, Any]:
    """Return the identity of a step's results: `fingerprint`, `values`, `alike`, `facts`, and narrowing conditions.

    Args:
        facts: all that decides values, with the fingerprints of steps under `reads`.
        condition: the step's condition.
        producers: steps that it reads.
        inputs: fingerprints of the values of its inputs.
        by_row: a row's values do not depend on which other rows are computed.
    """
    narrowing = {id(each): each for step in producers if step.first_pass for each in step.narrowing}
    narrowing |= {id(condition): condition} if condition.is_given else {}
    facts = {**facts, **({"rows": condition.facts()} if condition.is_given else {})}
    whole = fingerprint({**facts, "reads": sorted(set(facts["reads"].values()))})
    alike = fingerprint({key: value for key, value in facts.items() if key != "rows"} | {"reads": sorted(inputs)})
    facts |= {"alike": alike} if alike != whole else {}
    return {
        "fingerprint": whole,
        "values": alike if by_row else whole,
        "alike": alike,
        "facts": facts,
        "condition": condition,
        "narrowing": tuple(narrowing.values()),
    }


def contents(path: str, *, urls: bool = False) -> str:
    """Return twelve hex digits of a file's content, or of the sizes and times of a folder's files.

    `urls` allows URLs of file systems that Arrow knows.

    Raises ConfigError: the path does not exist or cannot be read.
    """
    if urls and "://" in path:
        return _hash_url(path)
    place = expand(path)
    try:
        if place.is_file():
            return digest_of(place)[:12]
        if place.is_dir():
            inside = ((file, file.stat()) for file in sorted(place.rglob("*")) if file.is_file())
            sizes = {str(file.relative_to(place)): [stat.st_size, stat.st_mtime_ns] for file, stat in inside}
            return fingerprint(sizes)
        problem = "but there is no such file or folder"
    except OSError as error:
        problem = f"which cannot be read ({error.strerror})"
    raise ConfigError(f"A setting names {path!r}, {problem}; check the path.", code="FK-SETTING-NO-FILE")


def _hash_url(url: str) -> str:
    try:
        system, base = open_url(url)
        info = system.get_file_info(base)
        folder = info.type is pafs.FileType.Directory
        inside = system.get_file_info(pafs.FileSelector(base, recursive=True)) if folder else [info]
    except (ValueError, pa.ArrowNotImplementedError, OSError) as error:
        reason = str(error).splitlines()[0].rstrip(".")
        raise ConfigError(
            f"A setting names {url!r}, which cannot be opened ({reason}); check the URL.", code="FK-SETTING-URL"
        ) from error
    files = {file.path.removeprefix(base): [file.size, file.mtime_ns] for file in inside if file.is_file}
    if not files:
        raise ConfigError(
            f"A setting names {url!r}, but there is no such file or folder; check the URL.", code="FK-SETTING-NO-FILE"
        )
    return fingerprint(files)


def parts_schema(stage: Stage) -> pa.Schema:
    """Return the schema of a first-pass stage's parts: its columns, with paths for encoded files."""
    paths = [pa.field(item.name, pa.string(), metadata=item.metadata) for item in stage.outputs]
    return pa.schema([path if is_file_column(own) else own for own, path in zip(stage.outputs, paths, strict=True)])


def is_file_column(item: pa.Field) -> bool:
    """Return whether a column's values are whole encoded files, which are stored beside the tables."""
    return bool(pa.types.is_large_binary(item.type))
