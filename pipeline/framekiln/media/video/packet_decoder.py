"""Packets of a video track to numbered frames, with errors where data are missing.

Decoders conceal missing data with grey or with the last frame. Here a damaged packet is an error. All frames up to the
next key frame are lost with it, since they are predicted from damage. Earlier frames are kept. Damage that a decoder
does not detect, such as flipped bits on a disk, remains undetected, except in FFV1 with checksums.
"""

import heapq
import zlib
from collections import deque
from collections.abc import Iterable, Iterator
from contextlib import suppress
from typing import Any

import av

from framekiln.contract.errors import MediaError, Reason
from framekiln.media.damaged import CUT
from framekiln.media.file_types import Kind
from framekiln.media.frames import LostFrames
from framekiln.media.video.container import error_text
from framekiln.media.video.segments import REORDERED

_WITH_LENGTH = ("avi", "matroska", "mov", "mpegts", "mxf")
"""Formats that show whether their end is missing; in others, an error of the last packet means so."""


class FrameNumbers:
    """Numbers of frames in display order, from `first` on, and up to `stop` if the file's index has it.

    Lost frames are counted by the times of their packets, if these are `timed`.
    """

    def __init__(self, *, timed: bool, first: int = 0, stop: int | None = None) -> None:
        self._timed, self._stop = timed, stop
        self._next = first
        self._error: MediaError | None = None  # the latest error
        self._unreported = False  # losses without a `LostFrames` so far
        self._times: list[int] = []  # heap of times of packets without a frame so far
        self._unknown = 0  # lost packets without a time

    @property
    def count(self) -> int:
        return self._next

    @property
    def error(self) -> MediaError | None:
        return self._error

    def look_ahead(self, packets: Iterable[Any]) -> Iterator[Any]:
        """Yield the same packets or errors, some of them read ahead.

        After an error a decoder returns its frames early; the times of frames before them must be known by then.
        """
        queue: deque[Any] = deque()
        for packet in packets:
            queue.append(packet)
            timed = self._timed and not isinstance(packet, MediaError) and packet.size and packet.pts is not None
            if timed and not packet.is_discard:  # hidden by an edit list
                heapq.heappush(self._times, packet.pts)
            if len(queue) > REORDERED:
                yield queue.popleft()
        yield from queue

    def lose(self, error: MediaError) -> None:
        self._error, self._unreported = error, True

    def skip(self, packet: Any) -> None:
        self._unknown += bool(packet.size and (packet.pts is None or not self._timed))
        self._unreported = True

    def assign(self, av_frame: Any) -> Iterator[tuple[int, Any] | LostFrames]:
        """Yield the losses before a frame, then the frame with its number."""
        lost, self._unknown = self._unknown, 0
        while self._times and av_frame.pts is not None and self._times[0] <= av_frame.pts:
            # without an error, a skipped one is not meant to be shown (VP8's alternate reference frames)
            lost += heapq.heappop(self._times) < av_frame.pts and (self._error is not None or self._stop is not None)
        if lost and (self._error or self._stop is not None):
            yield LostFrames(index=self._next, error=self._error or MediaError(Reason.CORRUPT, "a packet has no frame"))
            self._unreported = False
        if self._stop is None or self._next + lost < self._stop:
            yield self._next + lost, av_frame
        self._next += lost + 1

    def finish(self) -> Iterator[LostFrames]:
        """Yield the losses after the last frame, and an error of the index."""
        if self._error and self._unreported:
            yield LostFrames(index=self._next, error=self._error)
        elif self._stop is not None and self._next != self._stop and not self._error:
            count = f"{abs(self._stop - self._next)} {'fewer' if self._next < self._stop else 'more'} frames"
            error = MediaError(Reason.CORRUPT, f"it has {count} than its index before frame {self._stop}")
            yield LostFrames(index=min(self._next, self._stop), error=error)


