"""Models on the objects of videos: each is prompted on its first frame, tracked to the end and scored."""

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import islice
from pathlib import Path
from statistics import fmean, median, stdev
from typing import Any

import psutil

from framekiln.contract.columns import Image
from framekiln.contract.errors import MediaError
from framekiln.device import Meter, wait
from framekiln.lab.models.factory import attempt
from framekiln.lab.sav import masks
from framekiln.lab.sav.layout import AnnotatedVideo
from framekiln.planning.sample import SampleOutcome, Statistics

OnMask = Callable[[str, Image, masks.Mask, masks.Mask], None]
"""Gets the stem of a scored frame, its image, its mask and the true mask."""
WARM_UP = 3  # frames: one with a prompt, one with its memory, one more; they load kernels and choose algorithms


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


@dataclass(kw_only=True)
class ObjectBench:
    """A tracker on one object of a video; its prompt comes from the first non-empty true mask."""

    tracker: Any  # of `masks.load_tracker`
    device: str
    meter: Meter
    prompt: masks.PromptKind = "points"
    clock: Callable[[], float] = field(default=time.perf_counter)
    warm_up: int = 0  # frames tracked once before any is timed

    def run(self, video: AnnotatedVideo, name: str, on_mask: OnMask | None = None) -> ObjectFigures | None:
        """Track and score an object; None if all its masks are empty.

        A latency covers `track` with its wait for the device: preprocessing, upload and the network. It excludes
        decoding the frame and scaling its mask. Raises MediaError: a frame or a mask cannot be read.
        """
        start = video.first_visible(name)
        if start is None:
            return None
        latency_s: list[float] = []
        counted, scores = set(masks.evaluated(video.annotated(name))), masks.ObjectScores()
        prompt = masks.prompt_of(video.truth(name, start), self.prompt)
        if self.warm_up:
            self._begin(prompt)
            for _, image in islice(video.images(start), self.warm_up):
                self.tracker.track(image)
            wait(self.device)
            self.warm_up = 0
        self._begin(prompt)
        for stem, image in video.images(start):  # nothing counts before the object appears
            began = self.clock()
            logits, _ = self.tracker.track(image)
            wait(self.device)
            latency_s.append(self.clock() - began)
            if stem in counted:
                mask = masks.full_size(logits[0], image.shape[:2])
                truth = video.truth(name, stem)
                scores.add(mask, truth)
                if on_mask is not None:
                    on_mask(stem, image, mask, truth)
        return self._make_figures(start, latency_s, scores)

    def _begin(self, prompt: object) -> None:
        self.tracker.reset()
        self.meter.clear()
        self.tracker.add(prompt)

    def _make_figures(self, start: str, latency_s: list[float], scores: masks.ObjectScores) -> ObjectFigures:
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


@dataclass(frozen=True, kw_only=True)
class SavSettings:
    """Settings of the measurement of a folder of videos."""

    prompt: masks.PromptKind = "points"  # a user's first input: a click
    limit_videos: int | None = None
    limit_objects: int | None = None  # most objects of each video
    runs: int = 5  # runs of each object: a median that tolerates two disturbed ones
    device: str = "cpu"
    overlays: Path | None = None  # folder of pictures; None: no pictures


@dataclass(frozen=True, kw_only=True)
class VideoModel:
    """A model that follows objects, built when needed."""

    name: str
    weights: str  # real from its file, or random; J and F of random ones mean nothing
    build: Callable[[], Any]  # makes the tracker


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


def measure_videos(model: VideoModel, videos: Sequence[AnnotatedVideo], settings: SavSettings) -> Iterator[VideoRow]:
    """Yield the rows of a model: each video, object and run, until one fails."""
    about: dict[str, Any] = {"device": settings.device, "prompt": settings.prompt, "video": "", "object": ""}
    blank = VideoRow(model=model.name, weights=model.weights, **about, run=1, outcome="error")
    meter = Meter(settings.device)
    bench = ObjectBench(
        tracker=model.build(), device=settings.device, meter=meter, prompt=settings.prompt, warm_up=WARM_UP
    )
    for video in videos[: settings.limit_videos]:
        try:
            names = video.objects[: settings.limit_objects]
        except MediaError as error:
            yield replace(blank, video=video.name, why=str(error))
            continue
        for name in names:
            for number in range(1, settings.runs + 1):
                row = replace(blank, video=video.name, object=name, run=number)
                row = _measure(row, bench, video, settings.overlays if number == 1 else None)
                yield row
                if row.outcome != "ok":
                    break


def _measure(row: VideoRow, bench: ObjectBench, video: AnnotatedVideo, overlays: Path | None) -> VideoRow:
    pictures = partial(masks.write_overlay, overlays / row.model / row.video / row.object) if overlays else None

    def run() -> VideoRow:
        if (found := bench.run(video, row.object, pictures)) is None:
            return replace(row, why="no mask of this object has a pixel")
        return replace(row, outcome="ok", **vars(found))

    return attempt(row, run)


def summarize(rows: Sequence[VideoRow]) -> list[dict[str, Any]]:
    """Return each model over all its tracked objects, in the order of the rows; each object counts once.

    `runs` and `failed` are numbers of runs. fps and ms are medians over runs, `fps_std` is their deviation. J and F are
    means over objects. A figure that no run has is None.
    """
    summaries = []
    for name in dict.fromkeys(row.model for row in rows):
        own = [row for row in rows if row.model == name]
        good = [row for row in own if row.outcome == "ok"]
        firsts = {(row.video, row.object): row for row in reversed(good)}.values()
        fps = [row.fps for row in good if row.fps is not None]
        medians = [row.latency_ms.median for row in good if row.latency_ms is not None]
        j, f = ([value for row in firsts if (value := getattr(row, name)) is not None] for name in ("j", "f"))
        summaries.append(
            {
                "model": name,
                "weights": own[0].weights,
                "objects": len(firsts),
                "runs": len(good),
                "failed": len(own) - len(good),
                "fps": median(fps) if fps else None,
                "fps_std": stdev(fps) if len(fps) > 1 else None,
                "median_ms": median(medians) if medians else None,
                "peak_gb": max((row.peak_gb for row in good if row.peak_gb is not None), default=None),
                "j": fmean(j) if j else None,
                "f": fmean(f) if f else None,
                "j_and_f": (fmean(j) + fmean(f)) / 2 if j and f else None,
            }
        )
    return summaries
