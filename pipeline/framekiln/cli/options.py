"""Options on the command line: `framekiln.api.options` in Typer's form, read into a request."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import is_dataclass
from functools import partial
from inspect import Parameter, Signature, signature
from pathlib import Path
from types import NoneType
from typing import Annotated, Any, Literal, TypeVar, get_args, get_origin, get_type_hints

from pydantic.fields import FieldInfo
from typer import Argument, Option
from typing_extensions import is_typeddict

from framekiln.api import options as declared
from framekiln.api.options import Chosen, Options, RunOptions, StepOptions, option
from framekiln.api.request import make_request
from framekiln.contract.errors import ConfigError
from framekiln.runtime.run.request import RunRequest

T = TypeVar("T")

# One option under each heading of the help; the others have none.
profiler_option = partial(Option, rich_help_panel="Instruments")
video_option = partial(Option, rich_help_panel="Video segmentation")
clip_option = partial(Option, rich_help_panel="End to end of a clip")

Profile = Annotated[str, declared.PROFILE]
PipelinePath = Annotated[str | None, declared.PIPELINE]
Stages = Annotated[str, declared.STAGES]
Settings = Annotated[list[str] | None, declared.SETTINGS]
WeightsDir = Annotated[Path | None, declared.WEIGHTS_DIR]
Address = Annotated[str | None, declared.ADDRESS]
Out = Annotated[str, Argument(help="Folder or URL of a run's output.")]
Json = Annotated[bool, Option("--json", help="Print everything as JSON.")]
Quiet = Annotated[bool, Option("--quiet", "-q", help="Print errors only.")]


def refuse_idle(options: Mapping[str, object] | Sequence[str], where: str) -> None:
    """Reject options that have no effect here. Raises ConfigError.

    `options`: names of given options, or values by name; true values are given.
    """
    given = [name for name, value in options.items() if value] if isinstance(options, Mapping) else options
    if given:
        raise ConfigError(f"{given[0]} changes nothing {where}; leave it out.", code="FK-IDLE-OPTION")


def spread(command: Callable[..., T]) -> Callable[..., T]:
    """Return a command in Typer's form.

    A parameter typed as a dataclass or TypedDict is replaced by its fields; the command gets an instance. Options
    declared for Python become Typer's.
    """
    hints: dict[str, Any] = get_type_hints(command, include_extras=True)
    groups = {name: _list_parameters(hint) for name, hint in hints.items() if is_dataclass(hint) or is_typeddict(hint)}

    def call(**values: Any) -> T:
        for name, fields in groups.items():
            values[name] = hints[name](**{field.name: values.pop(field.name) for field in fields})
        return command(**values)

    call.__name__, call.__doc__ = command.__name__, command.__doc__
    options = [option for item in _list_parameters(command) for option in groups.get(item.name, [item])]
    call.__signature__ = Signature(options)  # type: ignore[attr-defined]
    return call


def _list_parameters(target: Any) -> list[Parameter]:
    hints = get_type_hints(target, include_extras=True)
    if is_typeddict(target):
        return [_make_parameter(Parameter(name, Parameter.KEYWORD_ONLY), hint) for name, hint in hints.items()]
    return [_make_parameter(item, hints[name]) for name, item in signature(target).parameters.items()]


def _make_parameter(item: Parameter, hint: Any) -> Parameter:
    """Return a parameter with its Typer option, in a type that a shell can give."""
    item = item.replace(annotation=hint, kind=Parameter.KEYWORD_ONLY)
    told = next((one for one in getattr(hint, "__metadata__", ()) if isinstance(one, FieldInfo)), None)
    if told is None:
        return item
    shell: dict[str, Any] = {**told.json_schema_extra}  # type: ignore[dict-item]
    flags, several = shell.pop("names", (f"--{item.name.replace('_', '-')}",)), shell.pop("several", False)
    default = item.default if item.default is not item.empty else None if told.is_required() else told.default
    kind = list[str] | None if several else _choose_type(hint.__origin__)
    return item.replace(annotation=Annotated[kind, Option(*flags, help=told.description, **shell)], default=default)


def _choose_type(hint: Any) -> Any:
    """Return the type that a shell can give: numbers, flags and choices stay, all others become text."""
    parts = [hint] if get_origin(hint) in (None, Literal) else [one for one in get_args(hint) if one is not NoneType]
    plain = len(parts) == 1 and (parts[0] in (int, float, bool, Path) or get_origin(parts[0]) is Literal)
    return (parts[0] if parts == [hint] else parts[0] | None) if plain else str | None


Paths = Annotated[
    list[str] | None,
    Argument(
        metavar="PATH",
        show_default=False,
        help="Inputs, then the output: photos/ more/ out/. With --output all are inputs.",
    ),
]


class StepArguments(Chosen, StepOptions, total=False):
    """Options for some steps on some input."""


class RunArguments(Chosen, Options, total=False):
    """Options for a run."""

    output: Annotated[str | None, option("Folder or URL for tables, report and resume.", names=("--output", "-o"))]


def named_paths(
    words: Sequence[str], inputs: Sequence[str] | None, output: str | None
) -> tuple[list[str] | None, str | None]:
    """Return the inputs and the output of a command line; None if not given.

    `words` are the arguments without an option's name. A single one is an input. With `output`, all are inputs.

    >>> named_paths(["photos", "more", "out"], None, None)
    (['photos', 'more'], 'out')

    Raises ConfigError: inputs are named both ways.
    """
    if not words:
        return list(inputs) if inputs is not None else None, output
    if inputs:
        raise ConfigError(
            f"{words[0]!r} stands beside --input {inputs[0]}, so it could be an input or the output: name all paths "
            "in one way, as in `run photos more out` or `run --input photos --input more --output out`.",
            code="FK-PATHS-TWICE",
        )
    if output is not None or len(words) == 1:
        return list(words), output
    return list(words[:-1]), words[-1]


def read_request(options: Mapping[str, Any], paths: Sequence[str] | None = None) -> RunRequest:
    """Return the request for a command's options and its arguments without an option's name.

    Raises ConfigError: the pipeline file, the profile or --shard is wrong, or inputs are given in two ways.
    """
    given = {name: value for name, value in options.items() if value is not None}
    inputs, output = named_paths(paths or (), given.pop("input", None), given.pop("output", None))
    return make_request(inputs, output, kind=RunOptions, **given)
