"""Checks of what a stage declares; they run before it is set up."""

import builtins
import dataclasses
import io
import os
import pickle
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from typing import Any

from framekiln.contract.columns import ON_REQUEST, SOURCE, is_pixel_column
from framekiln.contract.stage import Scope, Stage
from framekiln.contract.testing.sample import Check, StageSample, constructed, require

HEAVY_LIBRARIES = ("jax", "librosa", "mediapipe", "onnxruntime", "ray", "tensorflow", "torch", "transformers")
"""Libraries that take long to import, so that a stage imports them in `setup`."""


def check_config(stage: Stage, _: StageSample) -> None:
    """Check that settings are a frozen, keyword-only dataclass named Config."""
    kind = type(stage).Config
    parameters: Any = vars(kind).get("__dataclass_params__")
    require(parameters is not None, "decorate Config with @dataclass(frozen=True, kw_only=True)")
    require(parameters.frozen, "Config must be frozen: @dataclass(frozen=True, kw_only=True)")
    require(all(item.kw_only for item in dataclasses.fields(kind)), "Config must be keyword-only")
    require(isinstance(stage.config, kind), "config must be an instance of the stage's own Config")


def check_declarations(stage: Stage, _: StageSample) -> None:
    """Check that declarations are complete and fit the scope."""
    first = stage.scope.first_pass
    is_set = isinstance(stage.version, str) or stage.version >= 1
    require(is_set and bool(stage.devices), "version must be at least 1, or a text, and devices must name one")
    require(bool(stage.inputs), "inputs must name a column")
    require(bool(len(stage.outputs)) == first, "a first-pass stage declares outputs, a second-pass stage none")
    require(bool(stage.tables) != first, "a second-pass stage declares tables, a first-pass stage none")
    require(not (first and stage.input_tables), "only a second-pass stage has input_tables")
    require(not stage.keeps or stage.scope is Scope.DATASET, "only a DATASET stage keeps tables")
    require(set(stage.keeps) <= set(stage.tables), "keeps must name tables of the stage")
    require(not stage.reads_media or stage.scope is Scope.MEDIA, "only a MEDIA stage has reads_media")
    require(not stage.halo or stage.scope is Scope.CLIP, "only a CLIP stage has a halo")
    sourced = all(name in SOURCE.names or name in ON_REQUEST or is_pixel_column(name) for name in stage.inputs)
    require(not stage.halo or sourced, "a stage with a halo reads source columns only")
    require(not set(stage.outputs.names) & {*SOURCE.names, *ON_REQUEST}, "outputs must not repeat source columns")
    for table in stage.tables.values():
        require(bool(table.description), "each table needs a description")


def check_descriptions(stage: Stage, _: StageSample) -> None:
    """Check that each written column has a description, as `columns.field` gives it."""
    for schema in (stage.outputs, *(table.schema for table in stage.tables.values())):
        for item in schema:
            require(bool((item.metadata or {}).get(b"description")), f"column {item.name!r} has no description")


def check_construction(stage: Stage, sample: StageSample) -> None:
    """Check that construction and declarations open no file."""
    with _collect_opened_files() as opened:
        check_declarations(constructed(stage), sample)
    require(not opened, f"construction opened {opened[:1]}; open files in setup")


def check_imports(stage: Stage, _: StageSample) -> None:
    """Check, in a new process, that importing the stage's module imports no heavy library."""
    module = type(stage).__module__
    if module == "__main__":
        return
    imported, error = _import_alone(module, os.pathsep.join(sys.path))
    require(not error, f"{module} cannot be imported: {error}")
    heavy = sorted(imported & set(HEAVY_LIBRARIES))
    require(not heavy, f"importing {module} imports {', '.join(heavy)}; import it in setup")


@cache  # cached: the check takes a second for each stage
def _import_alone(module: str, path: str) -> tuple[frozenset[str], str]:
    """Import a module in a new process. Return the modules loaded then, and the end of its error."""
    code = f"import sys, {module}; print(*sys.modules)"
    environment = {**os.environ, "PYTHONPATH": path}
    result = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=False)
    return frozenset(result.stdout.split()), result.stderr[-500:] if result.returncode else ""


def check_pickling(stage: Stage, _: StageSample) -> None:
    """Check that a newly constructed stage is the same after pickling."""
    fresh = constructed(stage)
    copy = pickle.loads(pickle.dumps(fresh))  # noqa: S301 - the stage itself
    for name in ("config", "inputs", "outputs", "tables", "input_tables", "keeps", "weights", "files"):
        require(getattr(copy, name) == getattr(fresh, name), f"{name} differs after pickling")


@contextmanager
def _collect_opened_files() -> Iterator[list[Any]]:
    """Collect the paths that `open` is called with in this block."""
    opened: list[Any] = []
    original = builtins.open

    def recording(file: Any, *args: Any, **kwargs: Any) -> Any:
        opened.append(file)
        return original(file, *args, **kwargs)

    builtins.open, io.open = recording, recording
    try:
        yield opened
    finally:
        builtins.open, io.open = original, original


DECLARATION_CHECKS: tuple[Check, ...] = (
    check_config,
    check_declarations,
    check_descriptions,
    check_construction,
    check_imports,
    check_pickling,
)
