"""The two files of a user: the pipeline file (what is computed) and the profile (where and how fast)."""

import importlib
import re
from collections.abc import Mapping
from dataclasses import fields
from typing import Annotated, Any, Literal, Optional, Self, get_type_hints

from pydantic import AfterValidator, BeforeValidator, ConfigDict, Field, GetCoreSchemaHandler, PrivateAttr, with_config
from pydantic_core import CoreSchema
from typing_extensions import TypedDict

from framekiln.contract.errors import ConfigError, did_you_mean
from framekiln.contract.placement import Placement, Precision
from framekiln.contract.row_errors import DECODE
from framekiln.contract.shipped_files import shipped
from framekiln.contract.stage import Stage
from framekiln.contract.user_files import expand, read_small
from framekiln.media.network import Network
from framekiln.planning.condition import FrameRule
from framekiln.planning.error_budget import Budget
from framekiln.planning.limits import run_targets
from framekiln.planning.settings import Strict, parse
from framekiln.weights.lockfile import Entries


def _check_workers(value: Any) -> Any:
    """Check a number of workers. 0 is rejected: the plan would take it for auto."""
    if value == "auto" or (isinstance(value, int) and not isinstance(value, bool) and value >= 1):
        return value
    raise ValueError("must be a number from 1, or auto")


def _check_budget(value: Any) -> Any:
    if value is not None:
        try:
            Budget.read(str(value))
        except ConfigError:
            raise ValueError("must be a number of rows, as 100, or a share of them, as 1%") from None
    return value


def _add_module(use: str) -> str:
    if ":" in use:
        return use
    names: Mapping[str, str] = importlib.import_module("framekiln_stages").STAGES  # `module:Class` by short name
    if use not in names:
        known = did_you_mean(use, names)
        raise ValueError(f"no shipped stage has this name; write your own as module:Class.{known}")
    return names[use]


Workers = Annotated[Annotated[int, Field(ge=1)] | Literal["auto"], BeforeValidator(_check_workers)]
MaxErrors = Annotated[str | int | None, BeforeValidator(_check_budget)]


class StepEntry(Strict):
    """A step of the pipeline: a stage class and its settings."""

    use: Annotated[str, AfterValidator(_add_module)] = Field(pattern=r"^[\w.]+(:\w+)?$")  # a shipped stage's name,
    # or module:Class
    with_: dict[str, Any] = Field(default_factory=dict, alias="with")
    on: FrameRule | None = None  # the frames that it computes, by their position: {per_second: 1}
    where: str | None = None  # the rows that it computes: an SQL expression over columns and tables of earlier steps
    max_errors: MaxErrors = None  # rows it may fail on, or a share ("1%"); more stop the run
    _given: type[Stage] | None = PrivateAttr(default=None)

    @classmethod
    def of(cls, kind: type[Stage], settings: Mapping[str, Any]) -> Self:
        """Return the step of a class given in Python, which may lie in a notebook and not be importable.

        Only `use` is stored, so another process finds the class if that is importable.
        """
        entry = cls(use=f"{kind.__module__}:{kind.__name__}", with_=dict(settings))
        entry._given = kind
        return entry

    @property
    def given(self) -> type[Stage] | None:
        """The class itself; None for a step read from a file."""
        return self._given


class DecodeRule(Strict):
    """The rule that says which frames of the media are decoded. It decides results, so the pipeline file holds it."""

    every_nth: int = Field(1, ge=1)  # keep each n-th frame of a video
    max_frames: int | None = Field(None, ge=1)  # of one video
    max_pixels: int = Field(100_000_000, ge=1)  # reject larger images by their header: 100 MP takes 300 MB decoded
    max_length: int = Field(2_500_000, ge=1)  # frames of one file: a little more than a day at 25 fps
    max_errors: MaxErrors = None  # unreadable files or parts of files; as for a step
    fast_mode: bool = False  # previews: first reduce every frame to a short side of at least 360 px


NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_-]{0,63}")  # of a step or a table: used in columns, folders and commands


def check_step_name(name: str) -> str:
    """Return the name of a step. Raises ValueError: it is no valid name, or is reserved for decoding."""
    if name == DECODE:
        raise ValueError(f"{name!r} stands for decoding; choose another name for the step")
    if not NAME.fullmatch(name):
        raise ValueError(f"{name!r} is no valid step name; use 1 to 64 letters, digits, _ and -, a letter or _ first")
    return name


class PipelineFile(Strict):
    """A pipeline file: what is computed."""

    input: str | list[str] | None = None
    output: str | None = None
    identify: Literal["time", "content"] = "time"  # how changed files are detected; content: each is read once more
    decode: DecodeRule = DecodeRule()
    max_errors: MaxErrors = None  # for each step without its own, except decoding
    steps: dict[Annotated[str, AfterValidator(check_step_name)], StepEntry]
    models: Entries = Field(default_factory=dict)  # weights of its stages


