"""Videos of an output cut into clips: which parts, with which columns, and the outcome."""

from collections import Counter
from collections.abc import Sequence
from contextlib import closing
from dataclasses import replace
from typing import Any

import pyarrow as pa

from framekiln.contract.columns import KEYS, FrameKey
from framekiln.contract.errors import ConfigError, FramekilnError, without_secrets
from framekiln.contract.output_names import FRAMES
from framekiln.contract.row_errors import Failure, reasons, to_table
from framekiln.contract.words import counted
from framekiln.export.clips import MANIFEST, ClipSpan, ClipWriter, PlannedClip, find_spans, write_clips
from framekiln.export.destination import ExportSummary, Progress, finish, prepare
from framekiln.export.request import CLIPS, ClipRequest, ExportRequest
from framekiln.export.rows import read_chosen
from framekiln.export.splits import Splits, by_file, make_splits
from framekiln.output.object_store import Store
from framekiln.output.unit_table import tabulated_files
from framekiln.selection.rows import Rows
from framekiln.selection.selection import list_words

ERRORS = f"{CLIPS}/errors.parquet"


def export_clips(store: Store, destination: Store, request: ExportRequest, progress: Progress | None) -> ExportSummary:
    """Cut clips out of an output's videos, and write a table of them; existing clips stay.

    `destination` gets clips/SPLIT/, and clips/errors.parquet if a video could not be cut.

    Raises:
        ConfigError: a table or a column is missing, an expression is wrong, or no video has a chosen frame.
        OutputError: the destination holds something else, or cannot be written.
        FramekilnError: no clip could be cut.
    """
    selection, rows, wanted = read_chosen(store, request), Rows(store), request.clips or ClipRequest()
    chosen = selection.rows
    spans = find_spans(rows, chosen, wanted)
    if not spans:
        message = "No video has a clip with these frames and lengths, so there is nothing to cut; widen the choice."
        raise ConfigError(message, code="FK-EXPORT-EMPTY")
    values = _read_values(rows, chosen, spans, wanted.columns)
    frames = _read_frames(rows, spans)
    splits = make_splits(store, request, by_file(frames))
    record = prepare(destination, request, store, by_file(chosen))
    clips = [
        PlannedClip(span=span, split=splits.of(*_make_key(span)), values=value)
        for span, value in zip(spans, values.to_pylist() or [{}] * len(spans), strict=True)
    ]
    failures, writers = _write(store, destination, clips, values.schema, wanted, progress)
    summary = _describe(destination, clips, splits, failures, writers)
    notes = (*summary.notes, *_list_unchosen(frames, chosen), *_list_others(rows, chosen))
    sources = sorted({*selection.sources, *rows.tables, *list_words(wanted.columns)} - {FRAMES})
    summary = finish(destination, record, replace(summary, sources=tuple(sources), notes=notes))
    if len(failures) == len(clips):
        raise FramekilnError(_tell_failures(failures), code="FK-EXPORT-FAILED")
    return summary


def _list_unchosen(frames: pa.Table, chosen: pa.Table) -> list[str]:
    """Return a sentence on frames of clips that were not chosen; none without such frames."""
    if not (beside := len(frames.join(chosen.select(KEYS), list(KEYS), join_type="left anti"))):
        return []
    asked = f"only {len(frames) - beside:,} of their {len(frames):,} frames were chosen"
    return [f"Clips are whole shots, of which {asked}; --clips frames cuts these alone."]


def _list_others(rows: Rows, chosen: pa.Table) -> list[str]:
    """Return a sentence on chosen files that are no videos; none without such files."""
    rows.connection.register("chosen", chosen.select(KEYS))
    question = (
        "SELECT media_type, count(DISTINCT media_id) FROM frames SEMI JOIN chosen USING (media_id, frame_index) "
        "WHERE media_type != 'video' GROUP BY media_type ORDER BY media_type"
    )
    counts = [counted(number, kind) for kind, number in rows.connection.sql(question).fetchall()]
    return [f"Left out, since clips are only cut from videos: {', '.join(counts)}."] if counts else []


