"""Values that runs with other conditions left, taken over without reading the media.

A narrower condition chooses rows whose values are all there. Their parts are written from parts, unit by unit.
"""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from framekiln.contract.columns import KEYS
from framekiln.contract.packet import HALO, Packet
from framekiln.output.ledger import Part
from framekiln.planning.step import DecodeStep, Step
from framekiln.runtime.chosen_rows import RowChooser
from framekiln.runtime.parts import Parts, part_of
from framekiln.runtime.step_results import Outcome

FAILED = "failed"
"""Internal column of a packet: for each row, the names of the steps that failed on it or passed over it."""


def adopt(parts: Parts, chooser: RowChooser, decode: DecodeStep, known: Sequence[Part]) -> bool:
    """Write the parts of all steps where all values are known; return whether that is the whole unit.

    That does not depend on what this run has finished. `known`: decoding's parts of the unit.
    """
    if not decode.adopters or not known:
        return False
    return all(_adopt_part(parts, chooser, decode, part) for part in known)


def _adopt_part(parts: Parts, chooser: RowChooser, decode: DecodeStep, part: Part) -> bool:
    rows, _ = parts.read_decoded(decode, part)
    rows = rows.append_column(HALO, pa.array(np.zeros(len(rows), bool)))
    rows = rows.append_column(FAILED, pa.array([[]] * len(rows), pa.list_(pa.string())))
    packet = Packet(unit=part.unit, start=part.start, stop=part.stop, rows=rows)
    for step in decode.adopters:
        if not step.recalled and not _write_known(parts, chooser, step, packet):
            return False
        packet = replace(packet, rows=advance(packet.rows, step, parts.read(step, part)))
    return True


def _write_known(parts: Parts, chooser: RowChooser, step: Step, packet: Packet) -> bool:
    """Write a step's part of values that are known, unless it is there; return False if a row has to be computed."""
    left_out = find_left_out(chooser, step, packet.rows)
    known = parts.find_known(step, packet, ~left_out) if step.others else None
    is_known = left_out if known is None else left_out | known.taken
    if not is_known.all() or parts.retried_rows(step, packet) is not None:
        return False
    if parts.done(step, part_of(packet)):
        return True
    nulls = pa.table([pa.nulls(len(left_out), item.type) for item in step.stage.outputs], schema=step.stage.outputs)
    parts.write(step, packet, Outcome(nulls, [], left_out if step.is_narrowed else None), known)
    return True


def find_left_out(chooser: RowChooser, step: Step, rows: pa.Table) -> NDArray[np.bool_]:
    """Return n bools, true for rows that a step passes over."""
    left_out = failed_rows(rows, step.needs)
    if step.condition.is_given:
        left_out |= ~chooser.choose(rows, step.condition)
    return left_out


def failed_rows(rows: pa.Table, depends: frozenset[str]) -> NDArray[np.bool_]:
    """Return n bools, true for rows on which one of the given steps failed, or which one passed over."""
    result = np.zeros(rows.num_rows, dtype=bool)
    lists = rows[FAILED].combine_chunks()
    if depends and len(lists.flatten()):
        result[:] = [bool(depends & set(names)) for names in lists.to_pylist()]
    return result


def advance(rows: pa.Table, step: Step, outcome: Outcome) -> pa.Table:
    """Return the packet's rows with only the columns that later steps read."""
    halo = rows[HALO].to_numpy()
    place = np.where(halo, -1, np.cumsum(~halo) - 1)
    for name in step.carried:
        rows = rows.append_column(name, outcome.columns[name].take(pa.array(place, mask=halo)).combine_chunks())
    unchosen = np.zeros(len(halo), bool)
    if outcome.unchosen is not None:
        unchosen[~halo] = outcome.unchosen
    if outcome.failures or unchosen.any():
        failed = {(failure.media_id, failure.frame_index) for failure in outcome.failures}
        marks = []
        for row, is_left_out in zip(rows.select([*KEYS, HALO, FAILED]).to_pylist(), unchosen, strict=True):
            is_failed = (row["media_id"], row["frame_index"]) in failed and not row[HALO]
            marks.append([*row[FAILED], step.name] if is_failed or is_left_out else row[FAILED])
        column = pa.array(marks, pa.list_(pa.string()))
        rows = rows.set_column(rows.column_names.index(FAILED), FAILED, column)
    return rows.drop_columns([name for name in step.drops if name in rows.column_names])
