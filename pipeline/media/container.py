"""The way into a film's file that pictures and sound share: one known format, no network, limits, errors as ours."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, BinaryIO

import av

from pipeline.errors import MediaError, Reason
from pipeline.media.ending import is_cut
from pipeline.media.sniff import Kind

ROOM = 1 << 20  # pixels that a codec may pad a frame by, above the limit on what is shown
_BUFFER = 1 << 18  # bytes of one read: a call into Python for each


def open_container(stream: BinaryIO, kind: Kind, max_pixels: int) -> Any:
    """The demuxer of exactly the format that was recognised, so that no file can name another one, or an address.

    Args:
        stream: the file, open for reading and seeking; stays open.
        kind: what `sniff` said of it.
        max_pixels: what a codec may allocate for one frame while the file is probed.
    """
    options = {"max_pixels": str(max_pixels + ROOM)}
    return av.open(stream, format=kind.name, metadata_errors="replace", options=options, buffer_size=_BUFFER)


@contextmanager
def translated(stream: BinaryIO, kind: Kind) -> Iterator[None]:
    """Errors of libav inside the block as `MediaError`: TRUNCATED, CORRUPT or TOO_LARGE."""
    try:
        yield
    except MediaError:
        raise
    except MemoryError as exc:
        raise MediaError(Reason.TOO_LARGE, "it does not fit into memory") from exc
    except Exception as exc:  # libav's errors derive from many of Python's
        reason = Reason.TRUNCATED if is_cut(stream, kind) else Reason.CORRUPT
        raise MediaError(reason, f"{kind.name}: {said(exc)}") from exc


def chosen(tracks: Sequence[Any]) -> Any:
    """The track that players show of several of a kind: the first that the file marks as default and we can decode.

    Without a mark the first that can be decoded; the first of all where none can be.
    """
    usual = av.stream.Disposition.default
    return max(tracks, key=lambda track: (track.codec_context is not None, bool(track.disposition & usual)))


def said(exc: Exception) -> str:
    """An error's own words, without the numbers and names of files that libav adds."""
    return getattr(exc, "strerror", None) or str(exc) or type(exc).__name__
