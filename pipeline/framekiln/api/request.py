"""The request for a run or a plan, from the arguments of `framekiln.run` and of the commands."""

import io
import json
import os
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import fields
from pathlib import Path
from typing import Any

import cloudpickle

from framekiln.api.options import Input, Manifest, Options, Place, Settings, Steps, checked, split_names
from framekiln.contract.errors import ConfigError
from framekiln.contract.stage import Stage
from framekiln.planning import manifest
from framekiln.planning.plan_options import PlanOptions
from framekiln.planning.settings import NOT_YAML, load_yaml, model_of
from framekiln.profiling.tools.profilers import ProfiledCalls, ProfilerOptions
from framekiln.runtime.run.request import RunRequest

_NAMED = ("input", "output", "profile", "pipeline", "stages", "settings")  # arguments in addition to the options
INPUT, OUTPUT, ENGINE = "FRAMEKILN_INPUT", "FRAMEKILN_OUTPUT", "FRAMEKILN_ENGINE"
"""Environment variables for settings of a machine or cluster file."""


def make_request(
    input: Input,
    output: Place | None,
    *,
    profile: Manifest = "cpu-only",
    pipeline: Manifest | None = None,
    stages: Steps = None,
    settings: Settings = None,
    kind: type = Options,
    **options: Any,
) -> RunRequest:
    """Return the request for these arguments; `kind` names the known options.

    Raises ConfigError: a name, a file or a value is wrong.
    """
    _check_rows(options.get("rows"))
    given = checked(kind, {**options, "engine": options.get("engine") or os.environ.get(ENGINE)}, also=_NAMED)
    pipeline_file, steps = with_steps(pipeline_of(pipeline), stages)
    if isinstance(profile, Mapping):
        profile_file, profile_name = model_of(manifest.ProfileFile, profile, "profile"), "given in Python"
    else:
        profile_name = _check_text("profile", profile)
        profile_file = manifest.read_profile(profile_name)
    inputs = _choose_inputs(input, os.environ.get(INPUT), profile_file.input, pipeline_file.input)
    outputs = (_read_text(output), os.environ.get(OUTPUT) or None, profile_file.output, pipeline_file.output)
    return RunRequest(
        inputs=tuple(inputs),
        output=next((path for path in outputs if path is not None), ""),
        pipeline=pipeline_file,
        profile=profile_file,
        profile_name=profile_name,
        options=_make_plan_options(steps, settings, given),
        **{name: given[name] for name in ("limit", "preview")},
        shard=_read_shard(given["shard"]),
        by_content=given["by_content"] or pipeline_file.identify == "content",
        engine=given["engine"],
        address=given["address"] if given["engine"] == "local" else cluster_address(given["address"]),
        profilers=_read_profilers(given),
    )


def cluster_address(option: str | None) -> str | None:
    """Return the address of the cluster to join, from the option or the environment; None: no cluster."""
    return option or os.environ.get("RAY_ADDRESS")


def pipeline_of(pipeline: Manifest | None) -> manifest.PipelineFile:
    """Read a pipeline file, by default the shipped one. Raises ConfigError: the file is missing or wrong."""
    if isinstance(pipeline, Mapping):
        return model_of(manifest.PipelineFile, pipeline, "pipeline")
    return manifest.read_pipeline(_read_text(pipeline))


def _make_plan_options(steps: tuple[str, ...], settings: Settings, given: Mapping[str, Any]) -> PlanOptions:
    texts = [settings] if isinstance(settings, str) else list(settings or ())
    if isinstance(settings, Mapping):
        texts = [*_write_settings(settings)]
    if given["identities_from"]:
        texts.append(f"identities.known={os.fspath(given['identities_from'])}")
    decode = {name: given[name] for name in ("every_nth", "max_frames", "max_pixels", "fast_mode")}
    return PlanOptions(
        stages=steps,
        settings=tuple(texts),
        weights_dir=_read_path(given["weights_dir"]),
        calibration=_read_path(given["calibration"]),
        max_errors=None if given["max_errors"] is None else str(given["max_errors"]),
        decode={name: value for name, value in decode.items() if value},
        **{name: given[name] for name in ("device", "missing_weights", "accept_license", "vram_cap")},
        rows=_read_text(given["rows"]),
    )


def _write_settings(settings: Mapping[str, Any]) -> Iterator[str]:
    for step, keys in settings.items():
        if not isinstance(keys, Mapping):
            problem = f"settings: {step!r} is not followed by settings; write them as {{'flow': {{'preset': 'fast'}}}}."
            raise ConfigError(problem, code="FK-INVALID-SETTING")
        for key, value in keys.items():
            try:
                yield f"{step}.{key}={_write_yaml(value)}"
            except TypeError:
                problem = f"settings: {step}.{key} is {value!r}; give numbers, texts, lists or mappings."
                raise ConfigError(problem, code="FK-INVALID-SETTING") from None


def _write_yaml(value: Any) -> str:
    with suppress(*NOT_YAML):
        if isinstance(value, str) and load_yaml(value) == value:
            return value
    return json.dumps(value, default=lambda item: item.tolist() if hasattr(item, "tolist") else os.fspath(item))


def _read_profilers(given: Mapping[str, Any]) -> ProfilerOptions:
    calls = {
        name: ProfiledCalls.parse(f"--{name.replace('_', '-')}", given[name])
        for name in ("torch_profiler", "memory_timeline")
        if given.get(name)
    }
    nsight = given.get("nsight") or ()
    steps = nsight.split(",") if isinstance(nsight, str) else nsight
    names = tuple(step.strip() for step in steps if step.strip())
    return ProfilerOptions(**calls, nvtx=bool(given.get("nvtx")), nsight=names, py_spy=given.get("py_spy") or "")


