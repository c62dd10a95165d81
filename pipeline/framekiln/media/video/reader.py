"""Frames of a video, one after the other, in memory that does not grow with its length.

Rows are frames in display order, with presentation times from the first one. A large film is read in segments, each by
a decoder of its own (see `segments`).

On one core at 1280 x 720, h264: 780 frames a second with one thread (600 a core with frame threads), then RGB 3,200.
"""

import os
from array import array
from collections.abc import Iterator
from functools import cache, partial
from itertools import chain, dropwhile, islice, pairwise
from typing import Any

import av
from av.video.reformatter import VideoReformatter

from framekiln.contract.columns import Image
from framekiln.contract.errors import MediaError, Reason
from framekiln.media.damaged import CUT, check_sample_counts, is_truncated
from framekiln.media.file_types import Kind
from framekiln.media.files import MediaFile
from framekiln.media.frames import (
    Frame,
    FrameSource,
    FrameSpec,
    LostFrames,
    Reduced,
    max_frames,
    reduce_by,
    too_many_frames,
)
from framekiln.media.hdr import hdr_name
from framekiln.media.tags import CREDENTIALS_WITHIN, find_credentials, read_film_tags
from framekiln.media.units import Segments, VideoSegment
from framekiln.media.video import container
from framekiln.media.video.audio import SoundTrack, with_sound
from framekiln.media.video.holes import Pieces
from framekiln.media.video.joined_films import HEADS, find_join, find_unread
from framekiln.media.video.packet_decoder import FrameNumbers, PacketDecoder
from framekiln.media.video.segments import INDEXED, locate
from framekiln.media.video.shown_frames import DisplayMatrix, FrameClock, to_rgb, to_small_rgb
from framekiln.media.video.transport_stream import ends_in_a_frame

# Codecs whose decoders raise an error before the first key frame, or show grey: a video cut there is not damaged.
# H.264's and MPEG-2's drop such frames, and find unmarked key frames.
_NEED_KEY = (
    *("mpeg4", "msmpeg4v1", "msmpeg4v2", "msmpeg4v3", "h263", "flv1", "wmv1", "wmv2"),
    *("vp8", "vp9", "hevc", "av1", "ffv1"),
)
_NO_TIMES = ("avi",)  # formats without presentation times: libav's guesses for B-frames are wrong
_ENDS_CALMLY = ("dv", "ivf", "yuv4mpegpipe")  # formats in which libav reports damage, but no missing end
_CONSTANT = ("mxf",)  # formats of one rate; libav gives all frames of a second video the last time of the first


def open_video(media: MediaFile, kind: Kind, spec: FrameSpec, wanted: Segments) -> FrameSource:
    """Open some segments of a video, or if it has none all of it, for decoding on demand.

    The frames of a segment are followed by the next one's, as long as the caller reads on.
    Raises MediaError: EMPTY (no video), UNSUPPORTED (no decoder), TOO_LARGE, TRUNCATED, CORRUPT or UNREADABLE.
    """
    video = _VideoReader(media, kind, spec, wanted)
    frames, segment = video.frames(), video.segment
    if spec.sound:
        begins, ends = video.segment_times()
        frames = with_sound(frames, lambda: SoundTrack(media, kind, video.clock.origin, begins), ends)
    return FrameSource(
        media_type="video",
        frames=frames,
        fps=video.fps,
        tags=video.tags,
        segment=segment,
        share_read=video.share_read,
    )


