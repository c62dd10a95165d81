"""The steps that Python code chooses for a run: names of the pipeline's, stages, and functions."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import fields
from typing import Any

from framekiln.contract.errors import ConfigError
from framekiln.contract.stage import Stage
from framekiln.planning.manifest import PipelineFile, StepEntry, check_step_name

Given = type[Stage] | Stage
"""A stage class, one of its instances with its settings, or a function under `framekiln.stage`."""
Steps = str | Given | Sequence[str | Given | Mapping[str, Given]] | Mapping[str, Given] | None
"""Names of steps as a list or as "a,b", and stages; a mapping names the steps of stages. None: all of the pipeline."""


def with_steps(pipeline: PipelineFile, steps: Steps) -> tuple[PipelineFile, tuple[str, ...]]:
    """Return the pipeline with the stages that are given, and the names of all chosen steps; none for all.

    Raises:
        ConfigError: something else is given, or a step's name is taken by another stage.
    """
    if isinstance(steps, Sequence | Mapping) and not (steps or isinstance(steps, str)):
        raise ConfigError("stages is empty: name a step, or leave it out for all.", code="FK-UNKNOWN-STEP")
    entries, names = dict(pipeline.steps), list[str]()
    for item in _list_items(steps):
        if isinstance(item, str):
            names += [name.strip() for name in item.split(",") if name.strip()]
            continue
        pairs = item.items() if isinstance(item, Mapping) else [(step_name(item), item)]
        for name, stage in pairs:
            _add(entries, name, stage)
            names.append(name)
    return pipeline.model_copy(update={"steps": entries}), tuple(dict.fromkeys(names))


def _list_items(steps: Steps) -> Sequence[str | Given | Mapping[str, Given]]:
    if steps is None:
        return ()
    return steps if isinstance(steps, Sequence) and not isinstance(steps, str) else (steps,)


def step_name(stage: Any) -> str:
    """Return the name of a stage's step: that of its class in lower case, with `_` before its capitals.

    >>> class KeyLight(Stage): ...
    >>> step_name(KeyLight)
    'key_light'
    """
    kind = stage if isinstance(stage, type) else type(stage)
    return re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", kind.__name__).lower()


def _add(entries: dict[str, StepEntry], name: str, stage: Any) -> None:
    kind = stage if isinstance(stage, type) else type(stage)
    if not issubclass(kind, Stage):
        raise ConfigError(
            f"stages: {getattr(stage, '__name__', repr(stage))} is neither the name of a step nor a stage; put "
            "@framekiln.stage(...) above a function.",
            code="FK-NOT-A-STAGE",
        )
    try:
        check_step_name(name)
    except ValueError as error:
        raise ConfigError(f"stages: {error}.", code="FK-INVALID-VALUE") from None
    settings = {} if stage is kind else {item.name: getattr(stage.config, item.name) for item in fields(stage.config)}
    entry, other = StepEntry.of(kind, settings), entries.get(name)
    if other is not None and (other.use, other.given or kind) != (entry.use, kind):
        raise ConfigError(
            f"stages: there is another step {name!r} already, of {other.use}; name yours by a dict: "
            f"{{'my_{name}': {kind.__name__}}}.",
            code="FK-STEP-TWICE",
        )
    if other is None or stage is not kind:  # a class that the pipeline file names keeps the file's settings
        entries[name] = entry
