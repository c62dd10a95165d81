"""The parts of films that are cut into clips: the shots that chosen frames lie in, or runs of chosen frames."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from framekiln.contract.columns import KEYS
from framekiln.contract.errors import ConfigError
from framekiln.contract.output_names import FRAMES
from framekiln.selection.rows import Rows

SHOTS = "shots"
OF = (SHOTS, FRAMES)
"""What a clip is made of: a shot with a chosen frame, or chosen frames that follow each other."""
_FPS = 25  # of a film that states no rate, as in `media`

_FILMS = (
    "SELECT frames.*, row_number() OVER (PARTITION BY media_id ORDER BY frame_index) AS row FROM frames "
    "WHERE media_type = 'video' AND media_id IN (SELECT media_id FROM chosen)"
)
_SHOTS = (
    "SELECT media_id, shot, first_frame, last_frame FROM shots WHERE EXISTS (FROM chosen "
    "WHERE chosen.media_id = shots.media_id AND frame_index BETWEEN first_frame AND last_frame)"
)
_PICKED = {  # frames of clips, with what keeps two clips apart
    SHOTS: f"SELECT films.*, shot, 0 AS run FROM ({_FILMS}) AS films JOIN ({_SHOTS}) AS shots "  # noqa: S608
    "ON films.media_id = shots.media_id AND frame_index BETWEEN first_frame AND last_frame",
    FRAMES: "SELECT films.*, NULL::INTEGER AS shot, row - row_number() OVER (PARTITION BY media_id ORDER BY row) "
    f"AS run FROM ({_FILMS}) AS films JOIN chosen USING (media_id, frame_index)",  # noqa: S608
}
_BEGINS = "min(time_s) OVER (PARTITION BY media_id, shot, run)"


@dataclass(frozen=True, kw_only=True)
class ClipRequest:
    """Which clips are cut, and how.

    Raises ConfigError: a number or a word is wrong.
    """

    of: str = SHOTS  # one of `OF`
    exact: bool = False  # encoded again from the first frame to the last; else copied from a key frame
    min_seconds: float = 0.0  # shorter clips are left out: video models are trained on clips of 2 s and more
    max_seconds: float | None = None  # longer ones are divided, as such models read so many frames at once

    def __post_init__(self) -> None:
        if self.of not in OF:
            raise ConfigError(f"Clips are made of {' or '.join(OF)}, not of {self.of!r}.", code="FK-EXPORT-CLIPS")
        if self.min_seconds < 0 or (self.max_seconds is not None and self.max_seconds <= self.min_seconds):
            message = "The seconds of clips must rise: --min-seconds from 0 on, and --max-seconds above it."
            raise ConfigError(message, code="FK-EXPORT-SECONDS")


@dataclass(frozen=True, kw_only=True)
class ClipSpan:
    """Frames of a film, both ends inside, with their times in s from the film's first frame."""

    media_id: str
    shot: int | None
    first_frame: int
    last_frame: int
    start_s: float
    last_s: float  # of the last frame
    end_s: float  # when the frame after it would be shown


def find_spans(rows: Rows, chosen: pa.Table, request: ClipRequest) -> list[ClipSpan]:
    """Return the parts of films to cut, in the order of files and frames.

    Args:
        rows: the tables of the output.
        chosen: `media_id` and `frame_index` of chosen frames; those of photos are passed over.
        request: which clips.

    Raises:
        ConfigError: clips are made of shots, and the output has no table `shots`.
    """
    rows.connection.register("chosen", chosen.select(KEYS))
    if request.of == SHOTS:
        rows.register(SHOTS, for_name="clips of shots")
    return list(_read_spans(rows.connection, request))


def _read_spans(connection: Any, request: ClipRequest) -> Iterator[ClipSpan]:
    piece = "0" if request.max_seconds is None else f"floor((time_s - {_BEGINS}) / {request.max_seconds} + 1e-6)"
    frame_s = f"1 / coalesce(any_value(fps), {_FPS})"
    question = (
        f"SELECT media_id, shot, min(frame_index) AS first_frame, max(frame_index) AS last_frame, "  # noqa: S608
        f"min(time_s) AS start_s, max(time_s) AS last_s, max(time_s) + {frame_s} AS end_s "
        f"FROM (SELECT *, {piece} AS piece FROM ({_PICKED[request.of]})) GROUP BY media_id, shot, run, piece "
        f"HAVING end_s - start_s >= {request.min_seconds} - 1e-6 ORDER BY media_id, first_frame"
    )
    for row in connection.sql(question).to_arrow_table().to_pylist():
        yield ClipSpan(**row)
