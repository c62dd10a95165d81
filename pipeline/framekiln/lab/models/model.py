"""A model of the bench in its process: a torch module with example inputs, or a stage with rows."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from framekiln.device import flops_by_module
from framekiln.lab.measure.prepared import Prepared, example_inputs, moved, prepare, run
from framekiln.lab.models.factory import Built, Factory
from framekiln.lab.output.cells import Cell


class BenchModel(Protocol):
    """A model that can be prepared for cells."""

    def prepare(self, cell: Cell, device: str) -> Prepared:
        """Return a call of the model in a cell.

        Raises:
            UnsupportedError: the cell does not exist here.
        """

    def flops(self, cell: Cell, prepared: Prepared) -> Mapping[str, float]:
        """Return the operations of a call by module, as in fp32."""

    def about(self) -> dict[str, Any]:
        """Return `params`, `parts` (parameters by child) and `axes`."""


class ModelRecipe(Protocol):
    """A model that is built in another process."""

    @property
    def name(self) -> str:
        """Its name."""

    @property
    def weights(self) -> str:
        """Return the source of its weights."""

    def build(self) -> BenchModel:
        """Build it."""


@dataclass(frozen=True, kw_only=True)
class ModelSource:
    """A torch module that a factory makes, and where its weights are from."""

    name: str
    factory: Factory
    weights: str  # real with the file, or seeded random

    def build(self) -> TorchModel:
        """Build it."""
        return TorchModel(self.factory.build())


class TorchModel:
    """A torch module with example inputs; each cell gets a copy."""

    def __init__(self, built: Built) -> None:
        self.built = built

    def prepare(self, cell: Cell, device: str) -> Prepared:
        """See `BenchModel`."""
        return prepare(self.built, cell, device)

    def flops(self, cell: Cell, prepared: Prepared) -> Mapping[str, float]:
        """Count on the meta device, where nothing is computed; where a model reads values, in a call in fp32."""
        import torch

        with torch.inference_mode():
            try:
                module = copy.deepcopy(self.built.module).to("meta")
                inputs = moved(example_inputs(self.built, cell), "meta", None)
                return flops_by_module(lambda: run(module, inputs))
            except Exception:  # of any class: the model's code meets tensors without values
                inputs = moved(prepared.host_inputs, "cpu", None)
                return flops_by_module(lambda: run(self.built.module, inputs))

    def about(self) -> dict[str, Any]:
        """See `BenchModel`."""
        module = self.built.module
        parts = {name: _params(child) for name, child in module.named_children()}
        return {
            "params": _params(module),
            "parts": {name: count for name, count in parts.items() if count},
            "axes": dict(self.built.axes),
        }


def _params(module: Any) -> int:
    return sum(tensor.numel() for tensor in module.parameters())
