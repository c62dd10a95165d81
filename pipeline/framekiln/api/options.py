"""The options of `framekiln.run`, `plan` and `bench`, each declared once for Python and the command line.

A declaration holds an option's meaning, default and minimum, and its form on the command line. None stands for the
default.
"""

import inspect
import os
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from inspect import Parameter
from pathlib import Path
from typing import Annotated, Any, Literal, TypeVar, get_type_hints

from pydantic import Field
from pydantic.fields import FieldInfo
from typing_extensions import TypedDict

from framekiln.contract.errors import check_known
from framekiln.contract.stage import Stage
from framekiln.planning.plan_options import Policy
from framekiln.planning.settings import validated

F = TypeVar("F", bound=Callable[..., Any])
Place = str | os.PathLike[str]
"""A path on a disk or a URL."""
Input = Place | Sequence[Place] | None
"""A folder, a glob, a file, a list of files, or a URL; or several. None: from environment, profile or pipeline file."""
Manifest = Place | Mapping[str, Any]
"""A profile or a pipeline: a path, or the content of such a file. For a profile also the name of a shipped one."""
Given = type[Stage] | Stage
"""A stage class, one of its instances with its settings, or a function under `framekiln.stage`."""
Steps = str | Given | Sequence[str | Given | Mapping[str, Given]] | Mapping[str, Given] | None
"""Steps by name (a list or "a,b"), or stages; a mapping names the stages' steps. None: the whole pipeline."""
Settings = Mapping[str, Mapping[str, Any]] | str | Sequence[str] | None
"""Settings by step and name, as in `{"flow": {"preset": "fast"}}`; or texts, as in `["flow.preset=fast"]`."""


def option(meaning: str, default: Any = None, *, least: float | None = None, **shell: Any) -> Any:
    """Declare an option; `shell` holds arguments of typer's Option: `names`, `metavar`, `rich_help_panel`, `envvar`.

    `several=True` declares an option that a command line may repeat.
    """
    value = {} if default is None else {"default": default}
    return Field(description=meaning, ge=least, json_schema_extra={**shell, "min": least}, **value)


_files, machine_option, _instrument = (
    partial(option, rich_help_panel=panel) for panel in ("Which files and frames", "On which machine", "Instruments")
)

PROFILE = option("Where steps run, and how fast: a shipped name or a YAML file.", "cpu-only", names=("--profile", "-p"))
PIPELINE = option("What is computed: a YAML file instead of the shipped one.")
STAGES = option("Only these steps (a,b,c) and the steps that they read. [dim]Default: all.[/dim]")
SETTINGS = option("A setting of a step; may be repeated.", names=("--set",), metavar="STEP.KEY=VALUE", several=True)
WEIGHTS_DIR = option("Folder with weights, recognised by name and hash.", metavar="<path>")
ADDRESS = machine_option("Ray cluster to join: auto, or host:port. [dim]Default: none.[/dim]")


class Chosen(TypedDict, total=False):
    """Steps, their settings and their files; in Python these are separate arguments."""

    input: Annotated[
        Input,
        option(
            "Folder, glob, file list (text or Parquet), or s3:// gs:// URL. May be repeated.",
            names=("--input", "-i"),
            several=True,
        ),
    ]
    profile: Annotated[Manifest, PROFILE]
    pipeline: Annotated[Manifest | None, PIPELINE]
    stages: Annotated[Steps, STAGES]
    settings: Annotated[Settings, SETTINGS]


class StepOptions(TypedDict, total=False):
    """Options for steps, wherever they run."""

    device: Annotated[Literal["cpu", "cuda"] | None, machine_option("Device of all steps that can use it.")]
    weights_dir: Annotated[Place | None, WEIGHTS_DIR]
    missing_weights: Annotated[
        Policy,
        option(
            "Steps without their weights: end the run, leave them out, or use random weights, for benchmarks, where a "
            "step supports it.",
            "fail",
        ),
    ]
    accept_license: Annotated[bool, option("Use weights with restricted licences, e.g. non-commercial ones.", False)]


class Options(StepOptions, total=False):
    """Further options of a plan and a run."""

    identities_from: Annotated[Place | None, option("Earlier output: its identities keep their number.", metavar="OUT")]
    rows: Annotated[
        Place | None,
        option(
            "Compute only the rows of a saved selection, or of a Parquet file with media_id and frame_index, "
            "in steps that do not have all rows yet.",
            metavar="NAME|FILE",
        ),
    ]
    limit: Annotated[int | None, _files("Only the first N files.", least=1)]
    preview: Annotated[
        int | None,
        _files("Compute only N files, spread over folders, types and sizes, then estimate all files.", least=1),
    ]
    every_nth: Annotated[int | None, _files("Keep every N-th frame of a video.", least=1)]
    max_frames: Annotated[int | None, _files("At most N frames of a video.", least=1)]
    max_pixels: Annotated[int | None, _files("Reject larger images. [dim]Default: 100 MP.[/dim]", least=1)]
    max_errors: Annotated[
        int | str | None,
        option("Stop when a step, or decoding, fails on more rows than this, e.g. 100 or 1%.", metavar="N|N%"),
    ]
    vram_cap: Annotated[
        float | None,
        machine_option(
            "Plan as if each GPU had only this much memory, for all workers together.", least=0.1, metavar="GB"
        ),
    ]
    calibration: Annotated[
        Place | None,
        machine_option(
            "File of framekiln calibrate. [dim]Default: this machine's, if calibrated.[/dim]", metavar="<path>"
        ),
    ]
    shard: Annotated[str | tuple[int, int] | None, _files("Only the I-th of N shares of files, from 1.", metavar="I/N")]
    fast_mode: Annotated[bool, _files("Previews: every frame, reduced to a short side of at least 360 px.", False)]
    by_content: Annotated[
        bool,
        _files(
            "Detect changed files by content instead of size and time: each is read once more. For copied "
            "or synchronised collections.",
            False,
        ),
    ]
    engine: Annotated[
        Literal["auto", "local", "ray"] | None,
        machine_option(
            "Owner of the worker processes. [dim]auto: local for little work without a GPU, else ray.[/dim]",
            "auto",
            envvar="FRAMEKILN_ENGINE",
        ),
    ]
    address: Annotated[str | None, ADDRESS]


