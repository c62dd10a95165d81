"""Outputs that the last run computed only in part: what earlier runs or other shards computed cost it nothing.

The tables of a run that was killed and resumed, of a shard and of a retry are whole, but their seconds are those of a
part.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from framekiln.contract.row_errors import DECODE

_NEARLY = 0.99  # of the rows: a killed process may not have counted its last packet, which is no other run's work


def partial_steps(record: Mapping[str, Any]) -> dict[str, int]:
    """Return the first-pass steps, and decoding, that other runs computed in part, with the rows of this one."""
    frames, figures, waves = record.get("frames"), record.get("figures"), record.get("waves")
    if not isinstance(frames, int) or not isinstance(figures, Mapping) or not isinstance(waves, list):
        return {}
    names = [step for wave in waves if isinstance(wave, list) for step in wave if isinstance(step, str)]
    expected = {DECODE: frames * max(1, len(waves))} | dict.fromkeys(names, frames)
    computed = {step: _rows(figures.get(step, {"rows": 0})) for step in expected}
    return {step: rows for step, rows in computed.items() if rows is not None and rows < _NEARLY * expected[step]}


def _rows(figures: object) -> int | None:
    rows = figures.get("rows") if isinstance(figures, Mapping) else None
    return rows if isinstance(rows, int) else None


def partial_note(path: str, record: Mapping[str, Any]) -> str:
    """Return a note on a run that computed a part of its output; empty where it computed all."""
    steps = partial_steps(record)
    if not steps:
        return ""
    rows = ", ".join(f"{step} {rows:,}" for step, rows in steps.items())
    return (
        f"Other runs made part of {path}, earlier runs or other shards: the compared run computed fewer than its "
        f"{record['frames']:,} frames ({rows}). Its seconds, cost and energy are not compared, nor its errors in these "
        "steps; rates and times are of its own rows."
    )
