"""Presentation times of frames in seconds."""

from fractions import Fraction


class FrameClock:
    """Times in seconds from the first frame, for a file with times in units of `base` seconds.

    The first frame's time is `origin`, in that unit, or that of the first decoded frame. Frames without a time follow
    by the frame rate.
    """

    def __init__(self, fps: float | None, base: Fraction, origin: int | None = None) -> None:
        self._base = base
        self._step = 1.0 / fps if fps else 0.0
        self._last = None if origin is None else float(origin * base)
        self.origin = self._last or 0.0  # s, on the clock of the container; valid after the first frame

    def time_s(self, pts: int | None) -> float:
        """Return the time of the next frame; libav's `Frame.time` lacks a time base after a decoding error."""
        now = None if pts is None else float(pts * self._base)
        if now is None:
            now = self._last + self._step if self._last is not None else 0.0
        if self._last is None:
            self.origin = now
        self._last = now
        return float(now - self.origin)
