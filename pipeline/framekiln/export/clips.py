"""Clips: which parts of videos, as separate files, with a table of where each comes from.

Existing clips are kept: a clip is a whole file or absent, and the table is rewritten as clips are added. So a stopped
export continues where it was.
"""

import shutil
import tempfile
import time
from collections.abc import Generator, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa

from framekiln.contract.columns import KEYS, MEDIA_ID
from framekiln.contract.columns import field as column
from framekiln.contract.errors import InputError, MediaError, OutputError, Reason
from framekiln.contract.row_errors import Failure
from framekiln.export.pictures import check_unchanged
from framekiln.export.request import CLIPS, FRAMES, SHOTS, ClipRequest
from framekiln.media.files import MediaFile
from framekiln.media.media_ids import as_folder, is_url
from framekiln.media.video.cutting import cut
from framekiln.media.video.film_span import Span
from framekiln.output.object_store import Store
from framekiln.selection.rows import Rows

_FPS = 25  # rate of a video that states none, as in `media`

_FILMS = (
    "SELECT frames.*, row_number() OVER (PARTITION BY media_id ORDER BY frame_index) AS row FROM frames "
    "WHERE media_type = 'video' AND media_id IN (SELECT media_id FROM chosen)"
)
_SHOTS = (
    "SELECT media_id, shot, first_frame, last_frame FROM shots WHERE EXISTS (FROM chosen "
    "WHERE chosen.media_id = shots.media_id AND frame_index BETWEEN first_frame AND last_frame)"
)
_PICKED = {  # frames of clips, with the columns that separate two clips
    SHOTS: f"SELECT films.*, shot, 0 AS run FROM ({_FILMS}) AS films JOIN ({_SHOTS}) AS shots "  # noqa: S608
    "ON films.media_id = shots.media_id AND frame_index BETWEEN first_frame AND last_frame",
    FRAMES: "SELECT films.*, NULL::INTEGER AS shot, row - row_number() OVER (PARTITION BY media_id ORDER BY row) "  # noqa: S608
    f"AS run FROM ({_FILMS}) AS films JOIN chosen USING (media_id, frame_index)",
}
_BEGINS = "min(time_s) OVER (PARTITION BY media_id, shot, run)"


@dataclass(frozen=True, kw_only=True)
class ClipSpan:
    """Frames of a video, both ends included, with their times in s from the video's first frame."""

    media_id: str
    shot: int | None
    first_frame: int
    last_frame: int
    start_s: float
    last_s: float  # time of the last frame
    end_s: float  # time at which the next frame would be shown


def find_spans(rows: Rows, chosen: pa.Table, request: ClipRequest) -> list[ClipSpan]:
    """Return the parts of videos to cut, in the order of files and frames.

    Args:
        rows: the tables of the output.
        chosen: `media_id` and `frame_index` of chosen frames; those of photos are ignored.
        request: the requested clips.

    Raises:
        ConfigError: clips need shots, and the output has no table `shots`.
    """
    rows.connection.register("chosen", chosen.select(KEYS))
    if request.of == SHOTS:
        rows.register(SHOTS, for_name="clips of shots")
    piece = "0" if request.max_seconds is None else f"floor((time_s - {_BEGINS}) / {request.max_seconds} + 1e-6)"
    frame_s = f"1 / coalesce(any_value(fps), {_FPS})"
    question = (
        f"SELECT media_id, shot, min(frame_index) AS first_frame, max(frame_index) AS last_frame, "  # noqa: S608
        f"min(time_s) AS start_s, max(time_s) AS last_s, max(time_s) + {frame_s} AS end_s "
        f"FROM (SELECT *, {piece} AS piece FROM ({_PICKED[request.of]})) GROUP BY media_id, shot, run, piece "
        f"HAVING end_s - start_s >= {request.min_seconds} - 1e-6 ORDER BY media_id, first_frame"
    )
    return [ClipSpan(**row) for row in rows.connection.sql(question).to_arrow_table().to_pylist()]


TABLE = "metadata.parquet"
"""The name that Hugging Face's `videofolder` looks for."""
MANIFEST = pa.schema(
    [
        column("file_name", pa.string(), "path of the clip, relative to this table", nullable=False),
        MEDIA_ID,
        column("path", pa.string(), "path of the video, if it is a local file"),
        column("shot", pa.int32(), "number of the shot in its video; null for runs of frames"),
        column("first_frame", pa.int32(), "frame_index of the first requested frame", nullable=False),
        column("last_frame", pa.int32(), "frame_index of the last requested frame", nullable=False),
        column("start_s", pa.float64(), "time of the first frame in the video", "s", nullable=False),
        column("end_s", pa.float64(), "time in the video at which the last frame ends", "s", nullable=False),
        column("file_start_s", pa.float64(), "time in the video of the clip's own first frame", "s", nullable=False),
        column("frames", pa.int32(), "frames of the clip", nullable=False),
        column("has_sound", pa.bool_(), "true if it has sound", nullable=False),
        column("exact", pa.bool_(), "true if encoded again from first to last frame; false if copied", nullable=False),
    ]
)
_EQUAL_S = 1e-3  # s; below the length of any frame, and above rounding errors of times
_SAVE_S = 20.0  # s between two writings of the table: work that a stop may lose


