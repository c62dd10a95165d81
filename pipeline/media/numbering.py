"""Which frame of a film is which, and when it is shown, also where some of them are lost.

Packets say when their frames are to be shown; so frames that never come out of a decoder are counted by the packets
that came in. All times are the file's own until `Clock` makes seconds of them.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterator
from fractions import Fraction
from typing import Any

from pipeline.errors import MediaError
from pipeline.media.frames import Lost


class Numbers:
    """Numbers of frames in display order; those that were lost are counted by the times of their packets."""

    def __init__(self, *, timed: bool) -> None:
        self._timed = timed  # whether packets say when they are shown
        self._next = 0
        self._error: MediaError | None = None  # the last one
        self._untold = False  # whether something was lost that no `Lost` has told yet
        self._times: list[int] = []  # of packets whose frames have not been shown, a heap
        self._unknown = 0  # lost packets without a time

    @property
    def broken(self) -> bool:
        """Whether anything was lost yet."""
        return self._error is not None

    def expect(self, packet: Any) -> None:
        """A packet that ought to give a frame, sooner or later, unless the file's edit list hides it."""
        if self._timed and packet.size and packet.pts is not None and not packet.is_discard:
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
            lost += heapq.heappop(self._times) < picture.pts and self._error is not None
        if lost and self._error:
            yield Lost(index=self._next, error=self._error)
            self._untold = False
        yield self._next + lost, picture
        self._next += lost + 1

    def end(self) -> Iterator[Lost]:
        """What was lost after the last frame."""
        if self._error and self._untold:
            yield Lost(index=self._next, error=self._error)


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
    """Presentation times in seconds from the first frame."""

    def __init__(self, fps: float | None, base: Fraction) -> None:
        self._base = base  # s of one unit of the file's times
        self.origin = 0.0  # s, the first frame's time on the clock of the container; right once there was a frame
        self._step = 1.0 / fps if fps else 0.0
        self._last: float | None = None

    def time_s(self, pts: int | None) -> float:
        """The time of the next picture; `Frame.time` will not do, as what a decoder holds at an error has no base."""
        now = None if pts is None else float(pts * self._base)
        if now is None:
            now = self._last + self._step if self._last is not None else 0.0
        if self._last is None:
            self.origin = now
        self._last = now
        return float(now - self.origin)
