"""The settings of a run that only its plan reads, in addition to the pipeline file and the profile."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

Policy = Literal["fail", "skip", "dummy"]
"""Steps without weights: end the run (fail), leave them out (skip), or use random weights (dummy)."""


@dataclass(frozen=True, kw_only=True)
class PlanOptions:
    """The command line's settings for a plan; each overrides the pipeline file and the profile.

    `run.json` stores the fields by these names under `choices`.
    """

    stages: tuple[str, ...] = ()  # names of steps; empty: all
    settings: tuple[str, ...] = ()  # step.key=value
    rows: str | None = None  # a saved selection of the output, or a Parquet file: steps compute only these rows
    device: str | None = None  # for all steps that support it
    weights_dir: Path | None = None
    missing_weights: Policy = "fail"
    accept_license: bool = False
    max_errors: str | None = None  # for every step and for decoding
    vram_cap: float | None = None  # GB; each GPU is treated as if it had only this
    calibration: Path | None = None  # None: this machine's own, if any
    decode: Mapping[str, Any] = field(default_factory=dict)
