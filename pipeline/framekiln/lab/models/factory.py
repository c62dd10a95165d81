"""Models made by factories: `package.module:factory` for any torch module.

A factory takes no argument and returns a module, or a module with its example inputs:

    def mine():
        return Mine(), lambda batch, size=224, frames=16: torch.rand(batch, frames, 3, size, size)

The parameters of the inputs' function are the axes that a sweep may vary; their defaults are the sizes otherwise.
Instead of a function there may be a tensor, or a tuple or dict of tensors. Its rows are the model's own batch, and
another batch repeats them. A module alone is called on images, batch 3 size size, of 224 px.
"""

from __future__ import annotations

import importlib
import inspect
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, TypeVar

from framekiln.contract.errors import ConfigError, MediaError
from framekiln.device import is_broken_gpu, is_out_of_memory, release_memory, seeded, torch
from framekiln.lab.measure.precision import UnsupportedError
from framekiln.planning.sample import SampleOutcome

R = TypeVar("R")

REAL, RANDOM = "real", "seeded random"
"""Sources of weights."""
AXES = ("batch", "size", "frames")
IMAGE_SIDE = 224  # px, side of images for a module without example inputs; most encoders were trained on it


@dataclass(frozen=True, kw_only=True)
class Built:
    """A module in float32 on the CPU, for inference, with its example inputs."""

    module: torch.nn.Module
    inputs: Callable[..., Any]  # takes some of `AXES`
    axes: Mapping[str, int | None]  # axes that `inputs` takes, with their defaults


@dataclass(frozen=True, kw_only=True)
class Factory:
    """The address of a factory, its settings and its weights."""

    use: str  # package.module:factory
    settings: Mapping[str, Any]
    weights: Path | None = None  # verified file; None: seeded random weights
    takes_weights: bool = False  # whether it has a parameter `weights`
    given: Callable[..., Any] | None = None  # the function itself, which may lie in a notebook

    def load(self) -> Callable[..., Any]:
        """Return the function, even from a module in the current folder, which the installed command does not search.

        Raises ConfigError: the module cannot be imported, or has no such function.
        """
        if self.given is not None:
            return self.given
        module_name, colon, attribute = self.use.partition(":")
        sys.path[:0] = [folder for folder in [str(Path.cwd())] if folder not in sys.path]
        try:
            function = getattr(importlib.import_module(module_name), attribute)
        except Exception as error:  # of any class: the module's own code runs
            raise ConfigError(
                f"The model {self.use!r} cannot be imported ({one_line(error)}); give package.module:factory, with the "
                "package's folder on PYTHONPATH.",
                code="FK-BENCH-FACTORY",
            ) from error
        if not colon or not callable(function):
            raise ConfigError(f"The model {self.use!r} is no function; name one.", code="FK-BENCH-FACTORY")
        return function

    def build(self) -> Built:
        """Build the model; without weights, with the same random ones each time.

        Raises ConfigError: it raised, or returned no module with example inputs.
        """
        arguments, make = dict(self.settings) | ({"weights": self.weights} if self.takes_weights else {}), self.load()
        try:
            with seeded():
                result = make(**arguments)
        except Exception as error:  # of any class: the factory's own code runs
            problem = f"The factory {self.use!r} failed ({one_line(error)}); correct it, or its inputs."
            raise ConfigError(problem, code="FK-BENCH-BUILD") from error
        module, inputs = result if isinstance(result, tuple) and len(result) == 2 else (result, None)
        if not isinstance(module, torch.nn.Module):
            raise ConfigError(
                f"The factory {self.use!r} returned {type(module).__name__}, not a torch module; return the module, or "
                "the module and its example inputs.",
                code="FK-BENCH-FACTORY",
            )
        function = inputs_function(inputs)
        return Built(module=module.eval().requires_grad_(False), inputs=function, axes=axes_of(function))


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


def inputs_function(inputs: Any) -> Callable[..., Any]:
    """Return a function that builds example inputs. Accepts a function, tensors or None."""
    if callable(inputs):
        return inputs
    if inputs is None:
        return lambda batch=1, size=IMAGE_SIDE: torch.rand(batch, 3, size, size)
    own = next((len(tensor) for tensor in tensors_in(inputs) if tensor.dim()), 1)

    def repeat(tensor: torch.Tensor, batch: int) -> torch.Tensor:
        if not tensor.dim() or len(tensor) == batch:
            return tensor
        return tensor[torch.arange(batch) % len(tensor)].contiguous()

    return lambda batch=own: map_tensors(inputs, lambda tensor: repeat(tensor, batch))


def axes_of(function: Callable[..., Any]) -> dict[str, int | None]:
    """Return the axes among a function's parameters, with their defaults."""
    defaults = {name: each.default for name, each in inspect.signature(function).parameters.items()}
    return {n: None if defaults[n] is inspect.Parameter.empty else defaults[n] for n in AXES if n in defaults}


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
