"""Containers of video and sound, opened by libav: one known format, no network, limits, errors as `MediaError`."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, BinaryIO

import av

from framekiln.contract.errors import MediaError, Reason
from framekiln.media.damaged import find_missing_index, is_truncated
from framekiln.media.file_types import Kind, is_of_media, pass_over
from framekiln.media.files import MediaFile, open_media
from framekiln.media.video.transport_stream import open_transport_stream

PADDING = 1 << 20  # pixels that a codec may add to a frame, above the limit on the shown size
_BUFFER = 1 << 18  # bytes of one read, each a call into Python
_TAGS = {"metadata_errors": "replace"} if int(av.__version__.partition(".")[0]) < 19 else {}
"""Arguments that make tags other than UTF-8 harmless; PyAV 19 needs none."""


def open_film(media: MediaFile, kind: Kind) -> BinaryIO:
    """Open a video for reading and seeking, joined transport streams as one. Raises MediaError: UNREADABLE."""
    return open_transport_stream(media) if kind.name == "mpegts" else open_media(media)


def open_container(stream: BinaryIO, kind: Kind, max_pixels: int) -> Any:
    """Return a demuxer of exactly the detected format, so that no file can select another one, or an address.

    While the file is probed, a codec may allocate `max_pixels` for one frame. The stream stays open.
    """
    options = {"max_pixels": str(max_pixels + PADDING)}
    open_file: Any = av.open  # the types of PyAV 18 and 19 differ
    return open_file(stream, format=kind.name, options=options, buffer_size=_BUFFER, **_TAGS)


def set_limits(context: Any, max_pixels: int) -> None:
    """Let a decoder refuse damage and larger frames. libav's TIFF decoder takes tags of whole frames for damage."""
    strict = {} if context.name == "tiff" else {"err_detect": "explode"}
    context.options = {**strict, "max_pixels": str(max_pixels + PADDING)}


@contextmanager
def decode_errors(stream: BinaryIO, kind: Kind) -> Iterator[None]:
    """Raise `MediaError` for errors of libav inside the block: TRUNCATED, CORRUPT, UNSUPPORTED or TOO_LARGE."""
    try:
        yield
    except MediaError:
        raise
    except MemoryError as exc:
        raise MediaError(Reason.TOO_LARGE, "it does not fit into memory") from exc
    except (av.error.PatchWelcomeError, av.error.DecoderNotFoundError) as exc:
        raise MediaError(Reason.UNSUPPORTED, f"{kind.name}: a variant that libav does not support; convert it") from exc
    except Exception as exc:  # libav's errors derive from many of Python's
        if kind.name == "mov" and (error := find_missing_index(stream)):
            raise error from exc
        reason = Reason.TRUNCATED if isinstance(exc, EOFError) or is_truncated(stream, kind) else Reason.CORRUPT
        raise MediaError(reason, f"{kind.name}: {error_text(exc)}") from exc


def default_track(tracks: Sequence[Any]) -> Any:
    """Return the track that players use: the first one marked as default with a decoder.

    Without a mark it is the first with a decoder, or the first of all if none has one. A track of one frame comes last:
    it is a video's still picture, or a sequence's first one.
    """
    default = av.stream.Disposition.default

    def rank(track: Any) -> tuple[bool, bool, bool]:
        return track.codec_context is not None, track.frames != 1, bool(track.disposition & default)

    return max(tracks, key=rank)


def find_video_track(container: Any, name: str) -> Any:
    """Return the film's track without covers. Raises MediaError: EMPTY, or PASSED_OVER for a file of sound."""
    covers = av.stream.Disposition.attached_pic
    tracks = [track for track in container.streams.video if not track.disposition & covers]
    if tracks:
        return default_track(tracks)
    if container.streams.audio and not is_of_media(name):
        raise pass_over("sound")
    raise MediaError(Reason.EMPTY, "it has sound but no video" if container.streams.audio else "it has no video")


def has_content(packet: Any) -> bool:
    """Return whether a packet has a frame or sound, or is the last one.

    Theora repeats a frame by a packet of size 0, which would end decoding, and has its headers again at a join.
    """
    if not packet.size:
        return packet.dts is None
    return not (packet.stream.codec_context.name == "theora" and memoryview(packet)[0] & 0x80)


def error_text(exc: Exception) -> str:
    """Return an error's message, without the numbers and file names that libav adds."""
    return getattr(exc, "strerror", None) or str(exc) or type(exc).__name__
