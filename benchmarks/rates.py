"""Rates of runs, from the ends of their packets."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from framekiln.profiling.records import PACKET

Moment = tuple[float, int]  # seconds since the epoch, rows finished by then


def sums(ends: Iterable[Moment]) -> list[Moment]:
    """Return moments in order with the rows until each, from moments with the rows of each packet."""
    rows, moments = 0, list[Moment]()
    for end, count in sorted(ends):
        rows += count
        moments.append((end, rows))
    return moments


def packet_moments(calls: pa.Table, step: str) -> list[Moment]:
    """Return when packets of a step ended, from the records of a run."""
    packets = calls.filter(pc.and_(pc.equal(calls["kind"], PACKET), pc.equal(calls["step"], step)))
    ends = pc.add(packets["started"], packets["seconds"]).to_pylist()
    return sums(zip(ends, packets["rows"].to_pylist(), strict=True))


def steady_rate(moments: Sequence[Moment]) -> float:
    """Return the rows a second between a fifth and four fifths of the rows, when all processes have work.

    Rows count as done evenly between moments. The first of these is the begin with 0 rows, or the first packet's end.
    """
    times, rows = np.array(moments, float).T
    rows, first = np.unique(rows, return_index=True)
    inside = rows[0] + np.array([0.2, 0.8]) * (rows[-1] - rows[0])
    begin, end = np.interp(inside, rows, times[first])
    return float((inside[1] - inside[0]) / (end - begin))