class Instruments(TypedDict, total=False):
    """Profilers and live figures of a run."""

    tensorboard: Annotated[Place | None, _instrument("Write live figures for TensorBoard to a folder.", metavar="DIR")]
    torch_profiler: Annotated[
        str | None,
        _instrument(
            "Record N calls of a step with torch's profiler. [dim]Default: 5 calls, after the first.[/dim]",
            metavar="STEP[:N]",
        ),
    ]
    memory_timeline: Annotated[
        str | None, _instrument("Record torch's memory over N calls of a step.", metavar="STEP[:N]")
    ]
    nvtx: Annotated[bool, _instrument("Mark calls and phases on GPUs for NVIDIA's Nsight Systems.", False)]
    nsight: Annotated[
        str | Sequence[str], _instrument("Start the processes of these steps under nsys.", "", metavar="STEP[,STEP]")
    ]
    py_spy: Annotated[str, _instrument("Draw a flame graph of Python code in a step's processes.", "", metavar="STEP")]


class RunOptions(Options, Instruments, total=False):
    """Further options of a run."""


class PredictOptions(TypedDict, total=False):
    """The GPUs, the collection and the prices of a prediction."""

    gpus: Annotated[str, option("GPUs of manifests/gpus.yaml. Default: all.", "", names=("--for",), metavar="GPU,GPU")]
    input: Annotated[
        Input, option("Media to estimate. Default: those of the run.", names=("--input", "-i"), several=True)
    ]
    rows: Annotated[float | None, option("Rows in place of an input: photos, and frames read of films.", metavar="N")]
    per_row: Annotated[str, option("Faces, masks, ... of a row in place of the run's.", "", metavar="KIND=N,...")]
    cores: Annotated[float | None, option("Cores beside the GPU. Default: this machine's.")]
    prices: Annotated[str, option("Hourly price of a machine with it, in any currency.", "", metavar="GPU=PRICE,...")]
    price_per_kwh: Annotated[float | None, option("Price of electricity, in the same currency.")]
    calibration: Annotated[
        Path | None, option("A calibration of any GPU, which corrects the estimates.", metavar="FILE")
    ]
    specs: Annotated[
        Path | None, option("GPUs instead of those of manifests/gpus.yaml.", names=("--gpus",), metavar="FILE")
    ]


def split_names(text: str | None) -> tuple[str, ...]:
    """Return the names in `a,b,c`."""
    return tuple(name.strip() for name in (text or "").split(",") if name.strip())


def declarations(kind: type) -> dict[str, tuple[Any, FieldInfo]]:
    """Return the type and the declaration of each option of a kind, by name."""
    hints = get_type_hints(kind, include_extras=True)
    return {name: (hint.__origin__, hint.__metadata__[0]) for name, hint in hints.items()}


def defaults(kind: type) -> dict[str, Any]:
    """Return the default of each option of a kind."""
    return {name: None if told.is_required() else told.default for name, (_, told) in declarations(kind).items()}


def checked(kind: type, options: Mapping[str, Any], also: Sequence[str] = ()) -> dict[str, Any]:
    """Return all options of a kind; an option that was not given has its default.

    The message about an unknown name also suggests names in `also`.

    Raises ConfigError: a name is unknown, or a value is invalid.
    """
    known = defaults(kind)
    for name in options:
        check_known(name, [*also, *known], f"There is no option {name!r}.", code="FK-UNKNOWN-OPTION")
    given = {name: value for name, value in options.items() if value is not None}
    return known | dict(validated(kind, given, "options"))


def shows(kind: type) -> Callable[[F], F]:
    """Let `help` and notebooks list the options of a function with `**options`."""

    def with_signature(function: F) -> F:
        signature = inspect.signature(function)
        own = [item for item in signature.parameters.values() if item.kind is not Parameter.VAR_KEYWORD]
        values = defaults(kind)
        more = [
            Parameter(name, Parameter.KEYWORD_ONLY, default=values[name], annotation=hint)
            for name, (hint, _) in declarations(kind).items()
        ]
        function.__signature__ = signature.replace(parameters=[*own, *more])  # type: ignore[attr-defined]
        return function

    return with_signature
