"""Options that several commands share, as one parameter: a dataclass whose fields are options.

Typer reads options from a function's parameters, so that commands with the same options would repeat them all.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import fields, is_dataclass
from inspect import Parameter, Signature, signature
from typing import Any, get_type_hints


def taking(command: Callable[..., None]) -> Callable[..., None]:
    """A command whose one dataclass parameter is spread: its fields come as options beside the command's own."""
    hints = get_type_hints(command, include_extras=True)
    own = signature(command).parameters
    name = next(one for one in own if is_dataclass(hints[one]))
    kind: Any = hints[name]
    types = get_type_hints(kind, include_extras=True)
    shared = {item.name: (types[item.name], item.default) for item in fields(kind)}

    def spread(**said: Any) -> None:
        command(**{name: kind(**{key: said.pop(key) for key in shared})}, **said)

    rest = {one: (hints[one], own[one].default) for one in own if one != name}
    spread.__name__, spread.__doc__ = command.__name__, command.__doc__
    spread.__signature__ = Signature(  # type: ignore[attr-defined]
        [
            Parameter(key, Parameter.KEYWORD_ONLY, default=default, annotation=type_)
            for key, (type_, default) in (shared | rest).items()
        ]
    )
    return spread
