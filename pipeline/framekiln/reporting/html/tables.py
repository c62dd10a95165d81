"""The tables of an output: the values of each column under its step, and errors by step and kind."""

import json
from collections.abc import Mapping, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from framekiln.contract.columns import PLACES, SOURCE, FrameKey
from framekiln.contract.errors import Reason
from framekiln.contract.output_names import ERRORS, FRAMES
from framekiln.contract.row_errors import DECODE, ERRORS_SCHEMA, PASSED_OVER
from framekiln.contract.stage import Stage
from framekiln.output.object_store import Store
from framekiln.output.recognise import later_tables
from framekiln.reporting.html.gallery.findings import MOST_DECODED
from framekiln.reporting.html.gallery.gallery import contact_sheets
from framekiln.reporting.kit.histograms import distributions
from framekiln.reporting.kit.texts import cell, count, plain_table
from framekiln.reporting.table_rows import Extract, TableFiles, batches, extract, find_table, head, is_list

EXAMPLES = 3
LONGEST = 2000  # most characters shown of a message or traceback
MOST_GROUPS = 30  # shown groups, the most frequent ones
_WITH_IMAGES = 12  # shown groups with images


ErrorGroup = Mapping[str, Any]
"""All errors of one `kind` in one `step`: `rows`, `whole_files` (errors of whole files), and `examples`, which are
rows of the table with `frame` and `caption`."""


def error_groups(store: Store) -> list[ErrorGroup]:
    """Return errors by step and kind, most frequent first, with examples of different files."""
    groups: dict[tuple[str, str], dict[str, Any]] = {}
    for name in store.names(ERRORS):
        for batch in batches(store, f"{ERRORS}/{name}", expected=ERRORS_SCHEMA):
            for row in batch.filter(pc.not_equal(batch["kind"], PASSED_OVER)).to_pylist():
                about = {"step": row["step"], "kind": row["kind"]}
                new = {**about, "rows": 0, "whole_files": 0, "examples": []}
                group = groups.setdefault((row["step"], row["kind"]), new)
                group["rows"] += 1
                group["whole_files"] += row["frame_index"] is None
                shown = [example["media_id"] for example in group["examples"]]
                if len(shown) < EXAMPLES and row["media_id"] not in shown:
                    frame, caption = _choose_frame(row)
                    texts = {"message": str(row["message"])[:LONGEST], "traceback": str(row["traceback"])[-LONGEST:]}
                    group["examples"].append({**row, **texts, "frame": frame, "caption": caption})
    for group in groups.values():
        group["examples"].sort(key=lambda example: example["media_id"])
    return sorted(groups.values(), key=lambda group: (-group["rows"], group["step"], group["kind"]))


def frames_of(groups: Sequence[ErrorGroup]) -> list[FrameKey]:
    """Return the frames to show beside the most frequent errors."""
    examples = (example for group in groups[:_WITH_IMAGES] for example in group["examples"])
    return [example["frame"] for example in examples if example["frame"] is not None]


def _choose_frame(row: Mapping[str, Any]) -> tuple[FrameKey | None, str]:
    """Return the frame to show for an error, and a caption; None if decoding it again could fail as in the run.

    It is the error's own frame, the one before it if decoding failed, or the file's first.
    """
    name, index, decoding = str(row["media_id"]), row["frame_index"], row["step"] == DECODE
    if row["kind"] == Reason.CRASHED or (decoding and not index):
        return None, ""
    if index is None or index >= MOST_DECODED + decoding:
        return (name, 0), "the file's first frame"
    return (name, index - decoding), "the frame before" if decoding else "the frame"


FIRST_ROWS = 10
TALLY = b"tally"  # see `_write_tallies`


def table_views(store: Store, stages: Mapping[str, Stage]) -> list[dict[str, Any]]:
    """Return the frames table and then the tables of second-pass steps, by name; see `_read_view`."""
    declared = {name: table.description for stage in stages.values() for name, table in stage.tables.items()}
    others = [_read_view(store, name, declared.get(name, ""), stages) for name in later_tables(store)]
    return [_read_view(store, FRAMES, "one row a frame", stages), *others]


def _read_view(store: Store, name: str, description: str, stages: Mapping[str, Stage]) -> dict[str, Any]:
    """Return a table with its columns by step, and its first rows if they are shown.

    `found`: the number of items in all lists of a column, estimated if not all rows were read.
    """
    table = find_table(store, name)
    part = extract(store, table)
    columns, scale = distributions(part), table.rows / max(1, part.taken)
    lists = [item.name for item in part.schema if is_list(item.type) and item.name in part.columns]
    read = count(table.rows, "row").capitalize()
    if not part.whole:
        read = f"{table.rows:,} rows; the values are those of {part.taken:,} of them, evenly spaced"
    is_frames, groups = name == FRAMES, {"": columns}
    if is_frames:  # by first-pass step, in order; decoded columns come last
        owners = {one: step for step, stage in stages.items() for one in stage.outputs.names}
        owners |= dict.fromkeys((*SOURCE.names, *PLACES.names), DECODE)
        titles = [*(step for step, stage in stages.items() if stage.scope.first_pass), "", DECODE]
        by_step = {title: [item for item in columns if owners.get(item.name, "") == title] for title in titles}
        groups = {title or "other columns": items for title, items in by_step.items() if items}
    first = pa.table({}) if is_frames else head(store, table, FIRST_ROWS)
    rows = [[cell(value) for value in row.values()] for row in first.to_pylist()]
    heads = first.column_names
    return {
        "name": name,
        "title": name.replace("_", " ").capitalize(),
        "url": store.url(name),
        "description": description,
        "rows": table.rows,
        "read": f"{read}.",
        "found": {name: round(scale * (pc.sum(part.columns[name]).as_py() or 0)) for name in lists},
        "groups": groups,
        "first": plain_table(f"First rows of {name}", heads, rows, texts=len(heads)) if rows else None,
        "sheets": [] if is_frames else contact_sheets(store, table),
        "tallies": [] if is_frames else _write_tallies(part, table),
    }


def _write_tallies(part: Extract, table: TableFiles) -> list[str]:
    """Return a sentence on each text column whose metadata describes counts of its values.

    `tally` is JSON: a text for each value, and under the empty key one for all rows with a value.
    """
    sentences = []
    for item in part.schema:
        if item.name in part.columns and (told := (item.metadata or {}).get(TALLY)):
            words, scale = json.loads(told), table.rows / max(1, part.taken)
            counts = part.columns[item.name].drop_null().value_counts().to_pylist()
            counts.sort(key=lambda entry: (-entry["counts"], entry["values"]))
            found = {entry["values"]: round(scale * entry["counts"]) for entry in counts}
            listed = ", ".join(f"{many:,} {words.get(value, value)}" for value, many in found.items())
            if found:
                sentences.append(f"{sum(found.values()):,} of {table.rows:,} {words['']}: {listed}.")
    return sentences
