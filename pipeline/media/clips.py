"""Frames become clips by a rule that looks at the file only, so that a run with other columns cuts alike."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from pipeline.media.frames import Frame


@dataclass(kw_only=True)
class Clip:
    """Consecutive frames of one file, and copies of the frames that follow them."""

    index: int
    frames: list[Frame] = field(default_factory=list)
    halo: list[Frame] = field(default_factory=list)

    @property
    def nbytes(self) -> int:
        """Bytes of the pixels that were asked for, halo included."""
        return sum(frame.nbytes for frame in (*self.frames, *self.halo))


def cut(
    frames: Iterable[Frame], *, longest: int, most_bytes: int, halo: int, first: int = 0, stop: int | None = None
) -> Iterator[Clip]:
    """Clips of a file's frames, in order, each with up to `halo` of the next frames.

    A clip ends before a key frame once it has `longest` / 2 frames, at `longest` in any case, where frames were lost,
    and where a segment ends. `longest` is lowered for large frames so that a clip's full-size pixels stay within
    `most_bytes`, whether or not full size was asked for.

    Args:
        frames: of a file, or of a segment and after it.
        longest: frames of one clip.
        most_bytes: of a clip's pixels at full size.
        halo: frames after a clip.
        first: number of the first clip.
        stop: number of the first frame that is read for its sake as halo only.
    """
    waiting: deque[Clip] = deque()
    for frame in frames:
        if stop is not None and frame.index >= stop:
            for clip in waiting:
                clip.halo.extend([frame][: halo - len(clip.halo)])
            if not waiting or len(waiting[-1].halo) >= halo:
                break
            continue
        if not waiting or _ends(waiting[-1].frames, frame, longest, most_bytes):
            waiting.append(Clip(index=first))
            first += 1
        for clip in waiting:
            if clip is not waiting[-1] and len(clip.halo) < halo:
                clip.halo.append(frame)
        waiting[-1].frames.append(frame)
        while len(waiting) > 1 and len(waiting[0].halo) >= halo:
            yield waiting.popleft()
    yield from waiting


def _ends(clip: list[Frame], frame: Frame, longest: int, most_bytes: int) -> bool:
    fitting = max(1, min(longest, most_bytes // (3 * clip[0].height * clip[0].width)))
    return frame.breaks or len(clip) >= fitting or (frame.opens and 2 * len(clip) >= fitting)
