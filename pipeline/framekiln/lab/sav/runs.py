"""One object of a video, prompted on its first frame, tracked to the video's end and scored."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field

import psutil

from framekiln.contract.columns import Image
from framekiln.device import Meter, wait
from framekiln.lab.sav.layout import AnnotatedVideo
from framekiln.lab.sav.prompts import PromptKind
from framekiln.lab.sav.scores import Mask, ObjectScores, evaluated
from framekiln.lab.sav.trackers import VideoTracker, prompt_of

OnMask = Callable[[str, Image, Mask, Mask], None]
"""Takes the frame's stem, its image, the mask and the true mask of an evaluated frame."""


@dataclass(frozen=True, kw_only=True)
class ObjectRun:
    """The figures of one run."""

    first_frame: str  # stem of the prompted frame
    latency_ms: list[float]  # of each tracked frame in order, the prompted one first
    j: float | None  # None where no evaluated frame shows the object
    f: float | None
    scored_frames: int
    peak_gb: float | None  # of the GPU's allocator; None on a CPU
    ram_gb: float  # of the process, at the end

    @property
    def fps(self) -> float:
        """Frames a second over all tracked frames, without reading and scoring them."""
        return 1000 * len(self.latency_ms) / sum(self.latency_ms)


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

    def run(self, video: AnnotatedVideo, name: str, on_mask: OnMask | None = None) -> ObjectRun | None:
        """Track and score an object; None where no mask of it has a pixel.

        A latency is that of `track` with its wait for the device: preprocessing, upload and the network. Decoding the
        frame and scaling its mask to the frame are outside of it.

        Raises:
            MediaError: a frame or a mask cannot be read.
        """
        start = video.first_visible(name)
        if start is None:
            return None
        latency_ms: list[float] = []
        counted, scores = set(evaluated(video.annotated(name))), ObjectScores()
        self.tracker.reset()
        self.meter.clear()
        self.tracker.add(prompt_of(video.truth(name, start), self.prompt))
        for stem, image in video.images(start):  # nothing counts before the object is there
            mask = self._tracked(image, latency_ms)
            if stem in counted:
                truth = video.truth(name, stem)
                scores.add(mask, truth)
                if on_mask is not None:
                    on_mask(stem, image, mask, truth)
        return self._figures(start, latency_ms, scores)

    def _tracked(self, image: Image, latency_ms: list[float]) -> Mask:
        began = self.clock()
        logits, _ = self.tracker.track(image)
        wait(self.device)
        latency_ms.append(1000 * (self.clock() - began))
        return full_size(logits[0], image.shape[:2])

    def _figures(self, start: str, latency_ms: list[float], scores: ObjectScores) -> ObjectRun:
        peaks = self.meter.peaks()
        j, f = scores.means or (None, None)
        return ObjectRun(
            first_frame=start,
            latency_ms=latency_ms,
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
