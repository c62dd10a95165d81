"""A video's frames, one after the other, in memory that does not grow with its length, and none that is made up.

Where data are missing, decoders conceal it with grey or with the last picture. Here a damaged packet is an error, and
what follows it counts again from the next key frame on, since all between is predicted from the damage. Frames before
it are kept. Damage that a decoder does not notice, as bits that changed on a disk, passes.

Rows are frames in display order, with their presentation time from the first one. Pixels are the stored ones, turned as
the file's display matrix says, without correction for pixels that are not square; HDR is mapped to sRGB. Colours follow
the matrix that the stream names; one that names none is taken for BT.709 where it is at least 1280 wide or more than
576 high, and for BT.601 otherwise, as the player mpv does.

On one core, 1280 x 720 h264: 780 frames a second with one thread (600 a core with frame threads), RGB of them 3,200.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterator
from contextlib import suppress
from functools import partial
from itertools import chain, pairwise
from typing import Any

import av
import numpy as np
from av.video.reformatter import VideoReformatter

from pipeline.columns import Image
from pipeline.errors import MediaError, Reason
from pipeline.media.bounds import beyond, most_frames
from pipeline.media.claims import check_claims
from pipeline.media.container import ROOM, chosen, open_container, said, translated
from pipeline.media.ending import is_cut
from pipeline.media.frames import Frame, Lost, Opened
from pipeline.media.numbering import Clock, Leading, Numbers
from pipeline.media.pixels import Wanted
from pipeline.media.sniff import Kind
from pipeline.media.sound import SoundTrack, with_sound
from pipeline.media.store import Media, open_media

_NO_TIMES = ("avi",)  # formats without presentation times: what libav gives for B-frames there is guessed, and wrong
_BT709, _UNSPECIFIED, _BT601 = 1, 2, 5  # AVColorSpace; ITU-T H.273, table 4
_HDR, _SRGB = (16, 18), 13  # AVColorTransferCharacteristic: PQ and HLG (ITU-R BT.2100), sRGB; H.273, table 3
_NAMED_PRIMARIES = (1, 9, 11, 12)  # AVColorPrimaries: BT.709, BT.2020, DCI-P3, Display P3; H.273, table 2


def open_video(media: Media, kind: Kind, wanted: Wanted) -> Opened:
    """A video, to be decoded as its frames are read.

    Args:
        media: the file.
        kind: what `sniff` said of it.
        wanted: sizes, limit, sound.

    Raises:
        MediaError: EMPTY (no picture in it), UNSUPPORTED (no decoder), TOO_LARGE, TRUNCATED, CORRUPT or UNREADABLE.
    """
    film = _Film(media, kind, wanted)
    frames = film.frames()
    if wanted.sound:
        frames = with_sound(frames, lambda: SoundTrack(media, kind, film.clock.origin))
    return Opened(media_type="video", frames=frames, fps=film.fps)


class _Film:
    """An open video file, read once from its start to its end."""

    def __init__(self, media: Media, kind: Kind, wanted: Wanted) -> None:
        self._kind, self._wanted = kind, wanted
        self._size = media.size
        self._stream = open_media(media)
        try:
            with translated(self._stream, kind):
                self._cut, self._half = is_cut(self._stream, kind), False
                if kind.name == "mov":
                    check_claims(self._stream, cut=self._cut)
                self._stream.seek(0)
                self._container = open_container(self._stream, kind, wanted.max_pixels)
                self._track = _picture_track(self._container)
                self._prepare()
        except MediaError:
            self._stream.close()
            raise
        rate = self._track.average_rate or self._track.guessed_rate
        self.fps = float(rate) if rate else None
        self.clock = Clock(self.fps, self._track.time_base)
        self._stored: array[int] | None = array("q") if kind.name in _NO_TIMES else None  # storage times so far

    def _prepare(self) -> None:
        context = self._track.codec_context
        if context is None:
            raise MediaError(Reason.UNSUPPORTED, "there is no decoder for its video codec")
        if context.height or context.width:
            self._wanted.check(context.height, context.width)
        context.thread_count = 1  # decode tasks run beside each other, and threads cost a third more work
        context.options = {"err_detect": "explode", "max_pixels": str(self._wanted.max_pixels + ROOM)}

    def frames(self) -> Iterator[Frame | Lost]:
        """Frames that are wanted, in display order, and what was lost between them. Closes the file at the end."""
        opens = breaks = False
        convert, turns = VideoReformatter(), _Turns()
        with self._stream, self._container:
            for item in self._pictures():
                if isinstance(item, Lost):
                    breaks = True
                    yield item
                    continue
                index, picture = item
                most = self._most(picture.height, picture.width)
                if index >= most:
                    yield Lost(index=index, error=beyond(most, self._wanted.max_length))
                    return
                time_s = self.clock.time_s(picture.pts if self._stored is None else self._stored[index])
                opens = opens or picture.key_frame
                if not self._wanted.keeps(index):
                    continue
                self._wanted.check(picture.height, picture.width)
                size, full = (picture.height, picture.width), partial(_rgb, picture, convert)
                more = {"time_s": time_s, "opens": opens, "breaks": breaks}
                yield self._wanted.frame(index, size, turns.orientation(picture), full, **more)
                opens = breaks = False

    def _most(self, height: int, width: int) -> int:
        return most_frames("video", height, width, self._size, self._wanted.max_length)

    def _pictures(self) -> Iterator[tuple[int, Any] | Lost]:
        """Numbered pictures; after an error those from the next key frame on."""
        numbers, leading, skipping, ended = Numbers(timed=self._stored is None), Leading(), False, False
        for packet in self._packets():
            if isinstance(packet, MediaError):
                numbers.lose(packet)
                break
            numbers.expect(packet)
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
                self._half = self._cut and bool(packet.size) and (following is None or not following.size)
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
            if self._half:
                raise MediaError(Reason.TRUNCATED, "the end of the file is missing")
            if packet.size and packet.is_corrupt:
                raise MediaError(Reason.CORRUPT, "a packet is incomplete")
            pictures = packet.decode()
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


def _rgb(picture: Any, convert: Any) -> Image:
    if picture.color_trc in _HDR and picture.color_primaries in _NAMED_PRIMARIES:
        with suppress(TypeError, av.FFmpegError):  # a libav older than 8 does not convert; the plain way below does
            return convert.reformat(
                picture, format="rgb24", dst_color_trc=_SRGB, dst_color_primaries=_BT709, threads=1
            ).to_ndarray()
    matrix = None  # the frame's own
    if picture.colorspace == _UNSPECIFIED and not picture.format.is_rgb:
        matrix = _BT709 if picture.width >= 1280 or picture.height > 576 else _BT601
    return convert.reformat(
        picture, format="rgb24", src_colorspace=matrix, dst_colorspace=matrix, threads=1
    ).to_ndarray()


class _Turns:
    """The display matrix (ISO/IEC 14496-12, 8.3.2) as an EXIF orientation; 1 for turns by other than quarters.

    It is looked at again only when its angle changes: libav's side data, once touched, keep a frame alive in a cycle.
    """

    def __init__(self) -> None:
        self._angle: int | None = None
        self._orientation = 1

    def orientation(self, picture: Any) -> int:
        if picture.rotation != self._angle:
            self._angle = picture.rotation
            self._orientation = _by_matrix(picture.side_data.get("DISPLAYMATRIX"))
        return self._orientation


def _by_matrix(data: Any) -> int:
    if data is None:
        return 1
    a, b, _, c, d = np.sign(np.frombuffer(data, dtype=np.int32)[:5]).tolist()
    return _TURNS.get((a, b, c, d), 1)


# x' = a x + c y, y' = b x + d y, with y downwards
_TURNS = {
    (1, 0, 0, 1): 1,
    (-1, 0, 0, 1): 2,
    (-1, 0, 0, -1): 3,
    (1, 0, 0, -1): 4,
    (0, 1, 1, 0): 5,
    (0, 1, -1, 0): 6,
    (0, -1, -1, 0): 7,
    (0, -1, 1, 0): 8,
}
