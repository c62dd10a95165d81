"""Clips through a model: each format in each scenario, with buffer pools and without, a row each."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import product
from pathlib import Path
from statistics import fmean

from framekiln.lab.clips.formats import Clip, Load, Scenario
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
    for clip, scenario, pooled in product(clips, settings.scenarios, settings.pools):
        item, frames = clip.format, 1 if scenario == "single" else settings.load.batch
        row = ClipRow(
            model=name,
            weights=weights,
            device=settings.device,
            clip=item.name,
            height=item.height,
            width=item.width,
            eyes=item.eyes,
            scenario=scenario,
            pools=pooled,
            cell=replace(settings.cell, batch=frames * item.eyes),
            outcome="ok",
        )
        try:
            row = _measured(row, model, clip, settings.load)
        except Exception as error:  # of any class: the model's own code runs
            outcome, why = failure_of(error)
            row = replace(row, outcome=outcome, why=why)
        yield row


def _measured(row: ClipRow, model: BenchModel, clip: Clip, load: Load) -> ClipRow:
    size = row.cell.batch // row.eyes
    prepared = model.prepare(row.cell, row.device)
    call = FrameCall(prepared=prepared, eyes=row.eyes, buffers=Buffers(pooled=row.pools))
    with tempfile.TemporaryDirectory() as folder:
        way = Way(clip=clip, call=call, file=Path(folder) / "out.mp4", streams=size if row.scenario == "multi" else 1)
        with way.encoder:
            for _ in range(_WARM_UP):
                way.handle(size)
            call.clock.take()
            done = replace(load, scenario=row.scenario).serve(way.handle)
            phases_s = dict(call.clock.take())
    taken = [seconds for batch in done for seconds in batch.latencies]
    frames, span = len(taken), done[-1].end - min(done[0].arrivals)
    return replace(
        row,
        frames=frames,
        batch=fmean(len(batch.arrivals) for batch in done),
        latency_ms=Statistics.of(taken),
        fps=frames / span if span else None,
        phases_ms={name: 1000 * phases_s[name] / frames for name in PHASES if name in phases_s},
        shares=shares(phases_s),
    )


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
