"""Decoding under watch: files that kill their process are found like rows that do (see `pipeline.journal`).

A file that was being decoded when a process died for the second time is first decoded by a child process, which counts
the frames it has got. If that dies too, the file is read up to there and no further.
"""

from __future__ import annotations

import os
import tempfile
from dataclasses import dataclass
from pathlib import Path

from pipeline.deadline import Deadline
from pipeline.journal import RESTING, Care
from pipeline.media.decode import opened
from pipeline.media.guard import Limit
from pipeline.media.store import Media
from pipeline.step import DecodeStep
from pipeline.trial import Died, attempt


class DecodeGuard:
    """The watch over a task that decodes; see `pipeline.media.guard`."""

    def __init__(self, step: DecodeStep, care: Care) -> None:
        self._step, self._care, self._file = step, care, ""
        self._clock = Deadline(step.deadline_s if care.journaled else 0.0)

    def opens(self, media: Media, share: int) -> Limit | None:
        """A suspect is tried first."""
        self._file = f"decode: share {share} of {media.media_id}"
        limit = None
        if self._care.suspects(self._file):
            self.rest()
            limit = tried(self._step, media, share)
        self.resume()
        return limit

    def lives(self) -> None:
        """The clock starts anew."""
        self._clock.again()

    def resume(self) -> None:
        """Decoding goes on."""
        self._care.note(self._file or RESTING)
        self._clock.again()

    def rest(self) -> None:
        """Nothing is decoded for a while: what dies now dies of something else."""
        self._clock.stop()
        self._care.note(RESTING)


def tried(step: DecodeStep, media: Media, share: int) -> Limit | None:
    """How far a file can be read, found out by a child process; None where that lives."""
    with tempfile.TemporaryDirectory(prefix="framemill-") as folder:
        count = Path(folder) / "count"
        (result,) = attempt(_Decoding(step, media, share, str(count)), [0])
        if not isinstance(result, Died):
            return None
        return Limit(int(count.read_text() or 0) if count.exists() else 0, result.how)


@dataclass
class _Decoding:
    """A child's task: to decode a file, and count what comes."""

    step: DecodeStep
    media: Media
    share: int
    count: str  # path of the file for the count
    deadline_s: float = 0.0  # of the call, which is long; frames have one

    def set_up(self) -> None:
        """Nothing to make ready."""

    def call(self, number: int) -> None:  # noqa: ARG002 - there is one
        """Decode, and forget."""
        clock = Deadline(self.step.deadline_s)
        clock.again()
        file = os.open(self.count, os.O_WRONLY | os.O_CREAT, 0o600)
        source = opened(self.media, self.share, self.step.columns, self.step.halo, self.step.config)
        for done, _ in enumerate(source.frames, 1):
            os.pwrite(file, b"%12d" % done, 0)
            clock.again()
