"""Rows of a bench that plays films: clips by scenario, and runs of a model on the objects of videos."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from framekiln.lab.output.cells import Cell
from framekiln.planning.sample import SampleOutcome, Statistics

Scenario = Literal["single", "multi", "server", "offline"]
SCENARIOS: tuple[Scenario, ...] = ("single", "multi", "server", "offline")


@dataclass(frozen=True, kw_only=True)
class ClipRow:
    """One clip in one scenario."""

    model: str
    weights: str
    device: str
    clip: str
    height: int  # px
    width: int
    eyes: int
    scenario: Scenario
    pools: bool
    cell: Cell  # how the model was called
    outcome: SampleOutcome
    why: str = ""
    frames: int = 0
    batch: float | None = None  # mean frames of a batch
    latency_ms: Statistics | None = None  # time of a frame, from its arrival until it is encoded
    fps: float | None = None  # over the whole measurement
    phases_ms: Mapping[str, float] = field(default_factory=dict)  # means of a frame
    shares: Mapping[str, float] = field(default_factory=dict)  # shares of the phases' sum


@dataclass(frozen=True, kw_only=True)
class ObjectFigures:
    """The figures of one run on an object."""

    first_frame: str = ""  # stem of the prompted frame
    frames: int = 0  # tracked frames
    fps: float | None = None  # over all tracked frames, without reading and scoring
    first_ms: float | None = None  # latency of the prompted frame
    latency_ms: Statistics | None = None  # time of the later frames
    peak_gb: float | None = None  # 1e9 bytes of the GPU's allocator; None on a CPU
    ram_gb: float | None = None  # memory of the process, at the end
    j: float | None = None  # 0 to 1; None if no scored frame shows the object
    f: float | None = None
    scored_frames: int = 0


@dataclass(frozen=True, kw_only=True)
class VideoRow(ObjectFigures):
    """One run of a model on one object."""

    model: str
    weights: str
    device: str
    prompt: str
    video: str
    object: str
    run: int  # from 1
    outcome: SampleOutcome
    why: str = ""
