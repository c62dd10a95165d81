"""Units of decoding: small files share a task, and a long video is a unit of its own for several tasks.

Each task requests a part of the video's bytes, and gets the segments that begin there.
"""

import hashlib
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from framekiln.media.config import MAX_TASKS, DecodeConfig
from framekiln.media.file_types import is_of_photo
from framekiln.media.files import MediaFile


@dataclass(frozen=True, kw_only=True, eq=False)
class PacketIndex:
    """A track's packets by the container's index, n of them in storage order."""

    times: NDArray[np.int64]  # n, decoding times
    places: NDArray[np.int64]  # n, bytes
    ends: NDArray[np.int64]  # n, cumulative sizes, bytes
    keys: NDArray[np.int64]  # numbers of key frames
    is_complete: bool  # every frame is listed and shown, in decoding order

    @classmethod
    def read(cls, track: Any) -> "PacketIndex":
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
class Segments:
    """A request for the segments that begin in one of `count` equal parts of a file's bytes."""

    index: int = 0
    count: int = 1
    halo: int = 0  # frames to read beyond its end
    begin: int | None = None  # first frame of the next segment; None for the first request
    entries: PacketIndex | None = None  # the video's index, if already read

    def __str__(self) -> str:
        return f"segments {self.index}" + (f" from frame {self.begin}" if self.begin is not None else "")


@dataclass(frozen=True, kw_only=True)
class VideoSegment:
    """The frames of a video from one closed-GOP key frame to the next segment's."""

    start: int  # number of its first frame
    stop: int  # number of the frame after its last
    total: int  # frames of the film
    origin: int  # time of the video's first frame, in the file's units, as all times here
    begins: int | None  # time of its first kept frame; None at the start of the video, or if there is none
    ends: tuple[int, int] | None  # number and time of the first kept frame after it; None if there is none
    share: float  # share of the video track's bytes
    first_packet: Any  # first packet of the video, for decoders that start later: it identifies the encoder
    packets: Iterator[Any]  # packets of the track, from the segment's first one to the end of the file
    following: Segments | None = None  # the rest of the request

    @property
    def is_last(self) -> bool:
        return self.stop == self.total


MAX_FILES = 256  # some seconds of decoding, so that a dying task costs little
MAX_BYTES = 64_000_000  # bytes of a unit's files; a larger file is a unit of its own
UNITS_PER_SLOT = 4  # so that fast slots take over work of slow ones
TASKS_PER_SLOT = 4  # tasks of a single video: the last task is a sixteenth of the work of four slots
_LAST_PART = 100  # the last units hold 1 / (this * slots) of the files: a slot waits for 1 % of its work at most
_MIN_FILES = 8  # with fewer, a unit's two files for each step cost more than its work


@dataclass(frozen=True, kw_only=True)
class Unit:
    """Files decoded together. The name is a hash of them: equal files form the same unit in every run."""

    name: str
    media: tuple[MediaFile, ...]
    attempt: int = 0  # increased for files that failed in an earlier unit
    superseded: frozenset[str] = frozenset()  # media_ids of its files that another unit has taken over
    stale: frozenset[str] = frozenset()  # media_ids of its files that changed or were removed
    origins: tuple[str, ...] = ()  # names of units with stale files that had its files before
    moved: bool = False  # its files lie elsewhere than the output says


def form_units(media: Sequence[MediaFile], *, slots: int) -> list[Unit]:
    """Group consecutive files into units, at least about four for each concurrent decode task (`slots`).

    The first units are small, so that a slow step has tables soon. The last units are small, so that all slots end
    together.
    """
    slots = max(1, slots)
    most = max(1, min(MAX_FILES, len(media) // (UNITS_PER_SLOT * slots)))
    least = min(most, max(_MIN_FILES, len(media) // (_LAST_PART * slots)))
    units: list[Unit] = []
    members: list[MediaFile] = []
    left, size = len(media), 0  # files outside units so far; bytes of the members
    for item in media:
        limit = min(max(least, min(most, left // slots)), max(_MIN_FILES, (len(media) - left) // slots))
        if members and (len(members) >= limit or size + item.size > MAX_BYTES):
            units.append(_make_unit(members))
            left -= len(members)
            members, size = [], 0
        members.append(item)
        size += item.size
    return [*units, _make_unit(members)] if members else units


def split_unit(unit: Unit, task_bytes: int) -> list[Segments]:
    """Divide a unit into parts for tasks that may run at once: a single file by `task_bytes` for each task.

    A photo is one task, whatever size a list states.
    """
    is_divided = len(unit.media) == 1 and not is_of_photo(unit.media[0].media_id)
    count = max(1, min(unit.media[0].size // task_bytes, MAX_TASKS)) if is_divided else 1
    return [Segments(index=index, count=count) for index in range(count)]


def task_bytes(units: Sequence[Unit], config: DecodeConfig, slots: int) -> int:
    """Return the bytes of a video for each task, so that all units' tasks occupy all slots to the end."""
    total = sum(media.size for unit in units for media in unit.media)
    return max(config.task_bytes, min(config.most_task_bytes, total // (TASKS_PER_SLOT * max(1, slots))))


def retry_unit(unit: Unit, names: Collection[str]) -> Unit:
    """Return a new unit of some of a unit's files, to decode them again."""
    return _make_unit([media for media in unit.media if media.media_id in names], unit.attempt + 1)


def surviving_unit(unit: Unit) -> Unit:
    """Return a unit of the unchanged files that no other unit has."""
    left = unit.stale | unit.superseded
    return _make_unit([media for media in unit.media if media.media_id not in left], unit.attempt)


def _make_unit(members: Sequence[MediaFile], attempt: int = 0) -> Unit:
    digest = hashlib.blake2b(digest_size=8, salt=attempt.to_bytes(8, "big"))
    for item in members:
        digest.update(f"{item.media_id}\n{item.size}\n{item.digest or item.mtime_ns}\n".encode())
        if item.sidecar is not None:
            digest.update(f"\n{item.sidecar.size}\n{item.sidecar.digest or item.sidecar.mtime_ns}\n".encode())
    return Unit(name=digest.hexdigest(), media=tuple(members), attempt=attempt)
