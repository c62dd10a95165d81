"""Models by name: from `manifests/bench.yaml`, steps of the pipeline file, and the user's own factories."""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import yaml
from pydantic import Field, field_validator

from framekiln.contract.errors import ConfigError, check_known
from framekiln.contract.shipped_files import shipped
from framekiln.device import flops_by_module, torch
from framekiln.lab.measure.prepared import Prepared, example_inputs, moved, prepare, run
from framekiln.lab.models.factory import RANDOM, REAL, Factory
from framekiln.lab.models.stage_model import StageModel
from framekiln.lab.modules import Built
from framekiln.lab.output.cells import Cell
from framekiln.planning.manifest import PipelineFile
from framekiln.planning.settings import Strict
from framekiln.weights.resolver import find_weights

_OF_FACTORY = "of its factory; random ones are seeded"


@dataclass(frozen=True, kw_only=True)
class TorchModel:
    """A torch module with example inputs, made by a factory at the first use; each cell gets a copy."""

    name: str
    factory: Factory
    weights: str  # real from the file, or seeded random

    @cached_property
    def built(self) -> Built:
        """The module, unchanged by any cell."""
        return self.factory.build()

    def load(self) -> None:
        _ = self.built

    def prepare(self, cell: Cell, device: str) -> Prepared:
        """Return a call of the model in a cell. Raises UnsupportedError: the cell cannot exist here."""
        return prepare(self.built, cell, device)

    def flops(self, cell: Cell, prepared: Prepared) -> Mapping[str, float]:
        """Count on the meta device, where nothing is computed; for a model that reads values, in a call in fp32."""
        with torch.inference_mode():
            try:
                module = copy.deepcopy(self.built.module).to("meta")
                inputs = moved(example_inputs(self.built, cell), "meta", None)
                return flops_by_module(lambda: run(module, inputs))
            except Exception:  # of any class: the model's code gets tensors without values
                inputs = moved(prepared.host_inputs, "cpu", None)
                return flops_by_module(lambda: run(self.built.module, inputs))

    def about(self) -> dict[str, Any]:
        """Return `params`, `parts` (parameters by child) and `axes`."""
        named = {"": self.built.module, **dict(self.built.module.named_children())}
        counts = {name: sum(tensor.numel() for tensor in module.parameters()) for name, module in named.items()}
        parts = {name: count for name, count in counts.items() if name and count}
        return {"params": counts[""], "parts": parts, "axes": dict(self.built.axes)}


BenchModel = TorchModel | StageModel
"""A model, pickled before its first use and built in another process."""


class ModelEntry(Strict):
    """One model of `manifests/bench.yaml`."""

    use: str  # package.module:factory
    with_: Mapping[str, Any] = Field(default_factory=dict, alias="with")
    weights: tuple[str, ...] = ()  # entries in models.yaml; the first one present is used

    @field_validator("weights", mode="before")
    @classmethod
    def _make_list(cls, value: object) -> object:
        return [value] if isinstance(value, str) else value


def known_models() -> dict[str, ModelEntry]:
    """Return the models of `manifests/bench.yaml` by name."""
    entries = yaml.safe_load(shipped("bench.yaml").read_text(encoding="utf-8"))
    return {name: ModelEntry.model_validate(entry) for name, entry in entries.items()}


def find_model(name: str | Callable[..., Any], pipeline: PipelineFile, weights_dir: Path | None = None) -> TorchModel:
    """Return a model by its name in the registry, by its factory, package.module:factory, or of a factory itself.

    A message about an unknown name also lists the pipeline's steps. Raises ConfigError: there is no such model, or it
    is a step. Raises WeightsError: the folder of weights does not exist.
    """
    given = None if isinstance(name, str) else name
    name = name if isinstance(name, str) else f"{name.__module__}:{name.__qualname__}"
    if ":" in name:
        factory = Factory(use=name, settings={}, given=given)
        factory.load()
        return TorchModel(name=name, factory=factory, weights=_OF_FACTORY)
    known = known_models()
    check_known(
        name,
        {*known, *pipeline.steps},
        f"There is no model {name!r}, nor a step of that name (--pipeline FILE for own ones).",
        code="FK-BENCH-MODEL",
    )
    if name not in known:
        raise ConfigError(
            f"{name!r} is a step of the pipeline; --clip takes only models (framekiln bench --list).",
            code="FK-BENCH-OPTION",
        )
    entry = known[name]
    paths, _ = find_weights(entry.weights, weights_dir=weights_dir)
    path = next(iter(paths.values()), None)
    return TorchModel(
        name=name,
        factory=Factory(use=entry.use, settings=entry.with_, weights=path, takes_weights=True),
        weights=f"{REAL}: {path.name}" if path else RANDOM,
    )
