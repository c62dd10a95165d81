"""A module with its inputs, the tensors in a structure, and the record of a measurement that may fail."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any, TypeVar

from framekiln.contract.errors import MediaError
from framekiln.device import is_broken_gpu, is_out_of_memory, release_memory, torch
from framekiln.planning.sample import SampleOutcome

R = TypeVar("R")


class UnsupportedError(Exception):
    """The reason why a cell cannot be measured here; not a user's mistake."""


@dataclass(frozen=True, kw_only=True)
class Built:
    """A module in float32 on the CPU, for inference, with its example inputs."""

    module: torch.nn.Module
    inputs: Callable[..., Any]  # takes some of `AXES`
    axes: Mapping[str, int | None]  # axes that `inputs` takes, with their defaults


def one_line(error: Exception) -> str:
    """Return an error's class and message without line breaks."""
    return ": ".join(filter(None, [type(error).__name__, " ".join(str(error).split())[:300]]))


def attempt(blank: R, measure: Callable[[], R]) -> R:
    """Return the record of a measurement; if that raises, `blank` with the outcome and the reason.

    The memory that a failed call held is released. Raises Exception: the GPU is lost, and this process with it.
    """
    try:
        return measure()
    except Exception as error:  # of any class: the model's own code runs
        if is_broken_gpu(error):
            raise
        outcome: SampleOutcome = "oom" if is_out_of_memory(error) else "error"
        why = str(error) if isinstance(error, MediaError | UnsupportedError) else one_line(error)
        if isinstance(error, UnsupportedError):
            outcome = "unsupported"
    release_memory()  # outside of the handler: the error's frames hold tensors
    record: Any = blank
    return replace(record, outcome=outcome, why=why)


def map_tensors(value: Any, function: Callable[[torch.Tensor], Any]) -> Any:
    """Return a structure of dicts, lists and tuples with each tensor replaced by the function's result."""
    if isinstance(value, torch.Tensor):
        return function(value)
    if isinstance(value, Mapping):
        return {key: map_tensors(item, function) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return type(value)(map_tensors(item, function) for item in value) if type(value) in (list, tuple) else value
    return value


def tensors_in(value: Any) -> list[torch.Tensor]:
    """Return the tensors in a structure of mappings, sequences and objects with attributes, in order."""
    if isinstance(value, torch.Tensor):
        return [value]
    if isinstance(value, Mapping):
        return [tensor for item in value.values() for tensor in tensors_in(item)]
    if isinstance(value, list | tuple):
        return [tensor for item in value for tensor in tensors_in(item)]
    return [tensor for item in getattr(value, "__dict__", {}).values() for tensor in tensors_in(item)]
