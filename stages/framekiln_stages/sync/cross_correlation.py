"""The lag of the highest correlation of two signals, and the probability that it is the true one.

Shapes: g points of both signals; lags of -most to most points.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from framekiln_stages.sync.signals import GRID_HZ, Signal

BESIDE = 0.15 * GRID_HZ  # points; nearer maxima belong to the same peak, as wide as a period of the fastest syllables
LOCAL = round(0.5 * GRID_HZ)  # points over which energy is averaged: two syllables; pauses are longer
# Seconds of a visible face for each second in which lips and sound both change, in the clips that `ODDS` was fitted on.
SEEN_S = 1.6

# Constant, and weights of the height over the median and over the runner-up, both in deviations of unrelated signals,
# and of the height itself. Fitted by logistic regression on 1,052 curves of four GRID clips (three speakers); with the
# last term on 477 curves of all six: 3 s, cut to 1.5 and 2 s, joined to 6 s, with pauses, in noise. Half of the weight
# has the speakers' own sound, moved by up to 0.8 s, half another's. Without the height itself, which needs no estimate
# of chance, the log loss of those was 0.41 instead of 0.37.
ODDS = (-8.26, 0.77, 1.35, 9.9)


def correlation(lips: Signal, sound: Signal, most: int) -> Signal:
    """Return the correlation of lips (g) with sound (g) late by -most to most points: 2 most + 1 values.

    NaN counts as no change. The divisor is the root of both energies while the lips are visible. The sound's energy is
    taken at lag 0, or at the lag itself if it is louder there. So no value leaves -1 to 1, and a lag with less overlap
    is less likely to win by chance.
    """
    from scipy.signal import correlate

    visible = (~np.isnan(lips)).astype(float)
    speeds, changes = np.nan_to_num(lips), np.pad(np.nan_to_num(sound), most)
    beside = correlate(changes**2, visible, mode="valid", method="fft")
    size = np.sqrt((speeds**2).sum() * np.maximum(beside, beside[most]))
    curve: Signal = correlate(changes, speeds, mode="valid", method="fft") / np.maximum(size, 1e-12)
    return curve


def active_seconds(lips: Signal, sounds: Sequence[Signal], lag: int) -> float:
    """Return how long lips (g) and sound (g) change together, with the sound late by `lag` points.

    Pauses say nothing about the offset, so only energy counts. It is the time in which two steady signals would
    correlate by chance as much as these do.
    """
    moves = _average(np.nan_to_num(lips) ** 2)
    visible = ~np.isnan(lips)
    common = 0.0
    for sound in sounds:
        energy = np.nan_to_num(sound) ** 2
        late = np.pad(_average(energy), abs(lag))[abs(lag) + lag :][: len(lips)]
        common += float((moves * late).sum()) / max(float(moves.sum() * energy[visible].sum()), 1e-12) / len(sounds)
    return 1 / max(common, 1e-12) / GRID_HZ


def _average(energy: Signal) -> Signal:
    from scipy.ndimage import uniform_filter1d

    averaged: Signal = uniform_filter1d(energy, LOCAL, mode="constant")
    return averaged


@dataclass(frozen=True)
class Peak:
    """The highest local maximum of a curve, by parabolic interpolation."""

    at: float  # points from the curve's start
    height: float
    second: float  # height of the highest other maximum farther than `BESIDE`; 0 without one
    median: float  # median of the curve
    inside: bool  # neither end of the curve is higher, so no slope of an outside peak is visible


def highest(curve: Signal) -> Peak | None:
    """Return the highest local maximum above 0; None without one."""
    inner = curve[1:-1]
    tops = np.flatnonzero((inner > 0) & (inner >= curve[:-2]) & (inner > curve[2:])) + 1
    if not tops.size:
        return None
    at = int(tops[curve[tops].argmax()])
    before, here, after = curve[at - 1 : at + 2]
    bend = before - 2 * here + after
    shift = 0.5 * (before - after) / bend
    others = curve[tops[np.abs(tops - at) > BESIDE]]
    return Peak(
        at=at + float(shift),
        height=min(1.0, float(here - 0.25 * (before - after) * shift)),  # a parabola may rise above 1
        second=float(others.max(initial=0.0)),
        median=float(np.median(curve)),
        inside=bool(max(curve[0], curve[-1]) <= here),
    )


def confidence(peak: Peak, chance: float) -> float:
    """Return the probability that a peak is at the true offset, 0 to 1; `chance`: a deviation of unrelated signals.

    It is a logistic function of the peak's height, with the coefficients in `ODDS`.
    """
    constant, over_median, over_second, height = ODDS
    beyond = over_median * (peak.height - peak.median) + over_second * (peak.height - peak.second)
    return 1 / (1 + math.exp(-constant - beyond / chance - height * peak.height))