def _choose_inputs(*places: Input) -> list[str]:
    """Return the inputs of the first source that has any: arguments, environment, profile, pipeline file."""
    texts: list[str] = next(filter(None, map(input_texts, places)), [])
    if "" in texts:
        raise ConfigError("--input is empty: give a folder, a file, a list or a URL.", code="FK-NO-INPUT")
    return texts


def input_texts(given: Input) -> list[str]:
    """Return inputs as texts. Raises ConfigError if one is no path."""
    if given is None or (isinstance(given, str) and not given):
        return []
    several: Iterable[Any] = [given] if isinstance(given, str) or not isinstance(given, Iterable) else given
    return [_check_text("input", each) for each in several]


def _read_text(place: Place | None) -> str | None:
    return None if place is None else _check_text("path", place)


def _check_text(what: str, place: Any) -> str:
    if isinstance(place, str | os.PathLike):
        return os.fspath(place)
    raise ConfigError(f"{what}: {place!r} is neither a path nor a URL.", code="FK-INVALID-SETTING")


def _check_rows(rows: Any) -> None:
    if not isinstance(rows, str | os.PathLike | None):
        message = "rows is a name or a file; save a selection by .save(NAME), a table by .to_parquet(FILE)."
        raise ConfigError(message, code="FK-INVALID-SETTING")


def _read_path(place: Place | None) -> Path | None:
    return None if place is None else Path(place)


def _read_shard(shard: str | tuple[int, int] | None) -> tuple[int, int] | None:
    if shard is None:
        return None
    text = shard if isinstance(shard, str) else "/".join(map(str, shard))
    number, _, count = text.partition("/")
    if not (number.isdecimal() and count.isdecimal() and 1 <= int(number) <= int(count)):
        problem = f"--shard {text!r} is not of the form I/N with I from 1 to N, as in --shard 2/8."
        raise ConfigError(problem, code="FK-BAD-SHARD")
    return int(number) - 1, int(count)


def with_steps(pipeline: manifest.PipelineFile, steps: Steps) -> tuple[manifest.PipelineFile, tuple[str, ...]]:
    """Return the pipeline extended by the given stages, and the names of all chosen steps; empty: all.

    Raises ConfigError: an item is no stage, or another stage has the step's name.
    """
    if isinstance(steps, Sequence | Mapping) and not (steps or isinstance(steps, str)):
        raise ConfigError("stages is empty: name a step, or leave it out for all.", code="FK-UNKNOWN-STEP")
    entries, names = dict(pipeline.steps), list[str]()
    alone = () if steps is None else (steps,)
    for item in steps if isinstance(steps, Sequence) and not isinstance(steps, str) else alone:
        if isinstance(item, str):
            names += split_names(item)
            continue
        pairs = item.items() if isinstance(item, Mapping) else [(step_name(item), item)]
        for name, stage in pairs:
            _add(entries, name, stage)
            names.append(name)
    if steps and not names:
        raise ConfigError(f"stages {steps!r} names no step; name one, or leave it out for all.", code="FK-UNKNOWN-STEP")
    return pipeline.model_copy(update={"steps": entries}), tuple(dict.fromkeys(names))


def step_name(stage: Any) -> str:
    """Return the name of a stage's step: its class name in lower case, with `_` before inner capitals.

    >>> class KeyLight(Stage): ...
    >>> step_name(KeyLight)
    'key_light'
    """
    kind = stage if isinstance(stage, type) else type(stage)
    return re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", kind.__name__).lower()


def _add(entries: dict[str, manifest.StepEntry], name: str, stage: Any) -> None:
    kind = stage if isinstance(stage, type) else type(stage)
    if not issubclass(kind, Stage):
        raise ConfigError(
            f"stages: {getattr(stage, '__name__', repr(stage))} is neither the name of a step nor a stage; put "
            "@framekiln.stage(...) above a function.",
            code="FK-NOT-A-STAGE",
        )
    _check_travels(name, stage)
    try:
        manifest.check_step_name(name)
    except ValueError as error:
        raise ConfigError(f"stages: {error}.", code="FK-INVALID-VALUE") from None
    settings = {} if stage is kind else {item.name: getattr(stage.config, item.name) for item in fields(stage.config)}
    entry, other = manifest.StepEntry.of(kind, settings), entries.get(name)
    if other is not None and (other.use, other.given or kind) != (entry.use, kind):
        raise ConfigError(
            f"stages: there is another step {name!r} already, of {other.use}; name yours by a dict: "
            f"{{'my_{name}': {kind.__name__}}}.",
            code="FK-STEP-TWICE",
        )
    if other is None or stage is not kind:  # the pipeline file's settings stay for its own classes
        entries[name] = entry


def _check_travels(name: str, stage: Any) -> None:
    """Raises ConfigError if a stage cannot be sent to the processes that call it."""
    try:
        cloudpickle.Pickler(_Nowhere()).dump(stage)
    except Exception as error:  # whatever a class raises that cannot be pickled
        raise ConfigError(
            f"stages: {name!r} cannot be sent to other processes ({error}); make what it uses inside of the function, "
            "or in the setup of a stage class.",
            code="FK-STAGE-PICKLE",
        ) from error


class _Nowhere(io.RawIOBase):
    """A file that keeps nothing: a stage may hold gigabytes."""

    def write(self, data: Any) -> int:
        return memoryview(data).nbytes
