"""Parts of a film that tasks decode at once: the share of bytes that is asked for, and the segment that it gives."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True, kw_only=True, eq=False)
class Entries:
    """A track's packets by the container's index, n of them in order of storage."""

    times: NDArray[np.int64]  # n, of decoding
    places: NDArray[np.int64]  # n, bytes
    ends: NDArray[np.int64]  # n, sizes summed up, bytes
    keys: NDArray[np.int64]  # numbers of key frames
    is_complete: bool  # every frame is listed and shown, in the order of decoding

    @classmethod
    def read(cls, track: Any) -> "Entries":
        """Read the index of a track."""
        entries = list(track.index_entries) if track.frames else []
        times = np.array([entry.timestamp for entry in entries], np.int64)
        listed = len(entries) == track.frames > 0 and not any(entry.is_discard for entry in entries)
        return cls(
            times=times,
            places=np.array([entry.pos for entry in entries], np.int64),
            ends=np.cumsum([entry.size for entry in entries], dtype=np.int64),
            keys=np.flatnonzero([entry.is_keyframe for entry in entries]),
            is_complete=listed and bool(np.all(np.diff(times) > 0)),
        )


@dataclass(frozen=True, kw_only=True)
class Share:
    """The requested part of a file."""

    index: int = 0
    count: int = 1
    halo: int = 0  # frames to read beyond its end
    begin: int | None = None  # first frame of the requested cell; None for the first cell of the share
    entries: Entries | None = None  # the film's index, if it was read before

    def __str__(self) -> str:
        return f"share {self.index}" + (f" from frame {self.begin}" if self.begin is not None else "")


@dataclass(frozen=True, kw_only=True)
class VideoSegment:
    """The frames of a film from one closed-GOP key frame to another."""

    start: int  # number of its first frame
    stop: int  # number of the frame after its last
    total: int  # frames of the film
    origin: int  # time of the film's first frame, in the file's units, as all times here
    begins: int | None  # time of its first kept frame; None at the start of the film, or if there is none
    ends: tuple[int, int] | None  # number and time of the first kept frame after it; None if there is none
    share: float  # fraction of the video track's bytes
    first_packet: Any  # of the film, for decoders that start later: it identifies the encoder
    packets: Iterator[Any]  # of the track, from the segment's first one to the end of the file
    following: Share | None = None  # the next cell of the same share

    @property
    def is_last(self) -> bool:
        """True for the last segment of the film."""
        return self.stop == self.total
