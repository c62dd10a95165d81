"""Numbers of a video's frames, correct after losses too.

Packets have the presentation times of their frames. So frames that a decoder never returns are counted by the packets
it was given. All times are in the file's own unit.
"""

import heapq
from collections import deque
from collections.abc import Iterable, Iterator
from typing import Any

from framekiln.contract.errors import MediaError, Reason
from framekiln.media.frames import LostFrames
from framekiln.media.video.segments import REORDERED


class FrameNumbers:
    """Numbers of frames in display order, from `first` on, and up to `stop` if the file's index has it.

    Lost frames are counted by the times of their packets, if these are `timed`.
    """

    def __init__(self, *, timed: bool, first: int = 0, stop: int | None = None) -> None:
        self._timed, self._stop = timed, stop
        self._next = first
        self._error: MediaError | None = None  # the latest one
        self._unreported = False  # losses without a `LostFrames` so far
        self._times: list[int] = []  # heap of packets' times without a frame so far
        self._unknown = 0  # lost packets without a time

    @property
    def damaged(self) -> bool:
        """True if any frame was lost so far."""
        return self._error is not None

    def look_ahead(self, packets: Iterable[Any]) -> Iterator[Any]:
        """Yield the same packets or errors, some of them read ahead.

        After an error a decoder returns its frames early; by then, the times of frames before them must be known.
        """
        queue: deque[Any] = deque()
        for packet in packets:
            queue.append(packet)
            timed = self._timed and not isinstance(packet, MediaError) and packet.size and packet.pts is not None
            if timed and not packet.is_discard:  # an edit list hides it
                heapq.heappush(self._times, packet.pts)
            if len(queue) > REORDERED:
                yield queue.popleft()
        yield from queue

    def lose(self, error: MediaError) -> None:
        """Register an error."""
        self._error, self._unreported = error, True

    def skip(self, packet: Any) -> None:
        """Register a packet without a frame."""
        self._unknown += bool(packet.size and (packet.pts is None or not self._timed))
        self._unreported = True

    def assign(self, av_frame: Any) -> Iterator[tuple[int, Any] | LostFrames]:
        """Yield the losses before a frame, then the frame with its number."""
        lost, self._unknown = self._unknown, 0
        while self._times and av_frame.pts is not None and self._times[0] <= av_frame.pts:
            # without an error, a skipped one is not meant to be shown (VP8's alternate reference frames)
            lost += heapq.heappop(self._times) < av_frame.pts and (self._error is not None or self._stop is not None)
        if lost and (self._error or self._stop is not None):
            yield LostFrames(index=self._next, error=self._error or MediaError(Reason.CORRUPT, "a packet has no frame"))
            self._unreported = False
        if self._stop is None or self._next + lost < self._stop:
            yield self._next + lost, av_frame
        self._next += lost + 1

    def finish(self) -> Iterator[LostFrames]:
        """Yield the losses after the last frame, and an error of the index."""
        if self._error and self._unreported:
            yield LostFrames(index=self._next, error=self._error)
        elif self._stop is not None and self._next != self._stop and not self._error:
            count = f"{abs(self._stop - self._next)} {'fewer' if self._next < self._stop else 'more'} frames"
            error = MediaError(Reason.CORRUPT, f"it has {count} than its index before frame {self._stop}")
            yield LostFrames(index=min(self._next, self._stop), error=error)
