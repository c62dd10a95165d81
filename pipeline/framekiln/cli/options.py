"""Options shared by several commands: one name, one meaning and one help text for each."""

from collections.abc import Callable
from dataclasses import is_dataclass
from functools import partial
from inspect import Parameter, Signature, signature
from pathlib import Path
from typing import Annotated, Any, Literal, TypeVar, get_type_hints

from typer import Option

T = TypeVar("T")

# An option under each heading of the help; the others have none.
file_option = partial(Option, rich_help_panel="Which files and frames")
machine_option = partial(Option, rich_help_panel="On which machine")
profiler_option = partial(Option, rich_help_panel="Instruments")
video_option = partial(Option, rich_help_panel="Video segmentation")
clip_option = partial(Option, rich_help_panel="End to end of a clip")

Profile = Annotated[str, Option("--profile", "-p", help="Where and how fast: a shipped name or a YAML file.")]
PipelinePath = Annotated[
    str | None, Option("--pipeline", help="What is computed: a YAML file instead of the shipped one.")
]
Stages = Annotated[
    str, Option("--stages", help="Only these steps, a,b,c, and what they read. [dim]Default: all.[/dim]")
]
Settings = Annotated[
    list[str] | None, Option("--set", metavar="STEP.KEY=VALUE", help="A setting of a step; may be repeated.")
]
WeightsDir = Annotated[Path | None, Option("--weights-dir", help="Folder with weights, recognised by name and hash.")]
Address = Annotated[
    str | None, machine_option("--address", help="Ray cluster to join: auto, or host:port. [dim]Default: none.[/dim]")
]
EngineChoice = Annotated[
    Literal["auto", "local", "ray"],
    machine_option(
        "--engine",
        envvar="FRAMEKILN_ENGINE",
        help="Owner of the worker processes. [dim]auto: local for little work without a GPU, else ray.[/dim]",
    ),
]
Json = Annotated[bool, Option("--json", help="Print everything as JSON.")]
Quiet = Annotated[bool, Option("--quiet", "-q", help="Print errors only.")]


def names(text: str) -> tuple[str, ...]:
    """Return the names in `a,b,c`."""
    return tuple(name.strip() for name in text.split(",") if name.strip())


def spread(command: Callable[..., T]) -> Callable[..., T]:
    """Return a command with the fields of its dataclasses as options.

    A parameter with a dataclass as its type is replaced by the fields of that class, and the command gets an instance.
    """
    hints: dict[str, Any] = get_type_hints(command, include_extras=True)
    groups = {name: _list_parameters(hint) for name, hint in hints.items() if is_dataclass(hint)}

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
    parameters = signature(target).parameters.values()
    return [item.replace(annotation=hints[item.name], kind=Parameter.KEYWORD_ONLY) for item in parameters]
