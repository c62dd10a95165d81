"""Models on the objects of videos, one model after the other, so that each has the device's memory for itself."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path

from framekiln.contract.errors import MediaError
from framekiln.device import Meter, wait
from framekiln.lab.models.factory import failure_of
from framekiln.lab.sav.layout import AnnotatedVideo
from framekiln.lab.sav.overlays import Overlays
from framekiln.lab.sav.prompts import PromptKind
from framekiln.lab.sav.runs import ObjectBench, ObjectRun
from framekiln.lab.sav.trackers import VideoTracker, prompt_of
from framekiln.planning.sample import Outcome, Statistics

WARM_UP = 3  # frames: one with a prompt, one with its memory, one more; they load kernels and choose algorithms


@dataclass(frozen=True, kw_only=True)
class SavSettings:
    """Settings of the measurement of a folder of videos."""

    prompt: PromptKind = "points"  # what a user gives first: a click
    limit_videos: int | None = None
    limit_objects: int | None = None  # of each video
    runs: int = 5  # of each object: a median that tolerates two disturbed ones
    device: str = "cpu"
    overlays: Path | None = None  # folder of pictures; None for none

    def objects(self, video: AnnotatedVideo) -> Sequence[str]:
        """Return the names of a video's objects within the limit."""
        return video.objects[: self.limit_objects]


@dataclass(frozen=True, kw_only=True)
class VideoModel:
    """A model that follows objects, built when its turn comes."""

    name: str
    weights: str  # a note: real with their file, or random; J and F of random ones mean nothing
    build: Callable[[], VideoTracker]


@dataclass(frozen=True, kw_only=True)
class VideoRow:
    """One run of a model on one object."""

    model: str
    weights: str
    device: str
    prompt: str
    video: str
    object: str
    run: int  # from 1
    outcome: Outcome
    why: str = ""
    first_frame: str = ""  # stem of the prompted frame
    frames: int = 0  # tracked ones
    fps: float | None = None
    first_ms: float | None = None  # latency of the prompted frame
    latency_ms: Statistics | None = None  # of the frames after it
    peak_gb: float | None = None  # 1e9 bytes of the GPU's allocator; None on a CPU
    ram_gb: float | None = None
    j: float | None = None  # 0 to 1; None where no scored frame shows the object
    f: float | None = None
    scored_frames: int = 0


@dataclass(kw_only=True)
class SavBench:
    """The objects of videos, tracked by several models.

    Args:
        videos: with true masks.
        settings: limits and prompts.
    """

    videos: Sequence[AnnotatedVideo]
    settings: SavSettings = field(default_factory=SavSettings)

    def rows(self, model: VideoModel) -> Iterator[VideoRow]:
        """Yield the rows of a model: of each video, each object and each run."""
        bench = ObjectBench(
            tracker=model.build(),
            device=self.settings.device,
            meter=Meter(self.settings.device),
            prompt=self.settings.prompt,
        )
        for video in self.videos[: self.settings.limit_videos]:
            yield from self._of_video(model, bench, video)

    def _of_video(self, model: VideoModel, bench: ObjectBench, video: AnnotatedVideo) -> Iterator[VideoRow]:
        try:
            names = self.settings.objects(video)
        except MediaError as error:
            yield self._row(model, video, "", 1, outcome="error", why=str(error))
            return
        for name in names:
            for number in range(1, self.settings.runs + 1):
                row = self._run(model, bench, video, name, number)
                yield row
                if row.outcome != "ok":
                    break

    def _run(self, model: VideoModel, bench: ObjectBench, video: AnnotatedVideo, name: str, number: int) -> VideoRow:
        folder = self.settings.overlays if number == 1 else None
        pictures = Overlays(folder=folder / model.name / video.name / name) if folder else None
        try:
            if not bench.is_warm:
                warm_up(bench, video, name)
            found = bench.run(video, name, pictures)
        except Exception as error:  # of any class: the model's own code runs
            outcome, why = failure_of(error)
            return self._row(model, video, name, number, outcome=outcome, why=why)
        if found is None:
            return self._row(model, video, name, number, outcome="error", why="no mask of this object has a pixel")
        return self._row(model, video, name, number, outcome="ok", **_figures(found))

    def _row(self, model: VideoModel, video: AnnotatedVideo, name: str, number: int, **values: object) -> VideoRow:
        known = {"model": model.name, "weights": model.weights, "video": video.name, "object": name, "run": number}
        places = {"device": self.settings.device, "prompt": self.settings.prompt}
        return VideoRow(**known, **places, **values)  # type: ignore[arg-type]


def warm_up(bench: ObjectBench, video: AnnotatedVideo, name: str) -> None:
    """Track the first frames of an object without timing them."""
    start = video.first_visible(name)
    if start is None:
        return
    bench.tracker.reset()
    bench.tracker.add(prompt_of(video.truth(name, start), bench.prompt))
    for _, image in islice(video.images(start), WARM_UP):
        bench.tracker.track(image)
    wait(bench.device)
    bench.is_warm = True


def _figures(run: ObjectRun) -> dict[str, object]:
    later = [ms / 1000 for ms in run.latency_ms[1:]]
    return {
        "first_frame": run.first_frame,
        "frames": len(run.latency_ms),
        "fps": run.fps,
        "first_ms": run.latency_ms[0],
        "latency_ms": Statistics.of(later) if later else None,
        "peak_gb": run.peak_gb,
        "ram_gb": run.ram_gb,
        "j": run.j,
        "f": run.f,
        "scored_frames": run.scored_frames,
    }
