"""Packets, gathered from clips of many files and closed between clips before they grow too large."""

from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import pyarrow as pa

from framekiln.contract.columns import DIGEST, SOUND, SOURCE, TAGS, is_pixel_column, wrap
from framekiln.contract.packet import HALO, Packet, packet_schema
from framekiln.contract.row_errors import Failure
from framekiln.media.config import DecodeConfig
from framekiln.media.frames import Frame, FrameSource


@dataclass(kw_only=True)
class OpenClip:
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
) -> Iterator[OpenClip]:
    """Yield a file's clips in order, each with up to `halo` of the next frames.

    A clip ends before a key frame once it has `max_frames` / 2 frames, and at `max_frames` in any case. It also ends at
    lost frames, and at the end of a segment. `max_frames` is lowered for large frames, so that a clip's full-size
    pixels stay within `max_bytes`, whether full size is requested or not.

    The first clip has the number `first`. Frames from the number `stop` on serve as halo only.
    """
    open_clips: deque[OpenClip] = deque()  # the last one grows; the others wait for their halo
    for frame in frames:
        if stop is not None and frame.index >= stop:
            for clip in open_clips:
                clip.halo.extend([frame][: halo - len(clip.halo)])
            if not open_clips or len(open_clips[-1].halo) >= halo:
                break
            continue
        if not open_clips or _ends_before(frame, open_clips[-1].frames, max_frames, max_bytes):
            open_clips.append(OpenClip(index=first))
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


class PacketBuilder:
    """The growing packet of a unit; `failures` may be appended to at any time and go into the next packet.

    Args:
        unit: its name.
        columns: source columns of the packet.
        config: its limits on rows, and on bytes of pixels.
        start: row of the unit that comes first.
        stop: row after the last one of a segment. Its last packet covers all remaining rows, even if frames were
            lost, so that later rows keep their numbers. None: the unit's end, marked by an empty packet.
    """

    def __init__(
        self, unit: str, columns: Sequence[str], config: DecodeConfig, start: int = 0, stop: int | None = None
    ) -> None:
        self.failures: list[Failure] = []
        self.reached = self._told = 0.0  # decoded share of the unit: set by the decoder, and told by packets so far
        self._unit, self._schema, self._config = unit, packet_schema(columns), config
        self._start, self._stop = start, stop
        self._clear()

    def add(self, media_id: str, source: FrameSource, clip: OpenClip) -> Iterator[Packet]:
        """Add a clip; yield the packets that it completes."""
        rows, size = len(clip.frames), clip.nbytes
        most_rows, most_bytes = self._config.packet_rows, self._config.packet_bytes
        if self._rows and (self._rows + rows > most_rows or self._bytes + size > most_bytes):
            yield self._close()
        self._rows += rows
        self._bytes += size
        self._tags += [source.tags] * (rows + len(clip.halo))
        self._digests += [source.digest] * (rows + len(clip.halo))
        for place, frame in enumerate((*clip.frames, *clip.halo)):
            self._frames.append(frame)
            number = clip.index if place < rows else -1
            file = (media_id, frame.index, source.media_type, number, frame.time_s, source.fps)
            values = (*file, frame.height, frame.width, frame.color_space, frame.damaged)
            for column, value in zip(self._values.values(), values, strict=True):
                column.append(value)
        self._halo.extend([False] * rows + [True] * len(clip.halo))
        full = self._rows >= most_rows or self._bytes >= most_bytes
        if full and self._stop is None:  # a segment's last packet waits for losses after it
            yield self._close()

    def finish(self, share: float = 0.0) -> Iterator[Packet]:
        """Yield the remaining packet, and at the unit's end the empty one; with the last one `share` is told."""
        if self._stop is not None:
            if self._start < self._stop:
                self.reached = share
                yield self._close(self._stop)
            return
        if self._rows:
            yield replace(self._close(), ends=True)
        self.reached = share
        yield self._close()

    def _close(self, stop: int | None = None) -> Packet:
        columns = [self._make_column(name) for name in self._schema.names]
        packet = Packet(
            unit=self._unit,
            start=self._start,
            stop=self._start + self._rows if stop is None else stop,
            rows=pa.Table.from_arrays(columns, schema=self._schema),
            failures=tuple(self.failures),
            share=self.reached - self._told,
        )
        self._start, self._told = packet.stop, self.reached
        self.failures.clear()
        self._clear()
        return packet

    def _clear(self) -> None:
        self._frames: list[Frame] = []
        self._values: dict[str, list[Any]] = {name: [] for name in SOURCE.names}
        self._halo: list[bool] = []
        self._tags: list[Mapping[str, str] | None] = []  # for each row, of its file
        self._digests: list[bytes | None] = []  # for each row, of its file
        self._rows: int = 0  # without halo rows
        self._bytes: int = 0  # bytes of pixels only

    def _make_column(self, name: str) -> pa.Array:
        if is_pixel_column(name):
            return wrap([frame.images[name] for frame in self._frames])
        if name == "sound":
            return pa.array([frame.sound for frame in self._frames], SOUND)
        if name == "tags":
            return pa.array([tags and list(tags.items()) for tags in self._tags], TAGS)
        if name == "digest":
            return pa.array(self._digests, DIGEST)
        values = self._halo if name == HALO else self._values[name]
        return pa.array(values, self._schema.field(name).type)
