"""The two files a person writes: the pipeline says what is computed, the profile says where and how fast.

Both are parsed strictly. A misspelt key that is silently ignored costs a night on borrowed machines, so it is refused
with a guess at what was meant.
"""

from __future__ import annotations

from importlib.resources import files
from importlib.resources.abc import Traversable
from pathlib import Path
from typing import Annotated, Any, Literal, TypeVar

import yaml
from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError

from pipeline.budget import Budget
from pipeline.errors import ConfigError, did_you_mean

M = TypeVar("M", bound="Strict")


def _workers(said: Any) -> Any:
    """A number from 1, or auto: none at all would be taken for one in silence."""
    if said == "auto" or (isinstance(said, int) and not isinstance(said, bool) and said >= 1):
        return said
    raise ValueError("must be a number from 1, or auto")


def _budget(said: Any) -> Any:
    """What `Budget` reads."""
    if said is not None:
        try:
            Budget.read(str(said))
        except ConfigError:
            raise ValueError("must be a number of rows, as 100, or a share of them, as 1%") from None
    return said


Workers = Annotated[int | Literal["auto"], BeforeValidator(_workers)]
MaybeWorkers = Annotated[
    int | Literal["auto"] | None, BeforeValidator(lambda said: None if said is None else _workers(said))
]
MaxErrors = Annotated[str | int | None, BeforeValidator(_budget)]


class Strict(BaseModel):
    """A frozen model that refuses unknown keys."""

    model_config = ConfigDict(extra="forbid", frozen=True, populate_by_name=True)


class StepEntry(Strict):
    """A step of the pipeline: a stage class and its settings."""

    use: str = Field(pattern=r"^[\w.]+:\w+$")  # module:Class
    with_: dict[str, Any] = Field(default_factory=dict, alias="with")
    max_errors: MaxErrors = None  # rows it may fail on, or a share as "1%"; then the run stops


class Decode(Strict):
    """Which frames of the media are looked at; part of what is computed, so it lives in the pipeline."""

    every_nth: int = Field(1, ge=1)  # keep each n-th frame of a video
    max_frames: int | None = Field(None, ge=1)  # of one video
    max_pixels: int = Field(100_000_000, ge=1)  # refuse larger pictures by their header: 100 MP takes 300 MB decoded
    max_length: int = Field(2_500_000, ge=1)  # frames of one file that are looked at: a day at 25 fps, and some
    max_errors: MaxErrors = None  # files, or stretches of them, that may be unreadable; as of a step
    fast_mode: bool = False  # previews: every frame is first reduced to a short side of at least 360 px


class PipelineFile(Strict):
    """What is computed."""

    input: str | None = None
    output: str | None = None
    identify: Literal["time", "content"] = "time"  # how a changed file is known; by content each is read once more
    decode: Decode = Decode()
    max_errors: MaxErrors = None  # of each step that does not say its own, decoding aside
    steps: dict[str, StepEntry]
    planned: tuple[str, ...] = ()  # steps that profiles may already place though no pipeline has them yet


Precision = Literal["full", "mixed", "fp16", "bf16"]
"""Arithmetic of models: fp32; on a GPU the 16-bit type that suits a model, fp32 on the CPU; or one type anywhere."""


class PlacementEntry(Strict):
    """Where and how a step runs; what is left out comes from the profile's `defaults`, then from the stage."""

    device: Literal["cpu", "cuda"] | None = None
    cpus: float | None = Field(None, gt=0)
    gpus: float | None = Field(None, ge=0)
    workers: MaybeWorkers = None
    batch: int | None = Field(None, ge=1)
    vram_gb: float | None = Field(None, ge=0)
    precision: Precision | None = None
    compile: bool | None = None
    channels_last: bool | None = None
    pin_memory: bool | None = None
    too_large: Literal["set_aside", "cpu"] | None = None  # what becomes of a row that a GPU does not hold alone
    deadline_s: float | None = Field(None, ge=0)  # of one first-pass call, after which it counts as hanging; 0 for none
    group: str | None = Field(None, pattern=r"^[\w-]*$")  # first-pass steps of one name share one process
    chunks: dict[str, Annotated[int, Field(ge=1)]] = Field(default_factory=dict)  # prompts, faces, ... at a time


class StepPlacement(PlacementEntry):
    """One step's entry of a profile."""

    with_: dict[str, Any] = Field(default_factory=dict, alias="with")  # settings that the pipeline file leaves open


class DecodePlacement(Strict):
    """The loaders: tasks that read and decode media, and run stages without a model."""

    workers: Workers = "auto"
    cpus: float = Field(1.0, gt=0)
    deadline_s: float = Field(600.0, ge=0)  # for the next frame, after which a file counts as hanging; 0 for none


def _target(said: Any) -> Any:
    """A number, or [least, most] where either may be null."""
    ends = said if isinstance(said, list | tuple) and len(said) == 2 else (said, said)
    numbers = [end for end in ends if isinstance(end, int | float) and not isinstance(end, bool) and end >= 0]
    if not numbers or len(numbers) < sum(end is not None for end in ends):
        raise ValueError("must be a number, or [least, most] where either may be null")
    if numbers != sorted(numbers):
        raise ValueError(f"must have the least before the most, as [{numbers[1]:g}, {numbers[0]:g}]")
    return said


