"""YAML files and settings, checked strictly against their dataclass or model.

A misspelt key that is silently ignored can waste a night on rented machines. So it is rejected, with the nearest known
key.
"""

from collections.abc import Collection, Hashable, Mapping, Sequence
from functools import lru_cache
from typing import Any, TypeVar

import yaml
from pydantic import BaseModel, ConfigDict, TypeAdapter, ValidationError

from framekiln.contract.errors import ConfigError, check_known, did_you_mean
from framekiln.contract.row_errors import DECODE

M = TypeVar("M", bound=BaseModel)
Overrides = Mapping[str, Mapping[str, Any]]
"""Values of --set by step and key."""
NOT_YAML = (yaml.YAMLError, RecursionError, ValueError)
"""Errors of reading YAML, including deep nesting and invalid dates and numbers."""
adapter_of = lru_cache(maxsize=128)(TypeAdapter)  # all stages' adapters take 40 ms to make
_UNKNOWN = ("extra_forbidden", "unexpected_keyword_argument")  # pydantic's error names for models and dataclasses


class Strict(BaseModel):
    """A frozen model that rejects unknown keys."""

    model_config = ConfigDict(extra="forbid", frozen=True, populate_by_name=True, allow_inf_nan=False)


_BOOL, _TEXT = "tag:yaml.org,2002:bool", "tag:yaml.org,2002:str"


class _UniqueKeys(yaml.SafeLoader):
    """A loader that rejects a key that is twice in one mapping; YAML would silently keep the last."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Hashable, Any]:
        """Return a mapping; keys of a merged anchor may be repeated.

        The key `on` is a word; YAML 1.1 takes it for true.
        """
        seen = set()
        for key, _ in node.value:
            if key.tag == _BOOL:
                key.tag = _TEXT
            name = key.tag, str(key.value)
            if name in seen:
                raise yaml.constructor.ConstructorError(
                    None, None, f"the key {key.value!r} is there twice", key.start_mark
                )
            seen.add(name)
        return super().construct_mapping(node, deep=deep)


def load_yaml(text: str | bytes) -> Any:
    """Return the content of a YAML text. Raises one of `NOT_YAML`: it is no YAML, or repeats a key."""
    return _UniqueKeys(text).get_single_data()


def parse(model: type[M], text: str | bytes, where: str) -> M:
    """Return a YAML text as a model.

    Raises ConfigError: it is no YAML or no mapping, or a key or value is wrong; the message names the file.
    """
    try:
        data = load_yaml(text)
    except NOT_YAML as error:
        raise ConfigError(f"{where} is not valid YAML: {_describe(error)}.", code="FK-NOT-YAML") from error
    if not isinstance(data, dict):
        raise ConfigError(f"{where} must be a YAML mapping, as the shipped one is.", code="FK-NOT-A-MAPPING")
    return model_of(model, data, where)


def _describe(error: Exception) -> str:
    if isinstance(error, yaml.MarkedYAMLError) and error.problem_mark is not None:
        return f"line {error.problem_mark.line + 1}, column {error.problem_mark.column + 1}: {error.problem}"
    return " ".join(str(error).split())


def model_of(model: type[M], data: Mapping[str, Any], where: str) -> M:
    """Return the content of a file as a model. Raises ConfigError: a key or value is wrong; the message says where."""
    try:
        return model.model_validate(data)
    except ValidationError as error:
        raise file_error(error, model, where) from error


_MEANT = {"stages": "steps"}  # name in `--stages` and the Python API


def file_error(error: ValidationError, model: type[BaseModel], where: str) -> ConfigError:
    """Return the error of a parsed file's first problem, unknown keys first: they may explain missing ones."""
    problems = error.errors(include_url=False)
    first = next((item for item in problems if item["type"] in _UNKNOWN), problems[0])
    path = [str(part) for part in first["loc"]] or ["its content"]
    if path[-1] == "[key]":  # the message has the key itself
        path = path[:-2]
    if first["type"] in _UNKNOWN:
        parents = f" in {'.'.join(path[:-1])}" if path[:-1] else ""
        known = did_you_mean(_MEANT.get(path[-1], path[-1]), _list_keys(model, path[:-1]))
        return ConfigError(f"{where}: unknown key {path[-1]!r}{parents}.{known}", code="FK-UNKNOWN-KEY")
    problem = first["msg"].removeprefix("Value error, ")
    return ConfigError(
        f"{where}: {'.'.join(path)}: {problem[0].lower()}{problem[1:]} (got {first.get('input')!r}).",
        code="FK-INVALID-VALUE",
    )


def _list_keys(model: type[BaseModel], path: list[str]) -> list[str]:
    schema = model.model_json_schema()
    place: dict[str, Any] = schema
    for name in path:
        place = place.get("properties", {}).get(name) or place.get("additionalProperties") or {}
        if "$ref" in place:
            place = schema["$defs"][place["$ref"].rpartition("/")[2]]
    return list(place.get("properties", {}))


def read_overrides(arguments: Sequence[str], steps: Collection[str]) -> Overrides:
    """Return `step.key=value` arguments by step; values are read as YAML.

    Raises ConfigError: an argument has another form, or its step is unknown.
    """
    overrides: dict[str, dict[str, Any]] = {}
    for argument in arguments:
        path, equals, text = argument.partition("=")
        step, dot, key = path.partition(".")
        if not (equals and dot and key):
            raise ConfigError(
                f"--set {argument!r} is not of the form step.key=value, as in --set flow.preset=medium.",
                code="FK-SET-FORM",
            )
        outer, inner, rest = key.partition(".")
        if inner:
            fix = f"--set '{step}.{outer}={{{rest}: {text}}}'"
            raise ConfigError(f"--set {argument!r}: {outer!r} is set as a whole; write {fix}.", code="FK-SET-FORM")
        problem = f"--set {argument!r}: the pipeline has no step {step!r}."
        check_known(step, [*steps, DECODE], problem, code="FK-UNKNOWN-STEP")
        try:
            overrides.setdefault(step, {})[key] = load_yaml(text)
        except NOT_YAML as error:
            raise ConfigError(
                f"--set {argument!r}: the value is not valid YAML; quote it.", code="FK-NOT-YAML"
            ) from error
    return overrides


def validated(kind: Any, settings: Mapping[str, Any], where: str) -> Any:
    """Return settings as an instance of a dataclass or model.

    Raises ConfigError: a key is unknown, a value is invalid, or a file that a setting names cannot be read.
    """
    try:
        return adapter_of(kind).validate_python(dict(settings))
    except OSError as error:
        raise ConfigError(f"{where}: its settings are wrong: {error}.", code="FK-INVALID-SETTING") from error
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        key = ".".join(str(part) for part in first["loc"])
        if first["type"] == "extra_forbidden":
            known = did_you_mean(key, kind.model_fields)
            raise ConfigError(f"{where}: unknown setting {key!r}.{known}", code="FK-UNKNOWN-SETTING") from error
        problem = first["msg"].removeprefix("Value error, ")
        subject = f"setting {key!r} is wrong" if key else "its settings are wrong"
        raise ConfigError(
            f"{where}: {subject}: {problem} (got {first['input']!r}).", code="FK-INVALID-SETTING"
        ) from error
