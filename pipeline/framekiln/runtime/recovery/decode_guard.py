"""Decoding under watch: a file that kills its process is isolated like a row (see `attempt_log`).

If a process dies a second time while decoding a file, a child process first decodes the file and counts its frames. If
the child dies too, the file is read up to the last counted frame.
"""

import os
import tempfile
from dataclasses import dataclass
from pathlib import Path

from framekiln.device.watchdog import Watchdog
from framekiln.media.files import MediaFile
from framekiln.media.source_reader import Guard, ReadLimit, SourceReader
from framekiln.media.units import Segments
from framekiln.planning.step import DecodeStep
from framekiln.runtime.recovery.attempt_log import PAUSED, Attempt
from framekiln.runtime.recovery.child_process import ChildDied
from framekiln.runtime.recovery.child_tasks import call_in_children


class DecodeGuard(Guard):
    """The watch over a decoding task; see `framekiln.media.source_reader`."""

    def __init__(self, step: DecodeStep, attempt: Attempt) -> None:
        self._step, self._attempt, self._file = step, attempt, ""
        self._watchdog = Watchdog(step.timeout_s if attempt.is_logged else 0.0)

    def start_file(self, media: MediaFile, wanted: Segments) -> ReadLimit | None:
        """Note the file, and return the readable number of frames if it is a suspect."""
        self._file = f"decode: {wanted} of {media.media_id}"
        limit = None
        if self._file in self._attempt.suspects:
            self.pause()
            limit = find_limit(self._step, media, wanted)
        self.resume()
        return limit

    def heartbeat(self) -> None:
        """Restart the timeout after a frame."""
        self._watchdog.restart()

    def resume(self) -> None:
        self._attempt.note(self._file or PAUSED)
        self._watchdog.restart()

    def pause(self) -> None:
        """Note that decoding pauses: a death meanwhile has another cause."""
        self._watchdog.stop()
        self._attempt.note(PAUSED)


def find_limit(step: DecodeStep, media: MediaFile, wanted: Segments) -> ReadLimit | None:
    """Decode a file in a child process, and return the readable number of frames; None if the child survives."""
    with tempfile.TemporaryDirectory(prefix="framekiln-") as folder:
        count = Path(folder) / "count"
        (result,) = call_in_children(_Decoding(step, media, wanted, str(count)), 1)
        if not isinstance(result, ChildDied):
            return None
        text = count.read_text() if count.exists() else ""
        return ReadLimit(int(text) if text else -1, result.how)


@dataclass
class _Decoding:
    """One call, which decodes a file and counts its frames."""

    step: DecodeStep
    media: MediaFile
    wanted: Segments
    count: str  # path of the file for the count
    timeout_s: float = 0.0  # timeout of the whole file; each frame has a timeout of its own

    def set_up(self) -> None:
        """Do nothing."""

    def call(self, number: int) -> None:  # noqa: ARG002 - there is one
        watchdog = Watchdog(self.step.timeout_s)
        watchdog.restart()
        file = os.open(self.count, os.O_WRONLY | os.O_CREAT, 0o600)
        reader = SourceReader(columns=self.step.columns, halo=self.step.halo, config=self.step.config)
        frames = reader.open(self.media, self.wanted).frames
        os.pwrite(file, b"%12d" % 0, 0)
        for done, _ in enumerate(frames, 1):
            os.pwrite(file, b"%12d" % done, 0)
            watchdog.restart()
