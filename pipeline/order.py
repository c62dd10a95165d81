"""What a person asked a run for, names resolved; the same order again goes on where the last run stopped."""

from __future__ import annotations

from dataclasses import dataclass

from pipeline.again import Which
from pipeline.instruments import NONE, Instruments
from pipeline.manifest import PipelineFile, ProfileFile
from pipeline.plan import Choices


@dataclass(frozen=True, kw_only=True)
class Order:
    """One run's."""

    input: str
    output: str
    pipeline: PipelineFile
    profile: ProfileFile
    profile_name: str
    choices: Choices
    address: str | None = None  # of a running Ray cluster; None: start Ray here
    limit: int | None = None  # files
    shard: tuple[int, int] | None = None  # number from 0, of how many
    again: Which | None = None  # failures of earlier runs that are to be tried again
    by_content: bool = False  # whether changed files are told by what they hold
    instruments: Instruments = NONE
