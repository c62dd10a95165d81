"""The settings of a run that only its plan reads, beside the pipeline file and the profile."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

Policy = Literal["fail", "skip", "dummy"]
"""Handling of steps without their weights: end the run, leave them out, or use random weights."""


@dataclass(frozen=True, kw_only=True)
class PlanOptions:
    """The command line's settings for a plan; each overrides the pipeline file and the profile.

    `run.json` stores the fields by these names under `choices`.
    """

    stages: tuple[str, ...] = ()  # names of steps; empty: all
    settings: tuple[str, ...] = ()  # step.key=value
    rows: str | None = None  # a saved selection of the output, or a Parquet file: steps compute these rows alone
    device: str | None = None  # for all steps that support it
    weights_dir: Path | None = None
    missing_weights: Policy = "fail"
    accept_license: bool = False
    max_errors: str | None = None  # of every step and of decoding
    vram_cap: float | None = None  # GB; each GPU is treated as if it had no more
    calibration: Path | None = None  # None: this machine's own calibration, if there is one
    decode: Mapping[str, Any] = field(default_factory=dict)