def _write(
    store: Store,
    destination: Store,
    clips: Sequence[PlannedClip],
    extra: pa.Schema,
    wanted: ClipRequest,
    progress: Progress | None,
) -> tuple[list[Failure], list[ClipWriter]]:
    """Cut clips; return the failures, and the writer of each split."""
    names = sorted({clip.split for clip in clips})
    writers = {name: ClipWriter(destination, name, extra, exact=wanted.exact) for name in names}
    failures: list[Failure] = []
    with closing(write_clips(clips, tabulated_files(store), writers)) as cut:
        for done, failure in enumerate(cut, 1):
            failures += [failure] if failure is not None else []
            if progress is not None:
                progress(done, len(clips))
    destination.remove(ERRORS)
    if failures:
        destination.write_table(ERRORS, to_table(failures))
    return failures, [*writers.values()]


def _describe(
    destination: Store,
    clips: Sequence[PlannedClip],
    splits: Splits,
    failures: Sequence[Failure],
    writers: Sequence[ClipWriter],
) -> ExportSummary:
    failed = {(failure.media_id, failure.frame_index) for failure in failures}
    whole = [clip for clip in clips if _make_key(clip.span) not in failed]
    seconds = sum(clip.span.end_s - clip.span.start_s for clip in whole)
    films = counted(len({clip.span.media_id for clip in whole}), "film")
    notes = [*splits.lines, f"{seconds:,.1f} s of video in {films}."]
    if leads := [lead for writer in writers for lead in writer.list_leads()]:
        begin = "begins at a key frame before its" if len(leads) == 1 else "begin at a key frame before their"
        notes.append(f"{counted(len(leads), 'copied clip')} {begin} first frame: by {sum(leads):,.1f} s in all.")
    if encoded := sum(writer.count_encoded() for writer in writers):
        reason = "a copy cannot be made, would not decode, or would show hidden frames"
        notes.append(f"Cut exactly, since {reason}: {counted(encoded, 'clip')}.")
    if failures:
        notes.append(_tell_failures(failures))
    images = Counter(dict.fromkeys(splits.names, 0))
    images.update(clip.split for clip in whole)
    return ExportSummary(
        to=CLIPS, destination=without_secrets(destination.root), images=dict(images), annotations={}, notes=tuple(notes)
    )


def _tell_failures(failures: Sequence[Failure]) -> str:
    common, number = reasons(failures).most_common(1)[0]
    return f"{counted(len(failures), 'clip')} could not be cut, see {ERRORS}; {number:,} of them: {common.rstrip('.')}."


def _make_key(span: ClipSpan) -> FrameKey:
    return span.media_id, span.first_frame


def _register(rows: Rows, spans: Sequence[ClipSpan]) -> None:
    """Let expressions read the ends of spans, by their number."""
    ends = [(number, span.media_id, span.first_frame, span.last_frame) for number, span in enumerate(spans)]
    names = ("span", "of_film", "first_of_span", "last_of_span")
    rows.connection.register("spans", pa.table([*map(list, zip(*ends, strict=True))], names))


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
        "FROM spans JOIN placed ON of_film = media_id AND frame_index BETWEEN first_of_span AND last_of_span "
        "GROUP BY span"
    )
    rows.join(wanted).create_view("joined")
    relation: Any = rows.connection.sql(f"FROM ({first}) JOIN joined USING ({', '.join(KEYS)})").order("span")
    return rows.check("columns", lambda: relation.project(", ".join(wanted)).to_arrow_table())


def _read_frames(rows: Rows, spans: Sequence[ClipSpan]) -> pa.Table:
    """Return `media_id` and `frame_index` of all frames of the output inside spans."""
    _register(rows, spans)
    question = (
        "SELECT media_id, frame_index FROM frames JOIN spans "
        "ON media_id = of_film AND frame_index BETWEEN first_of_span AND last_of_span ORDER BY ALL"
    )
    return rows.connection.sql(question).to_arrow_table()
