"""How much of an output its last run made itself: what others have done before it costs it nothing.

A run that was killed and resumed, a shard among others and a retry end with tables that are whole, and their seconds
are those of a part.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pipeline.failure import DECODE

_NEARLY = 0.99  # of the rows: a process that is killed may leave its last packet's untold, which is no other run's work


def of_others(record: Mapping[str, Any]) -> dict[str, int]:
    """By step of the first pass, decoding too, how many rows the run made where most or some are others' work.

    Args:
        record: a run.json, of any version.
    """
    frames, figures, waves = record.get("frames"), record.get("figures"), record.get("waves")
    if not isinstance(frames, int) or not isinstance(figures, Mapping) or not isinstance(waves, list):
        return {}
    names = [step for wave in waves if isinstance(wave, list) for step in wave if isinstance(step, str)]
    wanted = {DECODE: frames * max(1, len(waves))} | dict.fromkeys(names, frames)
    made = {step: _rows(figures.get(step, {"rows": 0})) for step in wanted}
    return {step: rows for step, rows in made.items() if rows is not None and rows < _NEARLY * wanted[step]}


def _rows(told: object) -> int | None:
    rows = told.get("rows") if isinstance(told, Mapping) else None
    return rows if isinstance(rows, int) else None


def note(path: str, record: Mapping[str, Any]) -> str:
    """What to know of a run that made a part, in a sentence; empty where it made all."""
    found = of_others(record)
    if not found:
        return ""
    said = ", ".join(f"{step} {rows:,}" for step, rows in found.items())
    return (
        f"Other runs made part of {path}, earlier ones or other shards: the run that is compared made fewer than its "
        f"{record['frames']:,} frames ({said}). Its seconds, cost and energy are not compared, nor its errors in these "
        "steps; rates and times are of its own rows."
    )