@dataclass(frozen=True, kw_only=True)
class PlannedClip:
    """A clip to cut."""

    span: ClipSpan
    split: str
    values: Mapping[str, Any] = field(default_factory=dict)  # further columns

    @property
    def name(self) -> str:
        """Path of its file beside the table, without the ending."""
        return f"{as_folder(self.span.media_id)}/{self.span.first_frame:06d}-{self.span.last_frame:06d}"


class ClipWriter:
    """The clips of one split in a destination, and their table."""

    def __init__(self, destination: Store, split: str, extra: pa.Schema, *, exact: bool) -> None:
        """Read the existing table. `extra`: further columns."""
        self._store, self._folder, self._exact = destination, f"{CLIPS}/{split}", exact
        self._schema = pa.schema([*MANIFEST, *extra])
        self._rows = dict(self._read_rows())
        self._saved_at = time.monotonic()

    def _read_rows(self) -> Iterator[tuple[str, dict[str, Any]]]:
        """Yield the rows of whole clips, by name without ending."""
        path = f"{self._folder}/{TABLE}"
        if not self._store.exists(path):
            return
        rows = self._store.read_table(path).to_pylist()
        wanted = [f"{self._folder}/{row['file_name']}" for row in rows]
        absent = self._store.without_content(self._folder, wanted)
        for row, place in zip(rows, wanted, strict=True):
            if place not in absent:
                yield row["file_name"].rpartition(".")[0], row

    def list_leads(self) -> list[float]:
        """Return the seconds by which clips begin before their first frame, for clips that do."""
        leads = (row["start_s"] - row["file_start_s"] for row in self._rows.values())
        return [lead for lead in leads if lead > _EQUAL_S]

    def count_encoded(self) -> int:
        """Return how many clips were to be copied and are encoded."""
        return 0 if self._exact else sum(row["exact"] for row in self._rows.values())

    def keep(self, clips: Sequence[PlannedClip]) -> list[PlannedClip]:
        """Forget clips that are no longer requested, and return the missing ones."""
        wanted = {clip.name: clip for clip in clips}
        self._rows = {name: row | dict(wanted[name].values) for name, row in self._rows.items() if name in wanted}
        return [clip for name, clip in wanted.items() if name not in self._rows]

    def add(self, clip: PlannedClip, media: MediaFile) -> None:
        """Cut a clip. Raises MediaError: the video cannot be read there. Raises OutputError: no clip can be written."""
        span = clip.span
        with tempfile.TemporaryDirectory(prefix="framekiln-clip-") as folder:
            part = Span(first_s=span.start_s, last_s=span.last_s)
            try:
                made = cut(media, part, Path(folder) / "clip", exact=self._exact)
            except OSError as error:
                message = (
                    f"A clip cannot be written into {tempfile.gettempdir()!r} ({error.strerror or error}); make room "
                    "there, or let TMPDIR name another folder."
                )
                raise OutputError(message, code="FK-EXPORT-TEMPORARY") from error
            file_name = clip.name + made.path.suffix
            with made.path.open("rb") as source, self._store.writing(f"{self._folder}/{file_name}") as to:
                shutil.copyfileobj(source, to, 1 << 20)
        own = {"file_name": file_name, "path": None if is_url(media.path) else media.path}
        found = {"file_start_s": made.start_s, "frames": made.frames, "has_sound": made.has_sound, "exact": made.exact}
        asked = {name: getattr(span, name) for name in self._schema.names if hasattr(span, name)}
        self._rows[clip.name] = asked | own | found | dict(clip.values)
        if time.monotonic() - self._saved_at > _SAVE_S:
            self.save()

    def save(self) -> None:
        """Write the table of all existing clips, in the order of videos and frames."""
        rows = sorted(self._rows.values(), key=lambda row: (row["media_id"], row["first_frame"]))
        table = pa.Table.from_pylist(rows, schema=self._schema)
        self._store.write_table(f"{self._folder}/{TABLE}", table)
        self._saved_at = time.monotonic()


def write_clips(
    clips: Sequence[PlannedClip], media: Mapping[str, MediaFile], writers: Mapping[str, ClipWriter]
) -> Generator[Failure | None, None, None]:
    """Cut all missing clips. Yield for each clip, existing ones included, why it could not be cut, or None.

    `clips` are in the order of their videos; `media`: the videos by id, `writers`: by split. Raises OutputError: the
    destination cannot be written any more.
    """
    for split, writer in writers.items():
        own = [clip for clip in clips if clip.split == split]
        missing = writer.keep(own)
        yield from [None] * (len(own) - len(missing))
        try:
            for clip in missing:
                failure = None
                try:
                    writer.add(clip, check_unchanged(media[clip.span.media_id]))
                except (MediaError, InputError) as error:
                    failure = _describe(clip, error)
                yield failure
        finally:
            writer.save()


def _describe(clip: PlannedClip, error: MediaError | InputError) -> Failure:
    reason = error.reason if isinstance(error, MediaError) else Reason.UNREADABLE
    return Failure(
        media_id=clip.span.media_id,
        frame_index=clip.span.first_frame,
        step="export",
        kind=reason.value,
        message=str(error),
    )
