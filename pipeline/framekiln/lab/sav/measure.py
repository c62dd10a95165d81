"""Models on the objects of videos: each is prompted on its first frame, tracked to the end and scored.

Models come one after the other, so that each has the device's memory for itself.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path

import psutil

from framekiln.contract.columns import Image
from framekiln.contract.errors import MediaError
from framekiln.device import Meter, wait
from framekiln.lab.models.factory import failure_of
from framekiln.lab.sav.layout import AnnotatedVideo
from framekiln.lab.sav.scores import Mask, ObjectScores, Overlays, evaluated
from framekiln.lab.sav.trackers import PromptKind, VideoTracker, prompt_of
from framekiln.planning.sample import Outcome, Statistics

OnMask = Callable[[str, Image, Mask, Mask], None]
"""Takes the frame's stem, its image, the mask and the true mask of an evaluated frame."""
WARM_UP = 3  # frames: one with a prompt, one with its memory, one more; they load kernels and choose algorithms


@dataclass(frozen=True, kw_only=True)
class ObjectFigures:
    """The figures of one run on an object."""

    first_frame: str = ""  # stem of the prompted frame
    frames: int = 0  # tracked ones
    fps: float | None = None  # over all tracked frames, without reading and scoring them
    first_ms: float | None = None  # latency of the prompted frame
    latency_ms: Statistics | None = None  # of the frames after it
    peak_gb: float | None = None  # 1e9 bytes of the GPU's allocator; None on a CPU
    ram_gb: float | None = None  # of the process, at the end
    j: float | None = None  # 0 to 1; None where no scored frame shows the object
    f: float | None = None
    scored_frames: int = 0


@dataclass(kw_only=True)
class ObjectBench:
    """A tracker on one object of a video.

    Args:
        tracker: the model.
        device: waited for after each frame.
        meter: of the device's memory.
        prompt: kind of the prompt, made from the first true mask with a pixel.
        clock: seconds, rising.
        is_warm: whether the model has tracked a few frames before any is timed.
    """

    tracker: VideoTracker
    device: str
    meter: Meter
    prompt: PromptKind = "points"
    clock: Callable[[], float] = field(default=time.perf_counter)
    is_warm: bool = False

    def run(self, video: AnnotatedVideo, name: str, on_mask: OnMask | None = None) -> ObjectFigures | None:
        """Track and score an object; None where no mask of it has a pixel.

        A latency is that of `track` with its wait for the device: preprocessing, upload and the network. Decoding the
        frame and scaling its mask to the frame are outside of it.

        Raises:
            MediaError: a frame or a mask cannot be read.
        """
        start = video.first_visible(name)
        if start is None:
            return None
        latency_s: list[float] = []
        counted, scores = set(evaluated(video.annotated(name))), ObjectScores()
        self.tracker.reset()
        self.meter.clear()
        self.tracker.add(prompt_of(video.truth(name, start), self.prompt))
        for stem, image in video.images(start):  # nothing counts before the object is there
            mask = self._tracked(image, latency_s)
            if stem in counted:
                truth = video.truth(name, stem)
                scores.add(mask, truth)
                if on_mask is not None:
                    on_mask(stem, image, mask, truth)
        return self._figures(start, latency_s, scores)

    def _tracked(self, image: Image, latency_s: list[float]) -> Mask:
        began = self.clock()
        logits, _ = self.tracker.track(image)
        wait(self.device)
        latency_s.append(self.clock() - began)
        return full_size(logits[0], image.shape[:2])

    def _figures(self, start: str, latency_s: list[float], scores: ObjectScores) -> ObjectFigures:
        peaks = self.meter.peaks()
        j, f = scores.means or (None, None)
        return ObjectFigures(
            first_frame=start,
            frames=len(latency_s),
            fps=len(latency_s) / sum(latency_s),
            first_ms=1000 * latency_s[0],
            latency_ms=Statistics.of(latency_s[1:]) if latency_s[1:] else None,
            j=j,
            f=f,
            scored_frames=len(scores.j),
            peak_gb=peaks[0] if peaks else None,
            ram_gb=psutil.Process().memory_info().rss / 1e9,
        )


def full_size(logits: object, size: tuple[int, ...]) -> Mask:
    """Return a mask at the size of its frame from logits (h w), interpolated bilinearly and above 0, as SAM 2 does."""
    from torch.nn.functional import interpolate

    low: object = logits[None, None].float()  # type: ignore[index]
    return (interpolate(low, size, mode="bilinear")[0, 0] > 0).cpu().numpy()  # type: ignore[arg-type]


@dataclass(frozen=True, kw_only=True)
class SavSettings:
    """Settings of the measurement of a folder of videos."""

    prompt: PromptKind = "points"  # what a user gives first: a click
    limit_videos: int | None = None
    limit_objects: int | None = None  # of each video
    runs: int = 5  # of each object: a median that tolerates two disturbed ones
    device: str = "cpu"
    overlays: Path | None = None  # folder of pictures; None for none


@dataclass(frozen=True, kw_only=True)
class VideoModel:
    """A model that follows objects, built when its turn comes."""

    name: str
    weights: str  # a note: real with their file, or random; J and F of random ones mean nothing
    build: Callable[[], VideoTracker]


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
    outcome: Outcome
    why: str = ""


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
            names = video.objects[: self.settings.limit_objects]
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
        return self._row(model, video, name, number, outcome="ok", **vars(found))

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
