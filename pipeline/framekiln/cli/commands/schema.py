"""`framekiln schema`: JSON schemas of the YAML files that users write, for editors and other checkers.

They come from the models that the files are parsed with. Settings of a stage come from its Config, and descriptions
from the comments in the source.
"""

import json
from collections.abc import Mapping
from typing import Annotated, Any, Literal

from pydantic import BaseModel, TypeAdapter
from typer import Argument

from framekiln.cli.commands.steps import setting_meanings
from framekiln.cli.options import PipelinePath
from framekiln.contract.placement import Placement
from framekiln.planning.manifest import (
    DecodePlacement,
    DecodeRule,
    PipelineFile,
    ProfileFile,
    StepEntry,
    StepTargets,
    Targets,
    read_pipeline,
    shipped_stages,
)
from framekiln.planning.stage_building import build_all
from framekiln.weights.lockfile import Entries, WeightsEntry

DIALECT = "https://json-schema.org/draft/2020-12/schema"
Kind = Annotated[Literal["pipeline", "profile", "models"], Argument(help="The kind of file.", metavar="KIND")]
_CLASSES: tuple[type, ...] = (
    *(PipelineFile, StepEntry, DecodeRule),
    *(ProfileFile, DecodePlacement, Placement, Targets, StepTargets),
    WeightsEntry,
)


def schema(kind: Kind, pipeline: PipelinePath = None) -> None:
    """Print the JSON schema of a pipeline file, a profile, or a file of weights (`models`).

    Settings are those of the steps of the shipped pipeline, or of the one that is named.
    """
    print(json.dumps(file_schema(kind, pipeline), indent=2, default=str))


def file_schema(kind: str, pipeline: str | None = None) -> dict[str, Any]:
    """Return the JSON schema of a kind of file: pipeline, profile or models.

    Raises:
        ConfigError: the pipeline file is missing or invalid.
    """
    if kind == "models":
        found = TypeAdapter(Entries).json_schema()
    else:
        found = _add_settings(PipelineFile if kind == "pipeline" else ProfileFile, pipeline)
    definitions = found.setdefault("$defs", {})
    for name, definition in {**definitions, found.get("title", ""): found}.items():  # titles only repeat names
        owner = next((one for one in _CLASSES if one.__name__ == name), None)
        if owner is None and "too_large" in definition.get("properties", {}):
            owner = Placement
        _add_meanings(definition, setting_meanings(owner) if owner else {})
    return {"$schema": DIALECT, **found, "title": f"Framekiln: {kind} file"}


def _add_settings(model: type[BaseModel], pipeline: str | None) -> dict[str, Any]:
    """Return a model's schema with the settings of each step, by its class in a pipeline file, by its name else."""
    entries = read_pipeline(pipeline)
    configs = {name: type(stage.config) for name, stage in build_all(entries, ProfileFile(), {}).items()}
    found = model.model_json_schema(by_alias=True)
    definitions = found["$defs"]
    settings = {name: _describe_settings(config, definitions) for name, config in configs.items()}
    if model is PipelineFile:
        by_class = {entries.steps[name].use: one for name, one in settings.items()}
        names = {use: name for name, use in shipped_stages().items()}
        definitions["StepEntry"]["allOf"] = [
            {"if": {"properties": {"use": {"enum": [use, names.get(use, use)]}}}, "then": {"properties": {"with": one}}}
            for use, one in by_class.items()
        ]
    else:
        place = found["properties"]["steps"]
        entry = place["additionalProperties"]
        place["properties"] = {
            name: {"allOf": [entry], "properties": {"with": {"anyOf": [one, {"type": "null"}]}}}
            for name, one in settings.items()
        }
    return found


def _describe_settings(config: type, definitions: dict[str, Any]) -> dict[str, Any]:
    found = TypeAdapter(config).json_schema()
    definitions |= found.pop("$defs", {})
    found.pop("title", None)
    found |= {"additionalProperties": False, "description": f"Settings of {config.__module__}."}
    return _add_meanings(found, setting_meanings(config))


def _add_meanings(definition: dict[str, Any], meanings: Mapping[str, str]) -> dict[str, Any]:
    for key, item in definition.get("properties", {}).items():
        item.pop("title", None)
        meaning = meanings.get(key) or meanings.get(f"{key}_")
        if meaning and "$ref" not in item:
            item["description"] = meaning
    return definition
