"""At which lag two signals agree most, and how much.

Shapes: g points of both signals; lags of -most to most points.
"""

from __future__ import annotations

import math

import numpy as np

from stages.nets.speech import Signal


def correlation(lips: Signal, sound: Signal, most: int) -> Signal:
    """Correlation of lips (g) with sound (g) that is late by -most to most points: 2 most + 1 values.

    NaN counts as no change. All lags are divided by the same: the root of both energies while the lips are seen; a lag
    that has less to compare is thus less likely to win by chance.
    """
    from scipy.signal import correlate

    seen = ~np.isnan(lips)
    one, other = (np.nan_to_num(values) for values in (lips, sound))
    size = math.sqrt(float((one**2).sum() * (other[seen] ** 2).sum()))
    curve: Signal = correlate(np.pad(other, most), one, mode="valid", method="fft") / max(size, 1e-12)
    return curve


def highest(curve: Signal) -> tuple[float, float] | None:
    """Place and height of the highest local maximum above zero, between points by a parabola; None without one."""
    inner = curve[1:-1]
    tops = np.flatnonzero((inner > 0) & (inner >= curve[:-2]) & (inner > curve[2:])) + 1
    if not tops.size:
        return None
    at = int(tops[curve[tops].argmax()])
    before, here, after = curve[at - 1 : at + 2]
    bend = before - 2 * here + after
    shift = 0.5 * (before - after) / bend
    return at + float(shift), float(here - 0.25 * (before - after) * shift)
