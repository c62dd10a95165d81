"""Clips through a model: each format in each scenario, with buffer pools and without, a row each."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from statistics import fmean

from framekiln.lab.clips.formats import Clip, Load, Scenario, Served
from framekiln.lab.clips.frames import PHASES, Buffers, FrameCall, shares
from framekiln.lab.models.factory import failure_of
from framekiln.lab.models.registry import BenchModel
from framekiln.lab.output.cells import Cell
from framekiln.media.video.encoder import VideoEncoder
from framekiln.planning.sample import Outcome, Statistics

_WARM_UP = 2  # batches: they load kernels, and fill the buffer pools


@dataclass(frozen=True, kw_only=True)
class ClipSettings:
    """Settings of the measurement of clips."""

    scenarios: Sequence[Scenario] = ("single",)
    pools: Sequence[bool] = (True,)
    load: Load = field(default_factory=Load)
    cell: Cell = field(default_factory=Cell)  # size, precision, compilation of the model; its batch follows
    device: str = "cpu"


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
    outcome: Outcome
    why: str = ""
    frames: int = 0
    batch: float | None = None  # frames of a batch, on average
    latency_ms: Statistics | None = None  # of a frame, from its arrival until it is encoded
    fps: float | None = None  # over the whole measurement
    phases_ms: Mapping[str, float] = field(default_factory=dict)  # of a frame on average
    shares: Mapping[str, float] = field(default_factory=dict)  # of the phases' sum


def measure_clips(
    name: str, weights: str, model: BenchModel, clips: Sequence[Clip], settings: ClipSettings
) -> Iterator[ClipRow]:
    """Yield the rows of a model; what fails, does not fit or cannot be read is a row that says why."""
    for clip in clips:
        for scenario in settings.scenarios:
            for pooled in settings.pools:
                item, frames = clip.format, 1 if scenario == "single" else settings.load.batch
                blank: dict[str, object] = {"model": name, "weights": weights, "device": settings.device}
                blank |= {"clip": item.name, "height": item.height, "width": item.width, "eyes": item.eyes}
                blank |= {"scenario": scenario, "pools": pooled}
                blank["cell"] = replace(settings.cell, batch=frames * item.eyes)
                yield _row(blank, model, clip, settings)


def _row(blank: Mapping[str, object], model: BenchModel, clip: Clip, settings: ClipSettings) -> ClipRow:
    try:
        return ClipRow(**blank, outcome="ok", **_measured(blank, model, clip, settings))  # type: ignore[arg-type]
    except Exception as error:  # of any class: the model's own code runs
        outcome, why = failure_of(error)
    return ClipRow(**blank, outcome=outcome, why=why)  # type: ignore[arg-type]


def _measured(blank: Mapping[str, object], model: BenchModel, clip: Clip, settings: ClipSettings) -> dict[str, object]:
    scenario: Scenario = blank["scenario"]  # type: ignore[assignment]
    cell: Cell = blank["cell"]  # type: ignore[assignment]
    size = cell.batch // clip.format.eyes
    prepared = model.prepare(cell, settings.device)
    call = FrameCall(prepared=prepared, eyes=clip.format.eyes, buffers=Buffers(pooled=bool(blank["pools"])))
    load = replace(settings.load, scenario=scenario)
    with tempfile.TemporaryDirectory() as folder:
        way = Way(clip=clip, call=call, file=Path(folder) / "out.mp4", streams=size if scenario == "multi" else 1)
        with way.encoder:
            for _ in range(_WARM_UP):
                way.handle(size)
            call.clock.take()
            done = load.serve(way.handle)
            phases = dict(call.clock.take())
    return _figures(done, phases)


def _figures(done: Sequence[Served], phases_s: Mapping[str, float]) -> dict[str, object]:
    taken = [seconds for batch in done for seconds in batch.latencies]
    latency, frames = Statistics.of(taken), len(taken)
    span = done[-1].end - min(done[0].arrivals)
    return {
        "frames": frames,
        "batch": fmean(len(batch.arrivals) for batch in done),
        "latency_ms": latency,
        "fps": frames / span if span else None,
        "phases_ms": {name: 1000 * phases_s[name] / frames for name in PHASES if name in phases_s},
        "shares": shares(phases_s),
    }


@dataclass(kw_only=True)
class Way:
    """The way of frames from their file to the encoded one; several streams read the clip independently."""

    clip: Clip
    call: FrameCall
    file: Path
    streams: int = 1

    def __post_init__(self) -> None:
        item = self.clip.format
        self._sources = [self.clip.images() for _ in range(self.streams)]
        self._even = (item.height // 2 * 2, item.width // 2 * 2)  # sides that the encoder takes
        self.encoder = VideoEncoder(self.file, self._even, item.fps)

    def handle(self, count: int) -> None:
        """Take the next frames all the way."""
        with self.call.phase("decode"):
            frames = [next(self._sources[i % self.streams]) for i in range(count)]
        drawn = self.call(frames)
        with self.call.phase("encode"):
            height, width = self._even
            for frame in drawn:
                self.encoder.add(frame[:height, :width])