class _VideoReader:
    """An open video file, read once from the start of a segment, or of the file, to its end."""

    def __init__(self, media: MediaFile, kind: Kind, spec: FrameSpec, wanted: Segments) -> None:
        self._spec, self._size, self._name, self._kind = spec, media.size, media.media_id, kind
        self._last = 0  # place of the last packet in bytes
        self._broke = False  # reading ended at damage, or continued after a hole
        self._reads_on = wanted.halo > 0 or spec.sound  # into the next segment
        self.segment: VideoSegment | None = None
        self._stream = container.open_film(media, kind)
        try:
            with container.decode_errors(self._stream, kind):
                self._open(kind, wanted)
        except MediaError:
            self._stream.close()
            raise
        self._decoder, self._pieces = PacketDecoder(self._track, kind), Pieces(self._stream, kind)
        stated = None if kind.name == "dv" else self._track.average_rate  # for DV libav gives its clock's rate
        rate = stated or self._track.guessed_rate
        self.fps = float(rate) if rate else None
        self.clock = FrameClock(self.fps, self._track.time_base, self.segment.origin if self.segment else None)
        self._stored: array[int] | None = array("q") if kind.name in _NO_TIMES else None  # storage times so far

    def share_read(self) -> float:
        return min(1.0, self._last / max(self._size, 1))

    def _open(self, kind: Kind, wanted: Segments) -> None:
        cut = kind.name == "mpegts" and ends_in_a_frame(self._stream)
        self._truncated = cut or is_truncated(self._stream, kind)
        if kind.name == INDEXED:
            check_sample_counts(self._stream, truncated=self._truncated)
        size = self._size = self._stream.seek(0, os.SEEK_END)
        self._stream.seek(0)
        credentials = find_credentials(self._stream.read(CREDENTIALS_WITHIN)) if self._spec.tags else {}
        self._join = None if self._truncated else find_join(self._stream, kind)
        self._stream.seek(0)
        self._container = container.open_container(self._stream, kind, self._spec.config.max_pixels)
        self._track = container.find_video_track(self._container, self._name)
        self._truncated = self._truncated and not _has_all_packets(self._track, size)
        self._configure()
        self.tags = {**read_film_tags(self._container, self._track), **credentials} if self._spec.tags else None
        context, frames = self._track.codec_context, self._track.frames
        least = self._spec.config.frames_of_segment(frames, context.height * context.width)
        if frames >= 2 * least and kind.name == INDEXED and not self._truncated:
            self.segment = locate(self._container, self._track, wanted, self._spec.config.every_nth, least)
            if self.segment is None:
                self._container.seek(0)

    def _configure(self) -> None:
        context = self._track.codec_context
        if context is None:
            raise MediaError(Reason.UNSUPPORTED, "there is no decoder for its video codec")
        if context.name == "rawvideo" and context.pix_fmt is None:
            raise MediaError(Reason.UNSUPPORTED, "its raw pixels have a format unknown to libav; convert it")
        if context.height or context.width:
            self._spec.check_size(context.height, context.width)
        context.thread_count = 1  # decode tasks run side by side, and threads cost a third more work
        container.set_limits(context, self._spec.config.max_pixels)

    def segment_times(self) -> tuple[float | None, tuple[int, float] | None]:
        """Return the time of the segment's first kept frame, and number and time of the first one after it, in s."""
        if self.segment is None:
            return None, None
        seconds, begins, ends = self.clock.time_s, self.segment.begins, self.segment.ends
        return None if begins is None else seconds(begins), None if ends is None else (ends[0], seconds(ends[1]))

    def frames(self) -> Iterator[Frame | LostFrames]:
        """Yield kept frames in display order, and losses between them. Closes the file at the end."""
        is_key = after_loss = False
        reformatter, matrix, before_s = VideoReformatter(), DisplayMatrix(), None
        with self._stream, self._container:
            for item in self._number_frames():
                if isinstance(item, LostFrames):
                    after_loss = True
                    yield item
                    continue
                index, av_frame = item
                size = (av_frame.height, av_frame.width)
                limit = max_frames("video", *size, self._size, self._spec.config.max_length)
                if index >= limit:
                    own = self.segment  # another task reports other segments' losses
                    if own is None or own.start <= limit < own.stop:
                        yield LostFrames(index=index, error=too_many_frames(limit, self._spec.config.max_length))
                    return
                pts = av_frame.pts if self._stored is None else self._stored[index]
                time_s = self.clock.time_s(None if self._kind.name in _CONSTANT else pts)
                is_key = is_key or av_frame.key_frame
                if not self._spec.keeps(index):
                    continue
                self._spec.check_size(*size)
                color_space = hdr_name(av_frame.color_primaries, av_frame.color_trc)
                values = {"time_s": time_s, "is_key": is_key, "after_loss": after_loss, "color_space": color_space}
                make = _make_reducer(av_frame, reformatter)
                times = (index, time_s, before_s, self.fps)
                unneeded = [name for name, is_needed in self._spec.needed.items() if not is_needed(*times)]
                yield self._spec.frame(index, size, matrix.orientation(av_frame), make, unneeded, **values)
                before_s = time_s
                is_key = after_loss = False

    def _number_frames(self) -> Iterator[tuple[int, Any] | LostFrames]:
        """Yield numbered frames; after a segment's, later ones without their losses."""
        if (segment := self.segment) is None:
            numbers = FrameNumbers(timed=self._stored is None)
            yield from self._decoder.frames(self._read_packets(), numbers)
            ended = self._broke or (numbers.error is not None and numbers.error.reason is Reason.TRUNCATED)
            unread = [*getattr(self._stream, "losses", ()), *find_unread(self._stream, self._kind, self._last)]
            for error in unread:
                if not (ended and error.reason is Reason.TRUNCATED):
                    yield LostFrames(index=numbers.count, error=error)
            return
        if segment.start:
            self._decoder.prime(segment.first_packet)
        packets, count = self._read_segment(segment), segment.stop - segment.start
        own = chain(islice(packets, count), [av.Packet()])
        yield from self._decoder.frames(own, FrameNumbers(timed=True, first=segment.start, stop=segment.stop))
        if self._reads_on and not segment.is_last:
            self._decoder.flush()
            later = self._decoder.frames(packets, FrameNumbers(timed=True, first=segment.stop))
            yield from (item for item in later if not isinstance(item, LostFrames))
        for error in find_unread(self._stream, self._kind, 0) if segment.is_last else ():
            yield LostFrames(index=segment.stop, error=error)

    def _read_segment(self, segment: VideoSegment) -> Iterator[Any]:
        """Yield packets from a segment's start on, or the error that ended reading."""
        try:
            yield from segment.packets
        except (av.FFmpegError, OSError) as exc:
            yield self._decoder.corrupt(exc)

    def _demux(self) -> Iterator[Any]:
        """Yield the track's packets and a last one of size 0, or the error that ended reading."""
        try:
            packets: Iterator[Any] = filter(container.has_content, self._container.demux(self._track))
            if self._track.codec_context.codec.canonical_name in _NEED_KEY:
                packets = dropwhile(lambda one: one.size and not one.is_keyframe and not one.is_corrupt, packets)
            yield from packets if self._join is None else self._stop_at_join(packets, self._join)
        except (av.FFmpegError, OSError) as exc:
            yield exc
        except IndexError:  # raised by PyAV
            yield ValueError("a packet is of a track that its header lacks")

    def _stop_at_join(self, packets: Iterator[Any], join: int) -> Iterator[Any]:
        """Yield packets up to the next video, at which times restart: its packets are foreign or incomplete.

        A fragment may state its place in its own file, so that the first video's packets come again.
        """
        last, start = -float("inf"), 0 if self._kind.name == INDEXED else join
        for packet in packets:
            if packet.dts is not None and (packet.pos or 0) >= start and packet.dts < last:
                yield av.Packet()
                return
            last = last if packet.dts is None else packet.dts
            yield packet

    def _read_packets(self) -> Iterator[Any]:
        """Yield packets with storage times, and errors; without a truncated one that libav does not mark."""
        head = HEADS.get(self._kind.name)
        for packet, following in pairwise(chain(self._demux(), [None])):
            if isinstance(packet, Exception):
                yield from self._explain(packet)
                continue
            if packet.size:
                if self._stored is not None:
                    packet.pts = packet.dts  # identifies the packet; the n-th frame shown has the n-th of these times
                    self._stored.append(packet.dts)
                is_last = not getattr(following, "size", 0)
                if is_last:
                    self._truncated = self._truncated or self._pieces.is_cut(packet.pos, self._size)
                    self._decoder.last, self._decoder.truncated = packet, packet if self._truncated else None
                elif not self._pieces.lead(packet.pos, following.pos):
                    packet.is_corrupt, self._broke = True, True
                    self._truncated = self._decoder.may_be_cut = False  # bytes are missing here, not at the end
                end = 0 if head is None or packet.pos is None else packet.pos + head + packet.size
                is_cut = is_last and end > 0 and (packet.is_corrupt or end > self._size)
                self._last = (0 if is_cut else end) or packet.pos or self._last
                if is_cut:
                    continue
            yield packet
        if self._truncated:
            yield MediaError(*CUT)

    def _explain(self, exc: Exception) -> Iterator[MediaError]:
        """Yield the error that ended reading, unless it is a missing end or a join, which are named later."""
        unread = find_unread(self._stream, self._kind, self._last)
        if not unread or (self._kind.name in _ENDS_CALMLY and unread[0].reason is Reason.TRUNCATED):
            self._broke = True
            yield self._decoder.corrupt(exc)


def _make_reducer(av_frame: Any, reformatter: VideoReformatter) -> Reduced:
    """Return the function that reduces a frame; it converts the whole frame to RGB once if needed."""
    full = cache(partial(to_rgb, av_frame, reformatter))

    def make(factor: int) -> Image:
        small = to_small_rgb(av_frame, factor) if factor > 1 else None
        return reduce_by(full(), factor) if small is None else small

    return make


def _has_all_packets(track: Any, size: int) -> bool:
    """Return whether an index lists all packets inside a file's size, whatever length the box around them states."""
    entries = list(track.index_entries) if track.frames else []
    whole = len(entries) == track.frames > 0
    return whole and max(entry.pos + entry.size for entry in entries) <= size
