"""Units of files to packets of rows.

No damaged file ends a run: a file without a readable frame is one row in the errors table, and so is each undecodable
stretch of a video.
"""

import ctypes
import math
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import closing, suppress
from dataclasses import dataclass

import cv2

from framekiln.contract.columns import Image
from framekiln.contract.errors import MediaError, Reason
from framekiln.contract.packet import Packet
from framekiln.contract.row_errors import Failure
from framekiln.media.config import DecodeConfig
from framekiln.media.files import MediaFile
from framekiln.media.frames import Frame, FrameSource
from framekiln.media.packets.packet_builder import PacketBuilder, cut_clips
from framekiln.media.packets.spared import NOTHING_SPARED, Spared
from framekiln.media.read_ahead import ReadAhead
from framekiln.media.source_reader import NO_GUARD, Guard, SourceReader, as_failure
from framekiln.media.units import Segments, Unit, VideoSegment


def decode(
    unit: Unit,
    columns: Sequence[str],
    halo: int,
    config: DecodeConfig,
    wanted: Segments | None = None,
    is_done: Callable[[int, int], bool] = lambda _start, _stop: False,
    guard: Guard = NO_GUARD,
    *,
    drops: Collection[str] = (),
    spared: Spared = NOTHING_SPARED,
) -> Iterator[Packet]:
    """Yield packets of a unit's frames, ended by an empty one.

    Args:
        unit: files, decoded in their order.
        columns: source columns that steps read; other pixels and sound are not made.
        halo: number of the file's next frames that follow each clip, as rows with `halo` true.
        config: the rules of decoding.
        wanted: the segments of one film to decode; None for all.
        is_done: returns whether rows between two numbers exist already; such a segment yields nothing.
        guard: called for each file and frame.
        drops: columns that packets do not carry; their pixels are not made, but count in packet sizes.
        spared: frames that no step needs; they have rows, but no pixels.

    Yields:
        Packets of whole clips: at most `packet_rows` rows and `packet_bytes` of pixels, unless one clip has more.
        `start` and `stop` count the unit's rows without halo rows. Failures are part of the next packet. The last one
        is empty (`start == stop ==` the unit's number of rows). Segments have row numbers as in an undamaged film, and
        the last one also yields the empty packet. A film that is not read in segments belongs to the one of index 0.
    """
    ahead = ReadAhead([media for media in unit.media if media.media_id not in spared.files])
    reader = SourceReader(
        columns=columns, config=config, halo=halo, guard=guard, drops=drops, ahead=ahead, needed=spared.needed
    )
    decoder = _UnitDecoder(unit=unit, reader=reader, spared=spared)
    with closing(ahead):
        is_alone = wanted is not None and len(unit.media) == 1
        yield from decoder.segments(wanted or Segments(), is_done) if is_alone else decoder.files()


def decode_frames(
    media: MediaFile, columns: Sequence[str], config: DecodeConfig, *, wanted: Collection[int] | None = None
) -> Iterator[Frame]:
    """Yield the frames of one file for which `decode` makes rows, in display order.

    `wanted`: numbers of frames; segments without such a frame are left out. None: all.
    Raises MediaError: the file could not be opened, or a bucket did not answer.
    """
    failures: list[Failure] = []
    reader = SourceReader(columns=columns, config=config)
    last = math.inf if wanted is None else max(wanted, default=-1)
    for source in reader.segments(media):
        segment = source.segment
        if segment and wanted is not None and not any(segment.start <= number < segment.stop for number in wanted):
            continue
        for frame in reader.frames(media, source, failures):
            if segment is not None and frame.index >= segment.stop:
                break
            if wanted is None or frame.index in wanted:
                yield frame
            if frame.index >= last:
                return
        if lost := next((failure for failure in failures if failure.kind == Reason.UNREACHABLE), None):
            raise MediaError(Reason.UNREACHABLE, lost.message)


@dataclass(frozen=True, kw_only=True)
class Reader:
    """The frames of a whole file for the second pass; see `framekiln.contract.stage.Media`.

    They are decoded again, one after the other, by the first pass's rules and code, so frame numbers agree with its
    rows. Frames that the first pass lost are missing here too, and are not reported again.
    """

    media: MediaFile
    config: DecodeConfig

    def frames(self, pixels: str) -> Iterator[tuple[int, Image]]:
        """Yield number and image of each frame; memory does not grow with their number."""
        return ((frame.index, frame.images[pixels]) for frame in decode_frames(self.media, (pixels,), self.config))


