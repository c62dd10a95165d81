"""The lag of the highest correlation of two signals.

Shapes: g points of both signals; lags of -most to most points.
"""

from __future__ import annotations

import math

import numpy as np

from stages.shared.speech import Signal


def correlation(lips: Signal, sound: Signal, most: int) -> Signal:
    """Return the correlation of lips (g) with sound (g) that is late by -most to most points: 2 most + 1 values.

    NaN counts as no change. All lags have the same divisor: the root of both energies while the lips are visible. A
    lag with less overlap is thus less likely to win by chance.
    """
    from scipy.signal import correlate

    visible = ~np.isnan(lips)
    speeds, changes = (np.nan_to_num(values) for values in (lips, sound))
    size = math.sqrt(float((speeds**2).sum() * (changes[visible] ** 2).sum()))
    curve: Signal = correlate(np.pad(changes, most), speeds, mode="valid", method="fft") / max(size, 1e-12)
    return curve


def highest(curve: Signal) -> tuple[float, float] | None:
    """Return place and height of the highest local maximum above 0, by parabolic interpolation; else None."""
    inner = curve[1:-1]
    tops = np.flatnonzero((inner > 0) & (inner >= curve[:-2]) & (inner > curve[2:])) + 1
    if not tops.size:
        return None
    at = int(tops[curve[tops].argmax()])
    before, here, after = curve[at - 1 : at + 2]
    bend = before - 2 * here + after
    shift = 0.5 * (before - after) / bend
    return at + float(shift), float(here - 0.25 * (before - after) * shift)
