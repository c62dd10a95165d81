"""What a pipeline file and `--set` say becomes configured stages, or one sentence about the word that is wrong."""

from __future__ import annotations

import importlib
from collections.abc import Mapping, Sequence
from dataclasses import fields
from typing import Any

import yaml
from pydantic import TypeAdapter, ValidationError

from pipeline.errors import ConfigError, did_you_mean
from pipeline.failure import DECODE
from pipeline.manifest import PipelineFile, PlacementEntry, ProfileFile, StepEntry
from pipeline.stage import Stage

_NOTHING: Mapping[str, Any] = {}
Overrides = Mapping[str, Mapping[str, Any]]
"""By step, what --set says of its keys."""


def read_overrides(words: Sequence[str], pipeline: PipelineFile) -> Overrides:
    """`step.key=value` words, by step; values are read as YAML.

    Raises:
        ConfigError: a word is not of that form, or its step is unknown.
    """
    found: dict[str, dict[str, Any]] = {}
    for word in words:
        path, equals, text = word.partition("=")
        step, dot, key = path.partition(".")
        if not (equals and dot and key):
            raise ConfigError(f"--set {word!r} is not of the form step.key=value, as in --set flow.preset=medium.")
        if step != DECODE and step not in pipeline.steps:
            known = did_you_mean(step, [*pipeline.steps, DECODE])
            raise ConfigError(f"--set {word!r}: the pipeline has no step {step!r}.{known}")
        try:
            found.setdefault(step, {})[key] = yaml.safe_load(text)
        except yaml.YAMLError as error:
            raise ConfigError(f"--set {word!r}: the value is not valid YAML; quote it.") from error
    return found


def build_all(pipeline: PipelineFile, profile: ProfileFile, overrides: Overrides) -> dict[str, Stage]:
    """Every step's stage, by step.

    What the pipeline file says of a setting stands; a profile speaks where it is silent, so that a laptop may take a
    smaller model. --set is above both.

    Raises:
        ConfigError: as `build`.
    """
    given = {name: entry.with_ for name, entry in profile.steps.items()}
    return {
        name: build(name, entry, overrides.get(name, {}), given.get(name, {})) for name, entry in pipeline.steps.items()
    }


def build(name: str, entry: StepEntry, overrides: Mapping[str, Any], profile: Mapping[str, Any] = _NOTHING) -> Stage:
    """A step's stage with its settings checked.

    Raises:
        ConfigError: there is no such class, or a setting is unknown or of the wrong kind.
    """
    stage_class = _load(name, entry.use)
    known = {item.name for item in fields(stage_class.Config)}
    placing = set(PlacementEntry.model_fields)
    said = {key: value for key, value in overrides.items() if key in known or key not in placing}
    settings = {**profile, **entry.with_, **said}
    for key in settings:
        if key not in known:
            raise ConfigError(f"Step {name!r} has no setting {key!r}.{did_you_mean(key, known | placing)}")
    return stage_class(validated(stage_class.Config, settings, f"step {name!r}"))


def validated(kind: Any, settings: Mapping[str, Any], where: str) -> Any:
    """Settings as an instance of a dataclass or model.

    Raises:
        ConfigError: a key is unknown, or a value of the wrong kind.
    """
    try:
        return TypeAdapter(kind).validate_python(dict(settings))
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        key = ".".join(str(part) for part in first["loc"])
        if first["type"] == "extra_forbidden":
            raise ConfigError(f"{where}: unknown setting {key!r}.{did_you_mean(key, kind.model_fields)}") from error
        said = first["msg"].removeprefix("Value error, ")
        of = f"setting {key!r} is wrong" if key else "its settings are wrong"
        raise ConfigError(f"{where}: {of}: {said} (got {first['input']!r}).") from error


def _load(name: str, use: str) -> type[Stage]:
    module_name, _, attribute = use.partition(":")
    try:
        module = importlib.import_module(module_name)
    except ModuleNotFoundError as error:
        missing = f"there is no module {error.name!r}; check `use:` in the pipeline file"
        raise ConfigError(f"Step {name!r} uses {use!r}, but {missing}.") from error
    found = getattr(module, attribute, None)
    if found is None:
        stages = [key for key, value in vars(module).items() if isinstance(value, type) and issubclass(value, Stage)]
        known = did_you_mean(attribute, stages)
        raise ConfigError(f"Step {name!r} uses {use!r}, but {module_name} has no {attribute!r}.{known}")
    if not (isinstance(found, type) and issubclass(found, Stage)):
        raise ConfigError(f"Step {name!r} uses {use!r}, which is not a Stage class.")
    return found
