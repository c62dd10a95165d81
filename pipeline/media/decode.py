"""A unit of files becomes packets of rows: the one place where decoding, clips, limits and failures meet.

Nothing that is wrong with a file ends a run: a file that gives no frame is one line in the errors table, and so is each
stretch of a video that could not be decoded.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import islice

from pipeline.columns import is_pixels
from pipeline.errors import MediaError, Reason
from pipeline.failure import Failure
from pipeline.media.clips import Clip, cut
from pipeline.media.config import DecodeConfig
from pipeline.media.filling import Filling
from pipeline.media.frames import Frame, Lost, Opened
from pipeline.media.names import escape
from pipeline.media.photo import open_photo
from pipeline.media.pixels import Wanted
from pipeline.media.sniff import HEAD, sniff
from pipeline.media.store import Media, open_media, read_bytes, unreadable
from pipeline.media.units import Unit
from pipeline.media.video import open_video
from pipeline.packet import Packet


def decode(unit: Unit, columns: Sequence[str], halo: int, config: DecodeConfig) -> Iterator[Packet]:
    """Packets of a unit's frames, ended by an empty one.

    Args:
        unit: files, decoded in their order.
        columns: source columns that stages ask for; of pixels and sound only these are made.
        halo: how many of the next frames of its file follow each clip, as rows with `halo` true.
        config: what of each file is decoded.

    Yields:
        Packets of whole clips with the schema `packet_schema(columns)`: at most `packet_rows` rows and `packet_bytes`
        of asked pixels, unless a single clip (or photo) has more. `start` and `stop` count the unit's rows without halo
        rows. Failures ride on the packet that follows them. The last packet is empty (`start == stop ==` the unit's
        number of rows) and says that the unit is done.
    """
    filling = Filling(unit=unit.name, columns=columns, most_rows=config.packet_rows, most_bytes=config.packet_bytes)
    for media in unit.media:
        for source, clip in _clips(media, columns, halo, config, filling.failures):
            yield from filling.add(media.media_id, source, clip)
    yield from filling.finish()


def frames_of(media: Media, columns: Sequence[str], config: DecodeConfig) -> Iterator[Frame]:
    """Frames of one file, as `decode` makes rows of them, in display order and uncut.

    Raises:
        MediaError: the file could not be opened.
    """
    return islice(_frames(media, _open(media, columns, config), []), config.max_frames)


def _clips(
    media: Media, columns: Sequence[str], halo: int, config: DecodeConfig, failures: list[Failure]
) -> Iterator[tuple[Opened, Clip]]:
    try:
        source = _open(media, columns, config)
    except MediaError as exc:
        failures.append(_failure(media, exc))
        return
    except Exception as exc:
        failures.append(_failure(media, _unforeseen(exc)))
        return
    frames = islice(_frames(media, source, failures), config.max_frames)
    for clip in cut(frames, longest=config.clip_frames, most_bytes=config.packet_bytes // 2, halo=halo):
        yield source, clip


def _frames(media: Media, source: Opened, failures: list[Failure]) -> Iterator[Frame]:
    """The frames alone; what was lost becomes failures, a single one where there is no frame at all."""
    last = -1  # number of the last frame there was
    lost: list[Lost] = []
    try:
        for item in source.frames:
            if isinstance(item, Frame):
                last = item.index
                yield item
            else:
                lost.append(item)
    except MediaError as exc:
        lost.append(Lost(index=last + 1, error=exc))
    except Exception as exc:  # a fault of a decoder that was not foreseen is a fault of this file, not of the run
        lost.append(Lost(index=last + 1, error=_unforeseen(exc)))
    if last < 0:
        error = lost[0].error if lost else MediaError(Reason.EMPTY, "the file has no frame")
        failures.append(_failure(media, error))
    else:
        failures.extend(_failure(media, item.error, item.index) for item in lost)


def _open(media: Media, columns: Sequence[str], config: DecodeConfig) -> Opened:
    wanted = Wanted(
        pixels=tuple(name for name in columns if is_pixels(name)),
        sound="sound" in columns,
        fast=config.fast_mode,
        every_nth=config.every_nth,
        max_pixels=config.max_pixels,
        max_length=config.max_length,
    )
    with open_media(media) as stream, unreadable():
        kind = sniff(stream.read(HEAD))
    if kind.decoder == "video":
        return open_video(media, kind, wanted)
    return open_photo(read_bytes(media, 10 * config.max_pixels), kind, wanted)


def _unforeseen(exc: Exception) -> MediaError:
    if isinstance(exc, MemoryError):
        return MediaError(Reason.TOO_LARGE, "it does not fit into memory")
    return MediaError(Reason.CORRUPT, f"{type(exc).__name__}: {escape(str(exc))}")


def _failure(media: Media, error: MediaError, frame_index: int | None = None) -> Failure:
    return Failure(media_id=media.media_id, frame_index=frame_index, kind=error.reason.value, message=str(error))
