"""Which frame of a film is which, and when it is shown, also where some of them are lost.

Packets say when their frames are to be shown; so frames that never come out of a decoder are counted by the packets
that came in. All times are the file's own until `Clock` makes seconds of them.
"""

from __future__ import annotations

import heapq
from collections import deque
from collections.abc import Iterable, Iterator
from fractions import Fraction
from typing import Any

from pipeline.errors import MediaError, Reason
from pipeline.media.frames import Lost
from pipeline.media.segments import REORDERED


class Numbers:
    """Numbers of frames in display order; those that were lost are counted by the times of their packets.

    Args:
        timed: whether packets say when they are shown.
        first: number of the first frame.
        stop: number of the frame after the last, where the file's index says it.
    """

    def __init__(self, *, timed: bool, first: int = 0, stop: int | None = None) -> None:
        self._timed, self._stop = timed, stop
        self._next = first
        self._error: MediaError | None = None  # the last one
        self._untold = False  # whether something was lost that no `Lost` has told yet
        self._times: list[int] = []  # of packets whose frames have not been shown, a heap
        self._unknown = 0  # lost packets without a time

    @property
    def broken(self) -> bool:
        """Whether anything was lost yet."""
        return self._error is not None

    def ahead(self, packets: Iterable[Any]) -> Iterator[Any]:
        """The same packets, or errors, of which some are looked at before they are handed on.

        At an error a decoder gives up pictures before their turn: those shown before them must be known by then.
        """
        seen: deque[Any] = deque()
        for packet in packets:
            seen.append(packet)
            self._expect(packet)
            if len(seen) > REORDERED:
                yield seen.popleft()
        yield from seen

    def _expect(self, packet: Any) -> None:
        """A packet ought to give a frame, sooner or later, unless the file's edit list hides it."""
        if isinstance(packet, MediaError) or not self._timed:
            return
        if packet.size and packet.pts is not None and not packet.is_discard:
            heapq.heappush(self._times, packet.pts)

    def lose(self, error: MediaError) -> None:
        """Something could not be decoded."""
        self._error, self._untold = error, True

    def skip(self, packet: Any) -> None:
        """A packet gives no frame."""
        self._unknown += bool(packet.size and (packet.pts is None or not self._timed))
        self._untold = True

    def given(self, picture: Any) -> Iterator[tuple[int, Any] | Lost]:
        """The picture with its number, after what was lost before it."""
        lost, self._unknown = self._unknown, 0
        while self._times and picture.pts is not None and self._times[0] <= picture.pts:
            # without an error, one that was passed over was not meant to be shown (VP8's alternate reference frames)
            lost += heapq.heappop(self._times) < picture.pts and (self._error is not None or self._stop is not None)
        if lost and (self._error or self._stop is not None):
            yield Lost(index=self._next, error=self._error or MediaError(Reason.CORRUPT, "a packet holds no frame"))
            self._untold = False
        if self._stop is None or self._next + lost < self._stop:
            yield self._next + lost, picture
        self._next += lost + 1

    def end(self) -> Iterator[Lost]:
        """What was lost after the last frame, and where the index was wrong."""
        if self._error and self._untold:
            yield Lost(index=self._next, error=self._error)
        elif self._stop is not None and self._next != self._stop and not self._error:
            words = f"it holds {abs(self._stop - self._next)} {'fewer' if self._next < self._stop else 'more'} frames"
            error = MediaError(Reason.CORRUPT, f"{words} than its index says before frame {self._stop}")
            yield Lost(index=min(self._next, self._stop), error=error)


class Leading:
    """Pictures stored after a key frame and shown before it (open GOPs), where decoding began at that key frame.

    What they are predicted from was cut off or is damaged. A file that begins with some was cut there, and players do
    not show them.
    """

    def __init__(self) -> None:
        self._entry: int | None = None  # time of the key frame at which decoding began
        self._begun = False

    def holds(self, packet: Any, *, restarts: bool) -> bool:
        """Whether a packet, the next one of the file, is such a picture; `restarts` where decoding begins anew."""
        if packet.is_keyframe:
            self._entry = packet.pts if restarts or not self._begun else None
            self._begun = True
        times = (packet.pts, self._entry)
        return bool(packet.size) and None not in times and packet.pts < self._entry


class Clock:
    """Presentation times in seconds from the first frame.

    Args:
        fps: frames a second, for those without a time.
        base: s of one unit of the file's times.
        origin: the first frame's time in that unit; None: that of the first picture there is.
    """

    def __init__(self, fps: float | None, base: Fraction, origin: int | None = None) -> None:
        self._base = base
        self._step = 1.0 / fps if fps else 0.0
        self._last = None if origin is None else float(origin * base)
        self.origin = self._last or 0.0  # s, on the clock of the container; right once there was a frame

    def time_s(self, pts: int | None) -> float:
        """The time of the next picture; `Frame.time` will not do, as what a decoder holds at an error has no base."""
        now = None if pts is None else float(pts * self._base)
        if now is None:
            now = self._last + self._step if self._last is not None else 0.0
        if self._last is None:
            self.origin = now
        self._last = now
        return float(now - self.origin)
