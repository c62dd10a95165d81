"""A step is a configured stage in its place in the plan.

It holds all that a worker needs to run the stage, and all that storage needs to name the results.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.fs as pafs

from pipeline.errors import ConfigError
from pipeline.failure import DECODE
from pipeline.media.config import DECODE_VERSION, DecodeConfig
from pipeline.stage import Placement, Stage

DUMMY = "framemill.dummy"
"""Key in the metadata of a Parquet file whose values come from random weights: the steps that had them."""


@dataclass(frozen=True, kw_only=True)
class Step:
    """One stage with its settings and its place."""

    name: str
    use: str  # module:Class
    stage: Stage
    placement: Placement
    fingerprint: str
    depends: frozenset[str] = frozenset()  # steps whose columns or tables it reads, and theirs
    drops: tuple[str, ...] = ()  # columns of a packet that no later step reads
    weights: Mapping[str, Path] = field(default_factory=dict)
    dummies: tuple[str, ...] = ()  # steps with random weights that its results come from: itself, or some it depends on
    chunks: Mapping[str, int] = field(default_factory=dict)
    facts: Mapping[str, Any] = field(default_factory=dict)  # what the fingerprint was taken of, `reads` by name
    recalled: bool = False  # its parts are there, made by an earlier wave; they are read, and nothing is computed

    @property
    def folder(self) -> str:
        """Under `columns/` or `tables/`, where its parts lie."""
        return f"{self.name}-{self.fingerprint}"

    @property
    def first_pass(self) -> bool:
        """Whether it adds columns to decoded frames."""
        return self.stage.scope.first_pass

    @property
    def keeps_model(self) -> bool:
        """Whether it runs in processes of its own, that load a model once."""
        return self.first_pass and not self.recalled and (self._has_model or bool(self.placement.group))

    @property
    def keeps_model_later(self) -> bool:
        """Whether it is a second-pass step that runs in processes of its own, which end before the next step's."""
        return not self.first_pass and self._has_model

    @property
    def _has_model(self) -> bool:
        return bool(self.stage.weights) or self.placement.device != "cpu"

    @property
    def table_schema(self) -> pa.Schema:
        """What its parts hold: its columns, where encoded files are replaced by their paths."""
        return pa.schema([_as_path(item) for item in self.stage.outputs])

    def mark(self, table: pa.Table) -> pa.Table:
        """What it writes, marked where it came from random weights."""
        return table.replace_schema_metadata(marked(table.schema, self.dummies).metadata)


@dataclass(frozen=True, kw_only=True)
class DecodeStep:
    """The step before all others: files to packets."""

    config: DecodeConfig
    columns: tuple[str, ...]  # pixels and sound that any step asks for
    drops: tuple[str, ...] = ()  # of these, what no step of this wave reads
    halo: int  # the longest look-ahead of any step
    cpus: float
    workers: int
    deadline_s: float = 600.0  # for the next frame; of 100 MP one takes seconds, each 1,000th of a film half a minute
    name: str = DECODE

    @property
    def facts(self) -> Mapping[str, Any]:
        """What decides which rows there are; how they are packed does not."""
        names = ("every_nth", "max_frames", "max_pixels", "max_length", "fast_mode", "clip_frames", "segment_bytes")
        return {
            "use": self.name,
            "version": DECODE_VERSION,
            "settings": {name: getattr(self.config, name) for name in names},
        }

    @property
    def fingerprint(self) -> str:
        """Of the facts."""
        return fingerprint({"version": DECODE_VERSION, **self.facts["settings"]})

    @property
    def folder(self) -> str:
        """Under `columns/`, where its parts lie."""
        return f"{self.name}-{self.fingerprint}"


def marked(schema: pa.Schema, dummies: Iterable[str]) -> pa.Schema:
    """A table's schema that says in the file's metadata which steps had random weights; unchanged where none had."""
    if not (names := ",".join(sorted(dummies))):
        return schema
    return schema.with_metadata({**(schema.metadata or {}), DUMMY: names})


def fingerprint(facts: Mapping[str, Any]) -> str:
    """Twelve hex digits of the facts that decide a result."""
    return hashlib.sha256(json.dumps(facts, sort_keys=True, default=str).encode()).hexdigest()[:12]


def contents(path: str, *, urls: bool = False) -> str:
    """Twelve hex digits of what a file or folder that a setting names holds: of a folder, its files' sizes and times.

    Args:
        path: where it lies.
        urls: whether the path may be a URL of a file system that Arrow knows.

    Raises:
        ConfigError: there is nothing at the path, or it cannot be looked into.
    """
    if urls and "://" in path:
        return _contents_at(path)
    found = Path(path).expanduser()
    if found.is_file():
        return hashlib.sha256(found.read_bytes()).hexdigest()[:12]
    if not found.is_dir():
        raise ConfigError(f"A setting names {path!r}, but there is no such file or folder; check the path.")
    inside = ((file, file.stat()) for file in sorted(found.rglob("*")) if file.is_file())
    return fingerprint({str(file.relative_to(found)): [stat.st_size, stat.st_mtime_ns] for file, stat in inside})


def _contents_at(url: str) -> str:
    try:
        system, base = pafs.FileSystem.from_uri(url)
        found = system.get_file_info(base)
        folder = found.type is pafs.FileType.Directory
        inside = system.get_file_info(pafs.FileSelector(base, recursive=True)) if folder else [found]
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError, OSError) as error:
        reason = str(error).splitlines()[0].rstrip(".")
        raise ConfigError(f"A setting names {url!r}, which cannot be opened ({reason}); check the URL.") from error
    files = {one.path.removeprefix(base): [one.size, one.mtime_ns] for one in inside if one.is_file}
    if not files:
        raise ConfigError(f"A setting names {url!r}, but there is no such file or folder; check the URL.")
    return fingerprint(files)


def is_file_column(item: pa.Field) -> bool:
    """Whether a column's values are whole encoded files, kept beside the tables."""
    return bool(pa.types.is_large_binary(item.type))


def _as_path(item: pa.Field) -> pa.Field:
    return pa.field(item.name, pa.string(), metadata=item.metadata) if is_file_column(item) else item
