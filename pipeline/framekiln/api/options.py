"""The options that `framekiln.run` and `framekiln.plan` share with their commands, under the same names."""

import inspect
import os
from collections.abc import Callable, Mapping, Sequence
from inspect import Parameter
from typing import Annotated, Any, Literal, TypeVar, get_type_hints

from pydantic import Field
from typing_extensions import TypedDict

from framekiln.contract.errors import check_known
from framekiln.planning.plan_options import Policy
from framekiln.planning.settings import validated

F = TypeVar("F", bound=Callable[..., Any])
Place = str | os.PathLike[str]
"""A path on a disk or a URL."""
_Count = Annotated[int, Field(ge=1)] | None


class Options(TypedDict, total=False):
    """Further options of a plan and a run; None stands for the default."""

    missing_weights: Policy  # "fail": raise; "skip": leave these steps out; "dummy": random weights, for benchmarks
    accept_license: bool  # use weights with a restricted licence, e.g. for non-commercial use only
    weights_dir: Place | None  # folder with weights, recognised by name and hash
    device: str | None  # "cpu" or "cuda" for all steps that can
    identities_from: Place | None  # another output; its identities keep their numbers
    limit: _Count  # only the first files
    every_nth: _Count  # keep every n-th frame of a video
    max_frames: _Count  # of a video
    max_pixels: _Count  # refuse larger images; 100 million by default
    max_errors: int | str | None  # stop when a step, or decoding, fails on more rows: 100 or "1%"
    shard: str | tuple[int, int] | None  # only the I-th of N shares of the files, from 1: "2/8" or (2, 8)
    fast_mode: bool  # previews: every frame reduced to a short side of 360 px or a little more
    by_content: bool  # detect changed files by content instead of size and time
    vram_cap: Annotated[float, Field(ge=0.1)] | None  # GB; plan as if each GPU had no more memory
    calibration: Place | None  # file of `framekiln calibrate`; this machine's own by default
    engine: Literal["auto", "local", "ray"] | None  # owner of the processes; auto: local for little work without a GPU
    address: str | None  # Ray cluster to join: "auto", or "host:port"


class RunOptions(Options, total=False):
    """Further options of a run; None stands for the default."""

    tensorboard: Place | None  # folder for live figures
    torch_profiler: str | None  # "STEP" or "STEP:CALLS": record calls with torch's profiler
    memory_timeline: str | None  # "STEP" or "STEP:CALLS": record torch's memory
    nvtx: bool  # mark calls and phases on GPUs for NVIDIA's Nsight Systems
    nsight: str | Sequence[str]  # start the processes of these steps under nsys
    py_spy: str  # a step: draw a flame graph of the Python code in its processes


_DEFAULTS: Mapping[str, Any] = {
    **dict.fromkeys(("accept_license", "fast_mode", "by_content", "nvtx"), False),
    **dict.fromkeys(("nsight", "py_spy"), ""),
    "missing_weights": "fail",
}


def checked(
    kind: type, options: Mapping[str, Any], defaults: Mapping[str, Any] = _DEFAULTS, also: Sequence[str] = ()
) -> dict[str, Any]:
    """Return all options of a kind, with defaults for those that were not given.

    The message on an unknown name proposes the names in `also` too.

    Raises:
        ConfigError: a name is unknown, or a value is invalid.
    """
    names = get_type_hints(kind)
    for name in options:
        check_known(name, [*also, *names], f"There is no option {name!r}.", code="FK-UNKNOWN-OPTION")
    given = {name: value for name, value in options.items() if value is not None}
    return dict.fromkeys(names) | dict(defaults) | dict(validated(kind, given, "options"))


def shows(kind: type, defaults: Mapping[str, Any] = _DEFAULTS) -> Callable[[F], F]:
    """Let `help` and notebooks list the options of a function that takes them as `**options`."""

    def with_signature(function: F) -> F:
        signature = inspect.signature(function)
        own = [item for item in signature.parameters.values() if item.kind is not Parameter.VAR_KEYWORD]
        more = [
            Parameter(name, Parameter.KEYWORD_ONLY, default=defaults.get(name), annotation=hint)
            for name, hint in get_type_hints(kind).items()
        ]
        function.__signature__ = signature.replace(parameters=[*own, *more])  # type: ignore[attr-defined]
        return function

    return with_signature
