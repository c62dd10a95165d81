"""A unit of files becomes packets of rows: the one place where decoding, clips, limits and failures meet.

Nothing that is wrong with a file ends a run: a file that gives no frame is one line in the errors table, and so is each
stretch of a video that could not be decoded.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import islice, takewhile

from pipeline.columns import is_pixels
from pipeline.errors import MediaError, Reason
from pipeline.failure import Failure
from pipeline.media.clips import Clip, cut
from pipeline.media.config import DecodeConfig
from pipeline.media.filling import Filling
from pipeline.media.frames import Frame, Lost, Opened
from pipeline.media.guard import Guard, Unguarded, watched
from pipeline.media.names import escape
from pipeline.media.photo import open_photo
from pipeline.media.pixels import Wanted
from pipeline.media.segments import Segment, Share
from pipeline.media.sniff import HEAD, sniff
from pipeline.media.store import Media, open_media, read_bytes, unreadable
from pipeline.media.units import Unit, shares
from pipeline.media.video import open_video
from pipeline.packet import Packet

UNGUARDED = Unguarded()


def decode(
    unit: Unit,
    columns: Sequence[str],
    halo: int,
    config: DecodeConfig,
    share: int | None = None,
    done: Callable[[int, int], bool] = lambda _start, _stop: False,
    guard: Guard = UNGUARDED,
    *,
    drops: Collection[str] = (),
) -> Iterator[Packet]:
    """Packets of a unit's frames, ended by an empty one.

    Args:
        unit: files, decoded in their order.
        columns: source columns that stages ask for; of pixels and sound only these are made.
        halo: how many of the next frames of its file follow each clip, as rows with `halo` true.
        config: what of each file is decoded.
        share: of a unit that is one large film, which of its `shares` to decode; None: all.
        done: whether the rows between two numbers are there already: a segment of which that is true gives nothing.
        guard: told of each file and frame.
        drops: of `columns`, what packets do not carry; such pixels are not made, and packets are cut as if they were.

    Yields:
        Packets of whole clips with the schema `packet_schema` of the columns that they carry: at most `packet_rows`
        rows and `packet_bytes` of asked pixels, unless a single clip (or photo) has more. `start` and `stop` count the
        unit's rows without halo rows. Failures ride on the packet that follows them. The last packet is empty (`start
        == stop ==` the unit's number of rows) and says that the unit is done.

        A share gives the packets of the segment that begins in it; the film's last segment, the empty one too. Their
        numbers are those that the rows have in an undamaged film: where frames were lost, the segment's last packet has
        fewer rows than `stop - start`, maybe none. A film that is not read in segments comes whole with share 0.
    """
    reading = _Reading(columns=columns, halo=halo, config=config, guard=guard, drops=drops)
    if share is not None and shares(unit, config) > 1:
        yield from reading.share(unit, share, done)
        return
    filling = reading.filling(unit)
    for media in unit.media:
        for source, clip in reading.clips(media, filling.failures):
            yield from filling.add(media.media_id, source, clip)
    yield from filling.finish(1.0)


def frames_of(media: Media, columns: Sequence[str], config: DecodeConfig) -> Iterator[Frame]:
    """Frames of one file, as `decode` makes rows of them, in display order and uncut.

    Raises:
        MediaError: the file could not be opened.
    """
    reading = _Reading(columns=columns, halo=0, config=config)
    for source in reading.sources(media):
        stop = _stop(source)
        for frame in reading.frames(media, source, []):
            if stop is not None and frame.index >= stop:
                break
            yield frame


def opened(media: Media, share: int, columns: Sequence[str], halo: int, config: DecodeConfig) -> Opened:
    """A file, or one of its segments, as `decode` reads it.

    Raises:
        MediaError: it could not be opened.
    """
    return _Reading(columns=columns, halo=halo, config=config).open(media, share)


@dataclass(frozen=True, kw_only=True)
class _Reading:
    """How files are read for rows."""

    columns: Sequence[str]
    halo: int
    config: DecodeConfig
    guard: Guard = UNGUARDED
    drops: Collection[str] = ()

    def share(self, unit: Unit, number: int, done: Callable[[int, int], bool]) -> Iterator[Packet]:
        """Packets of the segment that begins in a share of a large film; of what cannot be cut, all with share 0."""
        (media,) = unit.media
        filling = self.filling(unit)
        try:
            source = self.open(media, number)
        except Exception as exc:
            filling.failures.append(_failure(media, _told(exc)))
            yield from filling.finish(1.0) if number == 0 else ()
            return
        if source.segment is not None:
            yield from self._segment(unit, source, source.segment, done)
        elif number == 0:
            for clip in self._cut(media, source, filling.failures):
                yield from filling.add(media.media_id, source, clip)
            yield from filling.finish(1.0)

    def _segment(
        self, unit: Unit, source: Opened, segment: Segment, done: Callable[[int, int], bool]
    ) -> Iterator[Packet]:
        (media,) = unit.media
        start, stop = self.row(segment.start), self.row(segment.stop)
        if start < stop and not done(start, stop):
            filling = self.filling(unit, (start, stop))
            for clip in self._cut(media, source, filling.failures):
                yield from filling.add(media.media_id, source, clip)
            yield from filling.finish(segment.share)
        if segment.start < segment.stop == segment.total:
            yield from self.filling(unit, start=stop).finish()

    def filling(self, unit: Unit, span: tuple[int, int] | None = None, start: int = 0) -> Filling:
        """An empty packet."""
        most = {"most_rows": self.config.packet_rows, "most_bytes": self.config.packet_bytes}
        return Filling(unit=unit.name, columns=self._carried(), span=span, start=start, **most)

    def clips(self, media: Media, failures: list[Failure]) -> Iterator[tuple[Opened, Clip]]:
        """Clips of a file, one segment after the other; of one that cannot be opened, a failure."""
        sources = self.sources(media)
        while True:
            try:
                source = next(sources, None)
            except Exception as exc:
                failures.append(_failure(media, _told(exc)))
                return
            if source is None:
                return
            for clip in self._cut(media, source, failures):
                yield source, clip

    def sources(self, media: Media) -> Iterator[Opened]:
        """A file, or its segments."""
        for number in range(self.config.shares(media.size)):
            source = self.open(media, number)
            if source.segment is None:
                yield source
                return
            if self.row(source.segment.start) < self.row(source.segment.stop):
                yield source

    def row(self, number: int) -> int:
        """How many frames of a film before one are kept."""
        row = -(-number // self.config.every_nth)
        return row if self.config.max_frames is None else min(row, self.config.max_frames)

    def frames(self, media: Media, source: Opened, failures: list[Failure]) -> Iterator[Frame]:
        """Frames up to the limit; of a segment, with those that follow it."""
        found, most = _frames(media, source, failures), self.config.max_frames
        if most is None:
            return found
        if source.segment is None:
            return islice(found, most)
        return takewhile(lambda frame: frame.index < most * self.config.every_nth, found)

    def _cut(self, media: Media, source: Opened, failures: list[Failure]) -> Iterator[Clip]:
        frames, rule = self.frames(media, source, failures), self.config
        first = self.row(source.segment.start) if source.segment else 0
        limits = {"longest": rule.clip_frames, "most_bytes": rule.packet_bytes // 2, "halo": self.halo}
        return cut(frames, first=first, stop=_stop(source), **limits)

    def open(self, media: Media, number: int) -> Opened:
        """A file, or one of its segments, under the guard's watch.

        Raises:
            MediaError: it cannot be opened, or kills who opens it.
        """
        limit = self.guard.opens(media, number)
        if limit is not None and not limit.items:
            raise limit.error
        source = self._open(media, number)
        self.guard.lives()
        return replace(source, frames=watched(source.frames, self.guard, limit))

    def _carried(self) -> list[str]:
        return [name for name in self.columns if name not in self.drops]

    def _open(self, media: Media, number: int) -> Opened:
        config = self.config
        wanted = Wanted(
            pixels=tuple(name for name in self._carried() if is_pixels(name)),
            counted=tuple(name for name in self.columns if name in self.drops and is_pixels(name)),
            sound="sound" in self.columns,
            fast=config.fast_mode,
            every_nth=config.every_nth,
            max_pixels=config.max_pixels,
            max_length=config.max_length,
        )
        with open_media(media) as stream, unreadable():
            kind = sniff(stream.read(HEAD))
        if kind.decoder == "video":
            share = Share(index=number, count=config.shares(media.size), halo=self.halo)
            return open_video(media, kind, wanted, share)
        return open_photo(read_bytes(media, 10 * config.max_pixels), kind, wanted)


def _stop(source: Opened) -> int | None:
    return source.segment.stop if source.segment else None


def _frames(media: Media, source: Opened, failures: list[Failure]) -> Iterator[Frame]:
    """The frames alone; what was lost becomes failures, a single one where a file has no frame at all."""
    last = -1  # number of the last frame there was
    lost: list[Lost] = []
    stop = _stop(source)
    try:
        for item in source.frames:
            if isinstance(item, Lost):
                lost.append(item)
                continue
            last = item.index
            if stop is not None and last >= stop:
                failures.extend(_failure(media, item.error, item.index) for item in lost)
                lost.clear()
            yield item
    except Exception as exc:
        lost.append(Lost(index=last + 1, error=_told(exc)))
    if last < 0 and stop is None:
        error = lost[0].error if lost else MediaError(Reason.EMPTY, "the file has no frame")
        failures.append(_failure(media, error))
    else:
        failures.extend(_failure(media, item.error, item.index) for item in lost)


def _told(exc: Exception) -> MediaError:
    """A fault of a decoder that was not foreseen is a fault of this file, not of the run."""
    if isinstance(exc, MediaError):
        return exc
    if isinstance(exc, MemoryError):
        return MediaError(Reason.TOO_LARGE, "it does not fit into memory")
    return MediaError(Reason.CORRUPT, f"{type(exc).__name__}: {escape(str(exc))}")


def _failure(media: Media, error: MediaError, frame_index: int | None = None) -> Failure:
    return Failure(media_id=media.media_id, frame_index=frame_index, kind=error.reason.value, message=str(error))