class PacketDecoder:
    """The decoder of one of libav's tracks, in a file of some kind."""

    def __init__(self, track: Any, kind: Kind) -> None:
        self._context, self._kind = track.codec_context, kind
        self._checksums = SliceChecksums() if self._context.name == "ffv1" else None
        self._size = b""  # size in the last sequence header of MPEG-1 or MPEG-2
        self.truncated: Any = None  # the packet at the missing end of a file
        self.last: Any = None  # the file's last packet
        self.may_be_cut = kind.name not in _WITH_LENGTH  # and no hole was found

    def prime(self, packet: Any) -> None:
        """Decode the film's first packet: it identifies the encoder, and libav works around errors of old x264."""
        with suppress(av.FFmpegError):
            self._context.decode(packet)
        self.flush()

    def flush(self) -> None:
        """Discard all state before decoding continues elsewhere."""
        self._context.flush_buffers()

    def frames(self, packets: Iterator[Any], numbers: FrameNumbers) -> Iterator[tuple[int, Any] | LostFrames]:
        """Yield numbered frames; after an error, those from the next key frame on.

        The packets are in storage order; a `MediaError` among them marks the end of reading.
        """
        leading, skipping, truncated, cut = _LeadingFrames(), False, False, True
        for packet in numbers.look_ahead(packets):
            if isinstance(packet, MediaError):
                numbers.lose(packet)
                break
            is_leading = leading.contains(packet, restart=skipping)
            if (skipping and not packet.is_keyframe) or (is_leading and numbers.error):
                numbers.skip(packet)
                continue
            cut = cut and not packet.is_keyframe and not numbers.count  # before the first key frame nothing is damaged
            av_frames, error = self._decode(packet, tolerant=is_leading or cut)
            if error:
                numbers.lose(error)
                truncated = truncated or error.reason is Reason.TRUNCATED
            for item in (item for av_frame in av_frames for item in numbers.assign(av_frame)):
                yield item
                if truncated and isinstance(item, LostFrames):  # the numbers of later frames are unknown
                    return
            skipping = error is not None
            if skipping:
                numbers.skip(packet)
        yield from numbers.finish()

    def corrupt(self, exc: Exception) -> MediaError:
        return MediaError(Reason.CORRUPT, f"{self._kind.name}: {error_text(exc)}")

    def _decode(self, packet: Any, *, tolerant: bool) -> tuple[list[Any], MediaError | None]:
        """Return a packet's frames; after an error, the decoder's remaining frames before it.

        With `tolerant`, an undecodable packet has no frames, without an error.
        """
        error, before = None, list[Any]()
        try:
            if packet is self.truncated:
                raise MediaError(*CUT)
            if packet.size and packet.is_corrupt:
                raise MediaError(*CUT) if self.may_be_cut else MediaError(Reason.CORRUPT, "a packet is incomplete")
            if packet.size and self._checksums and not self._checksums.match(bytes(packet)):
                raise MediaError(Reason.CORRUPT, "a slice does not match its checksum")
            before = self._drain() if self._changes_size(packet) else []
            av_frames = before + self._context.decode(packet if packet.size else None)
        except (av.FFmpegError, MediaError) as exc:
            if tolerant and isinstance(exc, av.FFmpegError):
                return [], None
            error = exc if isinstance(exc, MediaError) else self.corrupt(exc)
            error = MediaError(*CUT) if self.may_be_cut and packet is self.last else error
            av_frames = [av_frame for av_frame in (*before, *self._drain()) if av_frame.pts != packet.pts]
        intact = [av_frame for av_frame in av_frames if not av_frame.is_corrupt]
        if len(intact) < len(av_frames) and not tolerant:
            error = error or MediaError(Reason.CORRUPT, "a frame refers to missing data")
        return intact, error

    def _changes_size(self, packet: Any) -> bool:
        """Return whether a packet begins with images of another size, at which libav drops the image that it holds.

        Only its decoders of MPEG-1 and MPEG-2 do; the others return it first.
        """
        if self._context.name not in ("mpeg1video", "mpeg2video") or not packet.is_keyframe:
            return False
        before, (_, mark, after) = self._size, bytes(packet).partition(b"\0\0\1\xb3")
        self._size = after[:3] if mark else before  # ISO/IEC 13818-2, 6.2.2.1: twice 12 bits
        return bool(before) and before != self._size

    def _drain(self) -> list[Any]:
        try:
            return list(self._context.decode(None))
        except av.FFmpegError:
            return []
        finally:
            self.flush()


class _LeadingFrames:
    """Frames stored after a key frame and shown before it (open GOPs), if decoding began at that key frame.

    Their references are missing or damaged. Players skip them at the start of a cut file.
    """

    def __init__(self) -> None:
        self._entry: int | None = None  # time of the key frame at which decoding began
        self._started = False

    def contains(self, packet: Any, *, restart: bool) -> bool:
        """Return whether the file's next packet is a leading frame; `restart` if decoding begins again at it."""
        if packet.is_keyframe:
            self._entry = packet.pts if restart or not self._started else None
            self._started = True
        times = (packet.pts, self._entry)
        return bool(packet.size) and None not in times and packet.pts < self._entry


_TRAILER = 8  # bytes at a slice's end: size in 3, status in 1, checksum in 4 (RFC 9043, 4.9)
_REVERSED = bytes(int(f"{value:08b}"[::-1], 2) for value in range(256))  # zlib's CRC takes the lowest bit first
_START = 0xFFFFFFFF  # zlib inverts it: FFV1's CRC starts at 0 and is not inverted


class SliceChecksums:
    """The checksums of one FFV1 track. The first slice that matches its own shows that the track has them.

    libav logs a wrong checksum, fills the slice with other pixels and returns the frame as whole, even with
    `err_detect`.
    """

    def __init__(self) -> None:
        self._has_checksums = False

    def match(self, packet: bytes) -> bool:
        """Return whether all slices of a frame match their checksums; true for tracks without any."""
        # the CRC-32 of a slice with its checksum is 0 (polynomial 04C11DB7, RFC 9043, 4.9.3)
        matches = [zlib.crc32(part.translate(_REVERSED), _START) == _START for part in _split_slices(packet)]
        self._has_checksums = self._has_checksums or any(matches)
        return all(matches) or not self._has_checksums


def _split_slices(packet: bytes) -> list[bytes]:
    """Return a frame's slices, last first. If a size is impossible, the rest is one slice."""
    slices, end = [], len(packet)
    while end:
        size = int.from_bytes(packet[max(0, end - _TRAILER) : end][:3], "big") + _TRAILER
        start = end - size if size <= end else 0
        slices.append(packet[start:end])
        end = start
    return slices
