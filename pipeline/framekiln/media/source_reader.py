"""Files opened by their content, and their frames, under a guard.

The guard protects from native decoders that crash or hang on a file and end their process.
"""

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from hashlib import blake2b
from itertools import islice, takewhile
from typing import TypeVar

from framekiln.contract.columns import DIGEST, is_pixel_column
from framekiln.contract.errors import MediaError, Reason
from framekiln.contract.row_errors import Failure
from framekiln.media.access import access_errors
from framekiln.media.archives import Archive, is_archive
from framekiln.media.config import DecodeConfig
from framekiln.media.damaged import check_written
from framekiln.media.file_types import HEAD_BYTES, kind_of
from framekiln.media.files import MediaFile, open_media, read_stream
from framekiln.media.frames import Frame, FrameSource, FrameSpec, IsNeeded, LostFrames
from framekiln.media.images.photo import open_photo
from framekiln.media.media_ids import escape
from framekiln.media.read_ahead import ReadAhead
from framekiln.media.sidecars import read_sidecar
from framekiln.media.units import Segments

T = TypeVar("T")


@dataclass(frozen=True)
class ReadLimit:
    """The readable part of a file that kills its decoder."""

    max_items: int  # frames and lost stretches in the decoder's order; -1 if the file cannot be opened
    cause: str  # cause of the process's death

    @property
    def error(self) -> MediaError:
        """The error for the rest of the file."""
        after = f" after {self.max_items} frames" if self.max_items > 0 else ""
        message = f"decoding killed the process ({self.cause}){after}, also in a separate process"
        return MediaError(Reason.CRASHED, message)


class Guard:
    """An observer of decoding: called before each file, or segment, is opened, and after each frame.

    This one has no effect.
    """

    def start_file(self, media: MediaFile, wanted: Segments) -> ReadLimit | None:  # noqa: ARG002
        """Register a file before it is opened; return its limit, or None to read all of it."""
        return None

    def heartbeat(self) -> None:
        """Register a decoded frame or an opened file."""


def guarded(items: Iterator[T], guard: Guard, limit: ReadLimit | None) -> Iterator[T]:
    """Yield a decoder's items up to the limit. Raises MediaError: CRASHED, at the limit."""
    if limit is not None and not limit.max_items:
        raise limit.error
    for count, item in enumerate(items, 1):
        guard.heartbeat()
        yield item
        if limit is not None and count >= limit.max_items:
            raise limit.error


NO_GUARD = Guard()