class _PlacementKeys:
    """Validates a mapping as fields of `Placement`, each by its type there; rejects other keys.

    `workers` may be auto. null keeps the stage's own value.
    """

    def __init__(self, **others: Any) -> None:
        self._hints = {**get_type_hints(Placement, include_extras=True), "workers": Workers, **others}

    def __get_pydantic_core_schema__(self, _: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        keys = {name: Optional[hint] for name, hint in self._hints.items()}  # noqa: UP045 - a type held in a variable
        kind: Any = TypedDict("PlacementKeys", keys, total=False)  # type: ignore[misc]
        return handler.generate_schema(with_config(ConfigDict(extra="forbid"))(kind))


PlacementSettings = Annotated[dict[str, Any], _PlacementKeys()]
"""Fields of `Placement`; missing ones come from the profile's `defaults`, then from the stage."""
StepPlacement = Annotated[dict[str, Any], _PlacementKeys(**{"with": dict[str, Any]})]
"""One step's entry of a profile; `with`: settings that the pipeline file leaves open."""
PLACEMENT_KEYS = frozenset(item.name for item in fields(Placement))
STEP_KEYS = PLACEMENT_KEYS | {"on", "where"}
"""Keys of a step beside its settings: where it runs, and which rows it computes."""


class DecodePlacement(Strict):
    """The placement of decode workers: tasks that decode media, and run stages without a model."""

    workers: Workers = "auto"
    cpus: float = Field(1.0, gt=0)
    timeout_s: float = Field(600.0, ge=0)  # timeout for the next frame of a file; 0 for none


def _check_target(text: str) -> str:
    try:
        run_targets([text])
    except ConfigError as error:
        raise ValueError(str(error)) from error
    return text


class ProfileFile(Strict):
    """A profile: where a run computes and how fast, but never what."""

    description: str = ""
    input: str | list[str] | None = None
    output: str | None = None
    precision: Precision = "fp32"
    pin_memory: bool = False  # page-locked staging buffers: faster copies to the GPU; the system cannot page them out
    gpu_vram_gb: float | None = Field(None, gt=0, alias="vram_gb")  # for all workers on one GPU together
    waves: Literal["auto"] | tuple[tuple[str, ...], ...] = "auto"  # steps of each wave; auto: by vram_gb
    decode: DecodePlacement = DecodePlacement()
    defaults: PlacementSettings = Field(default_factory=dict)
    steps: dict[str, StepPlacement] = Field(default_factory=dict)
    targets: tuple[Annotated[str, AfterValidator(_check_target)], ...] = ()  # as in `framekiln profile --target`
    network: Network = Network()  # timeouts and request limits for buckets and web servers


def read_pipeline(path: str | None) -> PipelineFile:
    """Read the pipeline file at a path, or the shipped one. Raises ConfigError: the file is missing or invalid."""
    text = shipped("pipeline.yaml").read_bytes() if path is None else read_named(path, "pipeline file", "--pipeline")
    pipeline = parse(PipelineFile, text, path or "manifests/pipeline.yaml")
    models = {name: entry.model_copy(update={"listed_in": path}) for name, entry in pipeline.models.items()}
    return pipeline.model_copy(update={"models": models})


def read_profile(name: str) -> ProfileFile:
    """Read a shipped profile by its name, or any profile by its path.

    Raises ConfigError: the file is missing or invalid.
    """
    if name.endswith((".yaml", ".yml")):
        return parse(ProfileFile, read_named(name, "profile", "--profile"), name)
    source = shipped("profiles", f"{name}.yaml")
    if not source.is_file():
        raise ConfigError(
            f"There is no profile {name!r}.{did_you_mean(name, profile_names())} A path to a .yaml file works too.",
            code="FK-UNKNOWN-PROFILE",
        )
    return parse(ProfileFile, source.read_text(encoding="utf-8"), f"manifests/profiles/{name}.yaml")


def profile_names() -> list[str]:
    """Return the names of the shipped profiles."""
    return sorted(
        item.name.removesuffix(".yaml") for item in shipped("profiles").iterdir() if item.name.endswith(".yaml")
    )


def read_named(path: str, kind: str, option: str) -> bytes:
    """Read a file given by an option. Raises ConfigError: it is missing or unreadable."""
    place = expand(path)
    try:
        if place.is_file():
            return read_small(place)
        problem = f"There is no {kind} at {path!r}"
    except OSError as error:
        problem = f"The {kind} {path!r} cannot be read ({error.strerror})"
    raise ConfigError(f"{problem}; check the path given to {option}.", code="FK-NO-SUCH-FILE")
