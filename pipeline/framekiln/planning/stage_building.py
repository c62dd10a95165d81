"""Stages built from the pipeline file: classes are imported, settings checked, and mistakes named."""

import importlib
import re
import sys
import traceback
from collections.abc import Callable, Iterator, Mapping
from dataclasses import fields
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import Any

import pyarrow as pa

from framekiln.contract.errors import OWN_CODE, ConfigError, FramekilnError, check_known, did_you_mean
from framekiln.contract.output_names import FOLDERS
from framekiln.contract.stage import Scope, Stage, Table
from framekiln.device.failures import message_of
from framekiln.planning.manifest import NAME, STEP_KEYS, PipelineFile, ProfileFile, StepEntry, read_pipeline
from framekiln.planning.settings import Overrides, validated

_NO_SETTINGS: Mapping[str, Any] = {}


def build_all(pipeline: PipelineFile, profile: ProfileFile, overrides: Overrides) -> dict[str, Stage]:
    """Return each step's stage by the step's name.

    Settings come from the profile, the pipeline file and --set; later ones win. So a laptop's profile can choose a
    smaller model if the pipeline file leaves it open.

    Raises ConfigError: see `build`.
    """
    return {
        name: build(name, entry, overrides.get(name, {}), profile.steps.get(name, {}).get("with") or {})
        for name, entry in pipeline.steps.items()
    }


def build(
    name: str, entry: StepEntry, overrides: Mapping[str, Any], profile: Mapping[str, Any] = _NO_SETTINGS
) -> Stage:
    """Return a step's stage with its settings checked.

    Raises ConfigError: the class cannot be found or built, or a setting is unknown or invalid.
    """

    def refused(problem: str, *, code: str) -> ConfigError:
        return ConfigError(f"Step {name!r} uses {entry.use!r}, {problem}", code=code)

    stage_class = entry.given or _load(entry.use, refused)
    parameters = vars(stage_class.Config).get("__dataclass_params__")  # a subclass without the decorator has none
    if parameters is None or not parameters.frozen:
        fix = "put @dataclass(frozen=True, kw_only=True) above `class Config`"
        raise refused(f"and its Config is not a frozen dataclass; {fix}.", code="FK-STAGE-CONFIG")
    known = {item.name for item in fields(stage_class.Config)}
    chosen = {key: value for key, value in overrides.items() if key in known or key not in STEP_KEYS}
    settings = {**profile, **entry.with_, **chosen}
    for key in settings:
        if key not in known:
            problem = f"Step {name!r} has no setting {key!r}."
            check_known(key, known | STEP_KEYS, problem, code="FK-UNKNOWN-SETTING")
    return _construct(stage_class, validated(stage_class.Config, settings, f"step {name!r}"), refused)


@cache
def find_fix(key: str) -> str:
    """Return a sentence on the shipped step that adds a column, or writes a table (`name/`); empty if none does."""
    if key == "identity":
        return " A frame may show several people: use list_contains(identities, 0)."
    for name, stage in build_all(read_pipeline(None), ProfileFile(), {}).items():
        if key in (*stage.outputs.names, *(f"{table}/" for table in stage.tables)):
            return f" Run the step {name!r}, which {'writes' if key.endswith('/') else 'adds'} it."
    return ""


def _load(use: str, refused: Callable[..., ConfigError]) -> type[Stage]:
    module_name, _, attribute = use.partition(":")
    module = _import(module_name, refused)
    stage_class = getattr(module, attribute, None)
    if stage_class is None and module_name == "__main__":
        problem = "defined in a script or a notebook: run it from there, or move the stage into a module."
        raise refused(problem, code="FK-STAGE-NOT-FOUND")
    if stage_class is None:
        stages = [key for key, value in vars(module).items() if isinstance(value, type) and issubclass(value, Stage)]
        known = did_you_mean(attribute, stages)
        raise refused(f"but {module_name} has no {attribute!r}.{known}", code="FK-STAGE-NOT-FOUND")
    if not (isinstance(stage_class, type) and issubclass(stage_class, Stage)):
        raise refused("which is not a subclass of framekiln.contract.stage.Stage.", code="FK-NOT-A-STAGE")
    return stage_class