@dataclass(frozen=True, kw_only=True)
class SourceReader:
    """A reader of files for a set of columns."""

    columns: Sequence[str]  # source columns that steps read
    config: DecodeConfig
    halo: int = 0  # frames after each clip
    guard: Guard = NO_GUARD  # called for each file and frame
    drops: Collection[str] = ()  # columns that packets do not carry
    ahead: ReadAhead = field(default_factory=ReadAhead)  # of the files that are opened
    needed: Mapping[str, Mapping[str, IsNeeded]] = field(default_factory=dict)  # by file and pixel column

    @property
    def carried(self) -> list[str]:
        """The columns that packets carry."""
        return [name for name in self.columns if name not in self.drops]

    def open(self, media: MediaFile, wanted: Segments) -> FrameSource:
        """Open a file, or one of its segments. Raises MediaError: it cannot be opened, or kills its decoder."""
        limit = self.guard.start_file(media, wanted)
        if limit is not None and limit.max_items < 0:
            raise limit.error
        source = self._open(media, wanted)
        if "tags" in self.columns and media.sidecar is not None:
            source = replace(source, tags={**(source.tags or {}), **read_sidecar(media.sidecar)})
        self.guard.heartbeat()
        return replace(source, frames=guarded(source.frames, self.guard, limit))

    def segments(self, media: MediaFile) -> Iterator[FrameSource]:
        """Yield a file, or its segments in order. Raises MediaError: it cannot be opened."""
        following: Segments | None = Segments()
        while following is not None:
            source = self.open(media, following)
            segment, following = source.segment, None
            if segment is not None:
                following = segment.following
                if self.rows_before(segment.start) == self.rows_before(segment.stop):
                    continue  # --every-nth or max_frames leaves none of its frames
            yield source

    def rows_before(self, number: int) -> int:
        """Return the number of kept frames of a film before a frame."""
        rows = -(-number // self.config.every_nth)
        return rows if self.config.max_frames is None else min(rows, self.config.max_frames)

    def frames(self, media: MediaFile, source: FrameSource, failures: list[Failure]) -> Iterator[Frame]:
        """Yield frames up to `max_frames`, even beyond a segment's end. Losses go to `failures`."""
        frames, limit = _split_losses(media, source, failures), self.config.max_frames
        if limit is None:
            return frames
        if source.segment is None:
            return islice(frames, limit)
        return takewhile(lambda frame: frame.index < limit * self.config.every_nth, frames)

    def _open(self, media: MediaFile, wanted: Segments) -> FrameSource:
        config = self.config
        spec = FrameSpec(
            pixels=tuple(name for name in self.carried if is_pixel_column(name)),
            dropped=tuple(name for name in self.columns if name in self.drops and is_pixel_column(name)),
            sound="sound" in self.columns,
            tags="tags" in self.columns,
            config=config,
            needed=self.needed.get(media.media_id, {}),
        )
        content = self.ahead.take(media)
        with open_media(media) if content is None else content as stream, access_errors():
            head = stream.read(HEAD_BYTES)
            if is_archive(media.media_id, head):
                raise Archive.read(media).verdict
            kind = kind_of(media.media_id, head)
            check_written(stream)
            data = b"" if kind.decoder == "video" else read_stream(stream, 10 * config.max_pixels)
        if kind.decoder == "video":
            from framekiln.media.video.reader import open_video  # loads libav, which photos do not need

            return open_video(media, kind, spec, replace(wanted, halo=self.halo))
        digest = blake2b(data, digest_size=DIGEST.byte_width).digest() if "digest" in self.columns else None
        return replace(open_photo(data, kind, spec), digest=digest)


def as_failure(media: MediaFile, exc: Exception, frame_index: int | None = None) -> Failure:
    """Return the failure of a file; an unforeseen decoder error belongs to the file, not the run."""
    error = _make_error(exc)
    return Failure(media_id=media.media_id, frame_index=frame_index, kind=error.reason.value, message=str(error))


def _make_error(exc: Exception) -> MediaError:
    if isinstance(exc, MediaError):
        return exc
    if isinstance(exc, MemoryError):
        return MediaError(Reason.TOO_LARGE, "it does not fit into memory")
    return MediaError(Reason.CORRUPT, f"{type(exc).__name__}: {escape(str(exc))}")


def _split_losses(media: MediaFile, source: FrameSource, failures: list[Failure]) -> Iterator[Frame]:
    """Yield only the frames; losses become failures, a single one if a file has no frame at all."""
    last = source.segment.start - 1 if source.segment else -1  # number of the last frame so far
    losses: list[LostFrames] = []
    stop = source.segment.stop if source.segment else None
    try:
        for item in source.frames:
            if isinstance(item, LostFrames):
                losses.append(item)
                continue
            last = item.index
            if stop is not None and last >= stop:
                failures.extend(as_failure(media, loss.error, loss.index) for loss in losses)
                losses.clear()
            yield item
    except Exception as exc:
        losses.append(LostFrames(index=last + 1, error=_make_error(exc)))
    if last < 0 and stop is None:
        error = losses[0].error if losses else MediaError(Reason.EMPTY, "the file has no frame")
        failures.append(as_failure(media, error))
    else:
        failures.extend(as_failure(media, loss.error, loss.index) for loss in losses)
