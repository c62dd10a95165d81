"""Clips, cut by a rule that depends on the file only, so that runs with other columns cut alike."""

from collections import deque
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from framekiln.media.frames import Frame


@dataclass(kw_only=True)
class Clip:
    """Consecutive frames of one file, and copies of the frames after them."""

    index: int
    frames: list[Frame] = field(default_factory=list)
    halo: list[Frame] = field(default_factory=list)

    @property
    def nbytes(self) -> int:
        """Bytes of the requested pixels, halo included."""
        return sum(frame.nbytes for frame in (*self.frames, *self.halo))


def cut_clips(
    frames: Iterable[Frame], *, max_frames: int, max_bytes: int, halo: int, first: int = 0, stop: int | None = None
) -> Iterator[Clip]:
    """Yield a file's clips in order, each with up to `halo` of the next frames.

    A clip ends before a key frame once it has `max_frames` / 2 frames, at `max_frames` in any case, where frames were
    lost, and at the end of a segment. `max_frames` is lowered for large frames so that a clip's full-size pixels stay
    within `max_bytes`, whether or not full size is requested.

    The first clip has the number `first`. Frames from the number `stop` on serve as halo only.
    """
    open_clips: deque[Clip] = deque()  # the last one grows; the others wait for their halo
    for frame in frames:
        if stop is not None and frame.index >= stop:
            for clip in open_clips:
                clip.halo.extend([frame][: halo - len(clip.halo)])
            if not open_clips or len(open_clips[-1].halo) >= halo:
                break
            continue
        if not open_clips or _ends_before(frame, open_clips[-1].frames, max_frames, max_bytes):
            open_clips.append(Clip(index=first))
            first += 1
        for clip in open_clips:
            if clip is not open_clips[-1] and len(clip.halo) < halo:
                clip.halo.append(frame)
        open_clips[-1].frames.append(frame)
        while len(open_clips) > 1 and len(open_clips[0].halo) >= halo:
            yield open_clips.popleft()
    yield from open_clips


def _ends_before(frame: Frame, clip: list[Frame], max_frames: int, max_bytes: int) -> bool:
    limit = max(1, min(max_frames, max_bytes // (3 * clip[0].height * clip[0].width)))
    return frame.after_loss or len(clip) >= limit or (frame.is_key and 2 * len(clip) >= limit)