def _import(module_name: str, refused: Callable[..., ConfigError]) -> ModuleType:
    if (here := str(Path.cwd())) not in sys.path and here not in own_folders():
        sys.path.append(here)  # last, so that a user's folder hides no installed package
    try:
        return importlib.import_module(module_name)
    except ModuleNotFoundError as error:
        missing = str(error.name)
        if f"{module_name}.".startswith(f"{missing}."):
            places = ", ".join(map(repr, own_folders()))
            raise refused(
                f"but there is no module {missing!r} in {places} or among the installed packages; correct `use:` in "
                "the pipeline file, or add the module's folder to PYTHONPATH.",
                code="FK-STAGE-NO-MODULE",
            ) from error
        problem = f"which imports {missing!r}, and that is not installed; install it."
        raise refused(problem, code="FK-STAGE-IMPORT") from error
    except OWN_CODE as error:
        problem = f"which cannot be imported: {_describe(error)}; correct the module."
        raise refused(problem, code="FK-STAGE-IMPORT") from error


def own_folders() -> list[str]:
    """Return the folders of `sys.path` that belong neither to Python nor to installed packages.

    Those lie in folders `lib/python*` below Python's prefix. Own code may lie there too: /usr/src/app in a container.
    """
    places = (str(Path(place or ".").resolve()) for place in sys.path)
    return list(dict.fromkeys(place for place in places if not _is_library(place) and Path(place).is_dir()))


def _is_library(place: str) -> bool:
    prefixes = (sys.prefix, sys.base_prefix)
    return any(re.match(f"{re.escape(prefix)}/(local/)?lib(64)?/python", place) for prefix in prefixes)


def _construct(stage_class: type[Stage], config: Any, refused: Callable[..., ConfigError]) -> Stage:
    try:
        stage = stage_class(config)
        wrong = next(_list_misdeclared(stage), "") if {"config", "clock"} <= vars(stage).keys() else None
    except FramekilnError:
        raise
    except OWN_CODE as error:
        problem = f"which cannot be constructed: {_describe(error)}; correct the class."
        raise refused(problem, code="FK-STAGE-CONSTRUCTOR") from error
    if wrong is None:
        problem = "and its constructor does not call super().__init__(config); add the call."
        raise refused(problem, code="FK-STAGE-CONSTRUCTOR")
    if wrong:
        raise refused(f"whose {wrong}; correct the class.", code="FK-STAGE-DECLARATION")
    if not (stage.outputs.names if stage.scope.first_pass else stage.tables):
        name, what = ("outputs", "columns that it adds") if stage.scope.first_pass else ("tables", "tables it writes")
        raise refused(f"which declares no {name}; return the {what} from `{name}`.", code="FK-STAGE-NO-OUTPUTS")
    return stage


def _list_misdeclared(stage: Stage) -> Iterator[str]:
    """Yield the mistakes in declarations; those after the first one may not be readable."""
    for name in ("inputs", "optional_inputs", "input_tables", "keeps", "weights", "files", "devices"):
        value = getattr(stage, name)
        if isinstance(value, str) or not all(isinstance(item, str) for item in value):
            yield f"`{name}` is {value!r} and no tuple of names, such as ('frame_224',)"
    if not isinstance(stage.halo, int) or stage.halo < 0:
        yield f"`halo` is {stage.halo!r} and no whole number from 0"
    if not isinstance(stage.scope, Scope):
        yield f"`scope` is {stage.scope!r} and none of Scope.ROW, CLIP, MEDIA and DATASET"
    if not isinstance(stage.outputs, pa.Schema):
        yield f"`outputs` are a {type(stage.outputs).__name__} and no pyarrow.Schema"
    for item in stage.outputs if stage.scope.first_pass else ():
        if not item.nullable:
            yield f"column {item.name!r} has nullable=False, but is null in rows that fail or are left out"
    for name, table in stage.tables.items():
        if not NAME.fullmatch(name) or name in FOLDERS or not isinstance(table, Table):
            wanted = "give a framekiln.contract.Table, named like 'people' and like no other folder of outputs"
            yield f"table {name!r} is a {type(table).__name__}; {wanted}"


def _describe(error: BaseException) -> str:
    """Return an error of a stage's own code in one line, with its line of code if known."""
    last = traceback.extract_tb(error.__traceback__)[-1]
    place = "" if last.filename == __file__ or last.filename.startswith("<") else f" ({last.filename}:{last.lineno})"
    return f"{type(error).__name__}: {' '.join(message_of(error).split()).rstrip('.')}{place}"