Target = Annotated[float | tuple[float | None, float | None], BeforeValidator(_target)]
"""What a figure is held against: a number is the least, or the most where less is better."""


class StepTargets(Strict):
    """What one step is held against."""

    rows_per_minute: Target | None = None  # in the steady state; above a range is well too
    call_p95_ms: Target | None = None  # a number is the most
    gpu_use_percent: Target | None = None  # while its calls run


class Targets(Strict):
    """What a run's figures are held against, by `framemill profile`; nothing is done differently for them."""

    gpu_use_percent: Target | None = None  # while any step's calls run on a GPU
    vram_peak_percent: Target | None = None  # of the fullest card; a number is the most
    steps: dict[str, StepTargets] = Field(default_factory=dict)


class ProfileFile(Strict):
    """Where and how fast: never what."""

    description: str = ""
    input: str | None = None
    output: str | None = None
    precision: Precision = "full"
    pin_memory: bool = False  # page-locked staging buffers: faster copies to the GPU, memory the system cannot page out
    vram_gb: float | None = Field(None, gt=0)  # what all workers on one card may take together
    waves: Literal["auto"] | tuple[tuple[str, ...], ...] = "auto"  # steps of each way over the media; auto: by vram_gb
    decode: DecodePlacement = DecodePlacement()
    defaults: PlacementEntry = PlacementEntry()
    steps: dict[str, StepPlacement] = Field(default_factory=dict)
    targets: Targets = Targets()


def shipped(*parts: str) -> Traversable:
    """A file under `manifests/`, from the checkout or the installed package alike."""
    return files("manifests").joinpath(*parts)


def read_pipeline(path: str | None) -> PipelineFile:
    """The pipeline file at a path, or the one that ships."""
    source = shipped("pipeline.yaml") if path is None else _existing(path, "pipeline file", "--pipeline")
    return _parse(PipelineFile, source.read_text(encoding="utf-8"), path or "manifests/pipeline.yaml")


def read_profile(name: str) -> ProfileFile:
    """A shipped profile by its name, or any profile by its path."""
    if name.endswith((".yaml", ".yml")):
        return _parse(ProfileFile, _existing(name, "profile", "--profile").read_text(encoding="utf-8"), name)
    source = shipped("profiles", f"{name}.yaml")
    if not source.is_file():
        raise ConfigError(
            f"There is no profile {name!r}.{did_you_mean(name, profile_names())} A path to a .yaml file works too."
        )
    return _parse(ProfileFile, source.read_text(encoding="utf-8"), f"manifests/profiles/{name}.yaml")


def profile_names() -> list[str]:
    """The profiles that ship."""
    return sorted(
        item.name.removesuffix(".yaml") for item in shipped("profiles").iterdir() if item.name.endswith(".yaml")
    )


def _existing(path: str, what: str, option: str) -> Path:
    found = Path(path).expanduser()
    if not found.is_file():
        raise ConfigError(f"There is no {what} at {path!r}; check the path given to {option}.")
    return found


def _parse(model: type[M], text: str, where: str) -> M:
    try:
        data = yaml.safe_load(text)
    except yaml.YAMLError as error:
        raise ConfigError(f"{where} is not valid YAML: {' '.join(str(error).split())}.") from error
    if not isinstance(data, dict):
        raise ConfigError(
            f"{where} must be a YAML mapping with keys such as {', '.join(list(model.model_fields)[:4])}."
        )
    try:
        return model.model_validate(data)
    except ValidationError as error:
        raise ConfigError(explain(error, model, where)) from error


def explain(error: ValidationError, model: type[BaseModel], where: str) -> str:
    """The first thing wrong with a parsed file, in one sentence."""
    found = error.errors(include_url=False)
    first = next(
        (item for item in found if item["type"] == "extra_forbidden"), found[0]
    )  # a misspelt key explains a missing one
    path = [str(part) for part in first["loc"]]
    if first["type"] == "extra_forbidden":
        known = _keys_at(model, path[:-1])
        place = f" in {'.'.join(path[:-1])}" if path[:-1] else ""
        return f"{where}: unknown key {path[-1]!r}{place}.{did_you_mean(path[-1], known)}"
    said = first["msg"].removeprefix("Value error, ")
    return f"{where}: {'.'.join(path)}: {said[0].lower()}{said[1:]} (got {first.get('input')!r})."


def _keys_at(model: type[BaseModel], path: list[str]) -> list[str]:
    """The keys that a model allows at a path of keys, looking through dicts of models."""
    for name in path:
        field = next((f for key, f in model.model_fields.items() if name in (key, f.alias)), None)
        if field is None:  # the key of a dict of models: stay
            continue
        nested = [
            a
            for a in (field.annotation, *getattr(field.annotation, "__args__", ()))
            if isinstance(a, type) and issubclass(a, BaseModel)
        ]
        if not nested:
            return []
        model = nested[0]
    return [f.alias or key for key, f in model.model_fields.items()]
