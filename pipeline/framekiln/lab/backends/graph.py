"""A module as a function of tensors: what exporters and tracers take, whatever the module's own inputs and outputs."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from framekiln.lab.models.factory import map_tensors, tensors_in

if TYPE_CHECKING:
    import torch


def graph_of(module: Any, inputs: Any, run: Callable[[Any, Any], Any]) -> tuple[torch.nn.Module, list[torch.Tensor]]:
    """Return a module that maps tensors to a tuple of tensors, and the tensors of the inputs.

    Args:
        module: on its device.
        inputs: of the module; values in it that are no tensors become constants of the graph.
        run: calls a module on inputs of its own form.
    """
    import torch

    class Graph(torch.nn.Module):
        """The module with its inputs' form fixed."""

        def __init__(self) -> None:
            super().__init__()
            self.module = module

        def forward(self, *tensors: torch.Tensor) -> tuple[torch.Tensor, ...]:
            """Return all tensors of the module's outputs, in order."""
            given = iter(tensors)
            return tuple(tensors_in(run(self.module, map_tensors(inputs, lambda _: next(given)))))

    return Graph().eval(), tensors_in(inputs)
