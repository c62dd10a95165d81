"""Films of an output cut into clips: which parts, with which columns, and what came of it."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from framekiln.contract.columns import KEYS
from framekiln.contract.row_errors import Failure, to_table
from framekiln.export.clip_spans import ClipRequest, ClipSpan, find_spans
from framekiln.export.clips import CLIPS, MANIFEST, ClipWriter, PlannedClip, write_clips
from framekiln.output.object_store import Store
from framekiln.output.unit_table import read_units
from framekiln.selection.rows import Rows

ERRORS = f"{CLIPS}/errors.parquet"
Key = tuple[str, int]


@dataclass(frozen=True, kw_only=True)
class ClipsResult:
    """What an export of clips has made."""

    clips: int  # that are there now
    seconds: float  # of them all, as they were asked for
    failures: Sequence[Failure]


def export_clips(
    store: Store,
    destination: Store,
    chosen: pa.Table,
    request: ClipRequest,
    split_rows: Callable[[pa.Table], Sequence[str]],
    columns: Sequence[str] = (),
    watch: Callable[[int, int], None] = lambda done, total: None,
) -> ClipsResult:
    """Cut clips out of an output's films, and write a table of them; those that are there stay.

    Args:
        store: the output.
        destination: into which `clips/SPLIT/` is written.
        chosen: `media_id` and `frame_index` of chosen frames, in the order of their choice.
        request: which clips.
        split_rows: gives the split of each of a table's frames, all of one clip or more.
        columns: further columns of the clips' table, as names or SQL expressions: of the first chosen frame in each.
        watch: called with the numbers of clips done and in all.

    Raises:
        ConfigError: a table or a column is missing, or an expression is wrong.
        OutputError: the destination cannot be written.
    """
    rows = Rows(store)
    spans = find_spans(rows, chosen, request)
    values = _read_values(rows, chosen, spans, columns)
    splits = _read_splits(rows, spans, split_rows)
    clips = [
        PlannedClip(span=span, split=splits[_key(span)], values=value)
        for span, value in zip(spans, values.to_pylist() or [{}] * len(spans), strict=True)
    ]
    units = sorted(read_units(store), key=lambda unit: unit.attempt)
    media = {item.media_id: item for unit in units for item in unit.media}
    writers = {
        name: ClipWriter(destination, name, values.schema, exact=request.exact) for name in sorted({*splits.values()})
    }
    done = 0

    def advance(number: int) -> None:
        nonlocal done
        done += number
        watch(done, len(clips))

    failures = write_clips(clips, media, writers, advance)
    destination.remove(ERRORS)
    if failures:
        destination.write_table(ERRORS, to_table(failures))
    failed = {(failure.media_id, failure.frame_index) for failure in failures}
    seconds = sum(span.end_s - span.start_s for span in spans if _key(span) not in failed)
    return ClipsResult(clips=len(clips) - len(failures), seconds=seconds, failures=failures)


def _key(span: ClipSpan) -> Key:
    return span.media_id, span.first_frame


def _register(rows: Rows, spans: Sequence[ClipSpan]) -> None:
    """Let expressions read the ends of spans, by their number."""
    ends = [(number, span.media_id, span.first_frame, span.last_frame) for number, span in enumerate(spans)]
    names = ("span", "of_film", "first_of_span", "last_of_span")
    types = (pa.int64(), pa.string(), pa.int32(), pa.int32())
    values = zip(*ends, strict=True) if ends else ((),) * len(names)
    table = pa.table({name: pa.array(own, kind) for name, own, kind in zip(names, values, types, strict=True)})
    rows.connection.register("spans", table)


def _read_values(rows: Rows, chosen: pa.Table, spans: Sequence[ClipSpan], columns: Sequence[str]) -> pa.Table:
    """Return the columns of the first chosen frame in each span."""
    wanted = [column for column in columns if column not in MANIFEST.names]
    if not wanted:
        return pa.table({})
    _register(rows, spans)
    placed = chosen.select(KEYS).append_column("place", pa.array(range(len(chosen)), pa.int64()))
    rows.connection.register("placed", placed)
    first = (
        "SELECT span, arg_min(media_id, place) AS media_id, arg_min(frame_index, place) AS frame_index "
        "FROM spans JOIN placed ON of_film = media_id AND frame_index BETWEEN first_of_span AND last_of_span GROUP BY span"
    )
    rows.join(wanted).create_view("joined")
    relation: Any = rows.connection.sql(f"FROM ({first}) JOIN joined USING ({', '.join(KEYS)})").order("span")
    return rows.check("columns", lambda: relation.project(", ".join(wanted)).to_arrow_table())


def _read_splits(
    rows: Rows, spans: Sequence[ClipSpan], split_rows: Callable[[pa.Table], Sequence[str]]
) -> Mapping[Key, str]:
    """Return the split of each span; it is that of its first frame, and all its frames are looked at."""
    _register(rows, spans)
    question = (
        "SELECT media_id, frame_index, span FROM frames JOIN spans "
        "ON media_id = of_film AND frame_index BETWEEN first_of_span AND last_of_span ORDER BY span, frame_index"
    )
    frames = rows.connection.sql(question).to_arrow_table()
    of_row = split_rows(frames.select(KEYS))
    found: dict[int, str] = {}
    for span, split in zip(frames["span"].to_pylist(), of_row, strict=True):
        found.setdefault(span, split)
    return {_key(span): found[number] for number, span in enumerate(spans)}
