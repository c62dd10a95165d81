"""Cards and what their makers say of them: `manifests/gpus.yaml`, or a file like it."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal, Self

import yaml
from pydantic import Field, ValidationError, model_validator

from pipeline.calibration.figures import slug
from pipeline.errors import ConfigError, did_you_mean
from pipeline.manifest import Strict, explain, shipped

_GT_PER_LANE = {3: 8, 4: 16, 5: 32}  # GT/s, PCI Express base specification; each carries 128 bits in 130
_FIGURES = ("memory_gb", "bandwidth_gb_s", "fp32_tflops", "fp16_tflops", "bf16_tflops", "pcie", "tdp_w")

Positive = Annotated[float, Field(gt=0)]


class Pcie(Strict):
    """How a card is connected to its host."""

    generation: Literal[3, 4, 5]
    lanes: Literal[1, 4, 8, 16]

    @property
    def gb_s(self) -> float:
        """In one direction, before the overhead of packets."""
        return _GT_PER_LANE[self.generation] * self.lanes * 128 / 130 / 8


class Card(Strict):
    """One model of card."""

    names: tuple[str, ...] = Field(min_length=1)  # as the driver says them
    memory_gb: Positive  # as the maker prints it
    bandwidth_gb_s: Positive
    fp32_tflops: Positive  # without tensor cores
    fp16_tflops: Positive  # dense, sums in fp32
    bf16_tflops: Positive
    pcie: Pcie
    tdp_w: Positive
    sources: dict[str, str]  # of each figure

    @model_validator(mode="after")
    def _every_figure_has_a_source(self) -> Self:
        for name in _FIGURES:
            if not self.sources.get(name, "").strip():
                raise ValueError(f"{name} has no source; say under `sources:` where it comes from")
        return self

    def tflops(self, precision: str) -> float:
        """The rate that a precision of a profile computes at; `mixed` is a 16-bit type on a GPU."""
        return {"full": self.fp32_tflops, "fp16": self.fp16_tflops}.get(precision, self.bf16_tflops)


Cards = Mapping[str, Card]


def read_cards(path: Path | None = None) -> Cards:
    """Cards by their short names, of a file or those that ship.

    Raises:
        ConfigError: there is no such file, or it is none of cards.
    """
    where = str(path) if path else "manifests/gpus.yaml"
    try:
        text = path.read_text(encoding="utf-8") if path else shipped("gpus.yaml").read_text(encoding="utf-8")
        data = yaml.safe_load(text)
    except OSError as error:
        raise ConfigError(f"There is no file of cards at '{path}'; check the path given to --gpus.") from error
    except yaml.YAMLError as error:
        raise ConfigError(f"{where} is not valid YAML: {' '.join(str(error).split())}.") from error
    if not isinstance(data, dict) or not data:
        raise ConfigError(f"{where} must be a YAML mapping of cards, as manifests/gpus.yaml is.")
    return {str(name): _card(f"{where}: {name}", said) for name, said in data.items()}


def card_named(name: str, cards: Cards) -> Card:
    """The card that a person means, by its short name or as its driver or its maker writes it.

    Raises:
        ConfigError: there is none of that name.
    """
    known = {slug(said): card for short, card in cards.items() for said in (short, *card.names)}
    if (found := cards.get(name) or known.get(slug(name))) is None:
        near = did_you_mean(slug(name), cards)
        raise ConfigError(f"--for: there is no card {name!r} in the file of cards.{near}")
    return found


def card_of(device: str, cards: Cards) -> Card:
    """The card that a driver calls so.

    Raises:
        ConfigError: there is none.
    """
    for card in cards.values():
        if slug(device) in map(slug, card.names):
            return card
    raise ConfigError(
        f"The run was measured on {device!r}, which the file of cards does not have; add its data sheet's figures to a "
        "copy of manifests/gpus.yaml and name that with --gpus."
    )


def _card(where: str, said: Any) -> Card:
    try:
        return Card.model_validate(said)
    except ValidationError as error:
        raise ConfigError(explain(error, Card, where)) from error
