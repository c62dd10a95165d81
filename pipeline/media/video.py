"""A video's frames, one after the other, in memory that does not grow with its length, and none that is made up.

Where data are missing, decoders conceal it with grey or with the last picture. Here a damaged packet is an error, and
what follows it counts again from the next key frame on, since all between is predicted from the damage. Frames before
it are kept. Damage that a decoder does not notice, as bits that changed on a disk, passes.

Rows are frames in display order, with their presentation time from the first one. A large film is read in segments,
each by a decoder of its own (pipeline/media/segments.py).

On one core, 1280 x 720 h264: 780 frames a second with one thread (600 a core with frame threads), RGB of them 3,200.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterator
from contextlib import suppress
from functools import partial
from itertools import chain, islice, pairwise
from typing import Any

import av
from av.video.reformatter import VideoReformatter

from pipeline.errors import MediaError, Reason
from pipeline.media.bounds import beyond, most_frames
from pipeline.media.claims import check_claims
from pipeline.media.container import ROOM, chosen, open_container, said, translated
from pipeline.media.ending import is_cut
from pipeline.media.frames import Frame, Lost, Opened
from pipeline.media.numbering import Clock, Leading, Numbers
from pipeline.media.picture import Turns, rgb
from pipeline.media.pixels import Wanted
from pipeline.media.segments import INDEXED, Share, locate
from pipeline.media.sniff import Kind
from pipeline.media.sound import SoundTrack, with_sound
from pipeline.media.store import Media, open_media

_NO_TIMES = ("avi",)  # formats without presentation times: what libav gives for B-frames there is guessed, and wrong


def open_video(media: Media, kind: Kind, wanted: Wanted, share: Share) -> Opened:
    """A video, to be decoded as its frames are read.

    Args:
        media: the file.
        kind: what `sniff` said of it.
        wanted: sizes, limit, sound.
        share: which part of it, where it can be read in segments; the whole of it elsewhere. Its frames are followed
            by those of the next segment as long as any are asked for.

    Raises:
        MediaError: EMPTY (no picture in it), UNSUPPORTED (no decoder), TOO_LARGE, TRUNCATED, CORRUPT or UNREADABLE.
    """
    film = _Film(media, kind, wanted, share)
    frames, segment = film.frames(), film.segment
    if wanted.sound:
        begins, ends = film.times()
        frames = with_sound(frames, lambda: SoundTrack(media, kind, film.clock.origin, begins), ends)
    return Opened(media_type="video", frames=frames, fps=film.fps, segment=segment)


class _Film:
    """An open video file, read once from the start of a segment, or of the file, to its end."""

    def __init__(self, media: Media, kind: Kind, wanted: Wanted, share: Share) -> None:
        self._kind, self._wanted, self.segment, self._ahead = kind, wanted, None, share.halo > 0 or wanted.sound
        self._size = media.size
        self._stream = open_media(media)
        try:
            with translated(self._stream, kind):
                self._cut, self._half = is_cut(self._stream, kind), None
                if kind.name == INDEXED:
                    check_claims(self._stream, cut=self._cut)
                self._stream.seek(0)
                self._container = open_container(self._stream, kind, wanted.max_pixels)
                self._track = _picture_track(self._container)
                self._prepare()
                if share.count > 1 and kind.name == INDEXED and not self._cut:
                    self.segment = locate(self._container, self._track, share, wanted.every_nth)
                    if self.segment is None:
                        self._container.seek(0)
        except MediaError:
            self._stream.close()
            raise
        rate = self._track.average_rate or self._track.guessed_rate
        self.fps = float(rate) if rate else None
        origin = self.segment.origin if self.segment else None
        self.clock = Clock(self.fps, self._track.time_base, origin)
        self._stored: array[int] | None = array("q") if kind.name in _NO_TIMES else None  # storage times so far

    def _prepare(self) -> None:
        context = self._track.codec_context
        if context is None:
            raise MediaError(Reason.UNSUPPORTED, "there is no decoder for its video codec")
        if context.height or context.width:
            self._wanted.check(context.height, context.width)
        context.thread_count = 1  # decode tasks run beside each other, and threads cost a third more work
        context.options = {"err_detect": "explode", "max_pixels": str(self._wanted.max_pixels + ROOM)}

    def times(self) -> tuple[float | None, tuple[int, float] | None]:
        """When the segment's first kept frame is shown, and number and time of the first one after it, in s."""
        if self.segment is None:
            return None, None
        seconds, begins, ends = self.clock.time_s, self.segment.begins, self.segment.ends
        return None if begins is None else seconds(begins), None if ends is None else (ends[0], seconds(ends[1]))

    def frames(self) -> Iterator[Frame | Lost]:
        """Frames that are wanted, in display order, and what was lost between them. Closes the file at the end."""
        opens = breaks = False
        convert, turns = VideoReformatter(), Turns()
        with self._stream, self._container:
            for item in self._all():
                if isinstance(item, Lost):
                    breaks = True
                    yield item
                    continue
                index, picture = item
                most = self._most(picture.height, picture.width)
                if index >= most:
                    if self.segment is None or self.segment.start <= most < self.segment.stop:  # others tell nothing
                        yield Lost(index=index, error=beyond(most, self._wanted.max_length))
                    return
                time_s = self.clock.time_s(picture.pts if self._stored is None else self._stored[index])
                opens = opens or picture.key_frame
                if not self._wanted.keeps(index):
                    continue
                self._wanted.check(picture.height, picture.width)
                size, full = (picture.height, picture.width), partial(rgb, picture, convert)
                more = {"time_s": time_s, "opens": opens, "breaks": breaks}
                yield self._wanted.frame(index, size, turns.orientation(picture), full, **more)
                opens = breaks = False

    def _most(self, height: int, width: int) -> int:
        return most_frames("video", height, width, self._size, self._wanted.max_length)

    def _all(self) -> Iterator[tuple[int, Any] | Lost]:
        """Numbered pictures; of a segment, and then of those after it, whose losses another task tells."""
        if (segment := self.segment) is None:
            yield from self._pictures(self._packets(), Numbers(timed=self._stored is None))
            return
        if segment.start:
            self._learn(segment.opening)
        packets, count = self._read(segment.packets), segment.stop - segment.start
        own = chain(islice(packets, count), [av.Packet()])
        yield from self._pictures(own, Numbers(timed=True, first=segment.start, stop=segment.stop))
        if self._ahead and not segment.is_last:
            self._track.codec_context.flush_buffers()
            after = self._pictures(packets, Numbers(timed=True, first=segment.stop))
            yield from (item for item in after if not isinstance(item, Lost))

    def _learn(self, packet: Any) -> None:
        """Have the decoder see the film's first packet: for what an old x264 did wrong, it looks there who encoded."""
        with suppress(av.FFmpegError):
            self._track.codec_context.decode(packet)
        self._track.codec_context.flush_buffers()

    def _read(self, packets: Iterator[Any]) -> Iterator[Any]:
        """A segment's packets, or at the end what went wrong."""
        try:
            yield from packets
        except (av.FFmpegError, OSError) as exc:
            yield self._corrupt(exc)

    def _pictures(self, packets: Iterator[Any], numbers: Numbers) -> Iterator[tuple[int, Any] | Lost]:
        """Numbered pictures; after an error those from the next key frame on."""
        leading, skipping, ended = Leading(), False, False
        for packet in numbers.ahead(packets):
            if isinstance(packet, MediaError):
                numbers.lose(packet)
                break
            lead = leading.holds(packet, restarts=skipping)
            if (skipping and not packet.is_keyframe) or (lead and numbers.broken):
                numbers.skip(packet)
                continue
            pictures, failed = self._decode(packet, forgive=lead)
            if failed:
                numbers.lose(failed)
                ended = ended or failed.reason is Reason.TRUNCATED
            for item in (item for picture in pictures for item in numbers.given(picture)):
                yield item
                if ended and isinstance(item, Lost):  # nobody knows how many are missing before the pictures left
                    return
            skipping = failed is not None
            if skipping:
                numbers.skip(packet)
        yield from numbers.end()

    def _packets(self) -> Iterator[Any]:
        """The track's packets, a last one of size 0, or at the end what went wrong."""
        try:
            for packet, following in pairwise(chain(self._container.demux(self._track), [None])):
                if self._stored is not None and packet.size:
                    packet.pts = packet.dts  # names the packet; the n-th picture shown has the n-th of these times
                    self._stored.append(packet.dts)
                if self._cut and packet.size and (following is None or not following.size):
                    self._half = packet
                yield packet
        except (av.FFmpegError, OSError) as exc:
            yield self._corrupt(exc)
        if self._cut:
            yield MediaError(Reason.TRUNCATED, "the end of the file is missing")

    def _decode(self, packet: Any, *, forgive: bool) -> tuple[list[Any], MediaError | None]:
        """What a packet gives; at an error, what the decoder still holds of the time before it.

        With `forgive`, a packet that cannot be decoded gives nothing, and is no error.
        """
        failed = None
        try:
            if packet is self._half:
                raise MediaError(Reason.TRUNCATED, "the end of the file is missing")
            if packet.size and packet.is_corrupt:
                raise MediaError(Reason.CORRUPT, "a packet is incomplete")
            pictures = self._track.codec_context.decode(packet if packet.size else None)
        except (av.FFmpegError, MediaError) as exc:
            if forgive and isinstance(exc, av.FFmpegError):
                return [], None
            failed = exc if isinstance(exc, MediaError) else self._corrupt(exc)
            pictures = [picture for picture in self._drained() if picture.pts != packet.pts]
        whole = [picture for picture in pictures if not picture.is_corrupt]
        if len(whole) < len(pictures) and not forgive:
            failed = failed or MediaError(Reason.CORRUPT, "a frame refers to data that are missing")
        return whole, failed

    def _drained(self) -> list[Any]:
        context = self._track.codec_context
        try:
            return list(context.decode(None))
        except av.FFmpegError:
            return []
        finally:
            context.flush_buffers()

    def _corrupt(self, exc: Exception) -> MediaError:
        return MediaError(Reason.CORRUPT, f"{self._kind.name}: {said(exc)}")


def _picture_track(container: Any) -> Any:
    covers = av.stream.Disposition.attached_pic
    tracks = [track for track in container.streams.video if not track.disposition & covers]
    if tracks:
        return chosen(tracks)
    raise MediaError(
        Reason.EMPTY, "there is only sound in it" if container.streams.audio else "there is no video in it"
    )