@dataclass(frozen=True, kw_only=True)
class _UnitDecoder:
    unit: Unit
    reader: SourceReader
    spared: Spared

    def files(self) -> Iterator[Packet]:
        """Yield packets of all files, and the empty one at the end."""
        builder, done = self.builder(), 0
        total = max(1, sum(media.size for media in self.unit.media))
        for media in self.unit.media:
            before, done = done, done + media.size
            if media.media_id in self.spared.files:
                source, clips = self.spared.read(media.media_id, tuple(self.reader.columns), self.reader.config)
                for clip in clips:
                    yield from builder.add(media.media_id, source, clip)
                continue
            for source in self.sources(media, builder.failures):
                yield from self.packets(media, source, builder, before / total, media.size / total)
        yield from builder.finish(1.0)

    def segments(self, wanted: Segments, is_done: Callable[[int, int], bool]) -> Iterator[Packet]:
        """Yield packets of the wanted segments; index 0 stands for a whole video that is not read in segments."""
        (media,) = self.unit.media
        if media.media_id in self.spared.files:  # the first request gets all of it
            if wanted.index == 0:
                total = max(stop for _, stop in self.spared.spans)
                yield from self.spared.packets(self.unit.name, 0, total, tuple(self.reader.carried), 1.0) or ()
                yield from self.builder(total).finish()
            return
        builder, following = self.builder(), [wanted]
        while following:
            rest = following.pop()
            try:
                source = self.reader.open(media, rest)
            except Exception as exc:
                builder.failures.append(failure := as_failure(media, exc))
                # the first task tells of a file that cannot be opened, and a bucket may answer one task alone
                is_own = wanted.index == 0 or failure.kind == Reason.UNREACHABLE
                yield from builder.finish(float(wanted.index == 0)) if is_own else ()
                return
            if (segment := source.segment) is not None:
                following += [segment.following] if segment.following is not None else []
                yield from self._decode_segment(source, segment, is_done)
            elif wanted.index == 0:
                yield from self.packets(media, source, builder, 0.0, 1.0)
                yield from builder.finish(1.0)

    def _decode_segment(
        self, source: FrameSource, segment: VideoSegment, is_done: Callable[[int, int], bool]
    ) -> Iterator[Packet]:
        (media,) = self.unit.media
        start, stop = self.reader.rows_before(segment.start), self.reader.rows_before(segment.stop)
        known = self.spared.packets(self.unit.name, start, stop, tuple(self.reader.carried), segment.share)
        if known is not None and not is_done(start, stop):
            yield from known
        elif start < stop and not is_done(start, stop):
            builder = self.builder(start, stop)
            yield from self.packets(media, source, builder)
            yield from builder.finish(segment.share)
        if segment.start < segment.stop == segment.total:
            yield from self.builder(stop).finish()

    def builder(self, start: int = 0, stop: int | None = None) -> PacketBuilder:
        return PacketBuilder(self.unit.name, self.reader.carried, self.reader.config, start, stop)

    def sources(self, media: MediaFile, failures: list[Failure]) -> Iterator[FrameSource]:
        """Yield a file, or its segments in order; a file that cannot be opened adds a failure."""
        try:
            yield from self.reader.segments(media)
        except Exception as exc:
            failures.append(as_failure(media, exc))

    def packets(
        self, media: MediaFile, source: FrameSource, builder: PacketBuilder, before: float = 0.0, own: float = 0.0
    ) -> Iterator[Packet]:
        """Yield the packets completed by one of the source's clips. `before`, `own`: shares of the unit's bytes."""
        segment, config = source.segment, self.reader.config
        clips = cut_clips(
            self.reader.frames(media, source, builder.failures),
            first=self.reader.rows_before(segment.start) if segment else 0,
            stop=segment.stop if segment else None,
            max_frames=config.clip_frames,
            max_bytes=config.packet_bytes // 2,
            halo=self.reader.halo,
        )
        for clip in clips:
            builder.reached = before + own * source.share_read()
            yield from builder.add(media.media_id, source, clip)


_TRIM_THRESHOLD, _MMAP_THRESHOLD = -1, -3  # numbers of `mallopt`'s parameters, malloc.h
_KEPT = 256 << 20  # bytes: the frames of a packet and of the next one
_LARGEST = 32 << 20  # bytes, glibc's most: a frame of 3840 x 2160; larger blocks return to the system


def use_one_thread() -> None:
    """Limit OpenCV to the calling thread: decode tasks run side by side, one for each core."""
    cv2.setNumThreads(1)


def keep_freed_memory() -> None:
    """Let this process keep up to 256 MB of freed memory; only with glibc.

    glibc returns frame-sized blocks to the system at once, and the kernel zeroes each page that it hands out again,
    which costs as much as decoding.
    """
    with suppress(AttributeError, OSError):
        library = ctypes.CDLL(None)
        library.mallopt(_TRIM_THRESHOLD, _KEPT)
        library.mallopt(_MMAP_THRESHOLD, _LARGEST)
