"""The parts of videos to cut into clips: shots with chosen frames, or runs of chosen frames."""

from dataclasses import dataclass

import pyarrow as pa

from framekiln.contract.columns import KEYS
from framekiln.export.request import FRAMES, SHOTS, ClipRequest
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
