"""The speed of lips and of loudness on one clock, whatever the frame rate and wherever either is missing.

Shapes: n frames, w windows of sound, g points of a grid of `GRID_HZ`. A `Signal` is float64 g, NaN where not known.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from pipeline.columns import SOUND_RATE

Signal = NDArray[np.float64]

GRID_HZ = 100.0  # a tenth of a video frame's time or less; windows of sound are 10 ms apart as well
WINDOW = 512  # samples of sound: 32 ms hold two periods of the lowest voice
MIDDLE_S = WINDOW / 2 / SOUND_RATE  # from a window's start to its middle
MOUTH_GAP_S = 0.13  # bridged where a face is missed: up to two frames of 25 a second, and every frame of 8 a second
SOUND_GAP_S = 0.05
FLOOR_DB = 30.0  # under the loudest 5 %: what is quieter is the room, not the voice
VOICED = 0.5  # harmonicity: of 5,000 windows of white noise none is over .25
LEVELS = ("loudness", "middle", "high", "harmonicity")


def windows_of(times: Signal, voice: pa.ChunkedArray) -> tuple[Signal, Signal]:
    """Time in s (w) and levels (w 4, in the order of `LEVELS`) of all windows of a file's sound.

    A slice starts at its frame's time; the first one with anything in it ends where the next frame starts, since it
    also holds what was heard before it.

    Args:
        times: n, in s, rising.
        voice: n structs with `samples` and lists `loudness`, `middle`, `high`, `harmonicity`.
    """
    whole = voice.combine_chunks()
    samples = whole.field("samples").fill_null(0).to_numpy(zero_copy_only=False)
    heard = np.flatnonzero((samples > 0) & whole.is_valid().to_numpy(zero_copy_only=False))
    starts = times.astype(float)
    if heard.size and heard[0] + 1 < len(times):
        first = heard[0]
        starts[first] = times[first + 1] - samples[first] / SOUND_RATE
    lists = [whole.field(name).filter(whole.is_valid()) for name in LEVELS]
    counts = np.zeros(len(times), int)
    counts[whole.is_valid().to_numpy(zero_copy_only=False)] = lists[0].value_lengths().to_numpy(zero_copy_only=False)
    own = np.repeat(np.arange(len(times)), counts)
    place = np.arange(len(own)) - np.repeat(np.cumsum(counts) - counts, counts)
    at = starts[own] + place * samples[own] / np.maximum(counts[own], 1) / SOUND_RATE + MIDDLE_S
    levels = np.stack([one.flatten().to_numpy(zero_copy_only=False).astype(float) for one in lists], axis=1)
    order = np.argsort(at, kind="stable")
    return at[order], levels[order]


def voiced(levels: Signal) -> NDArray[np.bool_]:
    """Which windows (w) are voiced: harmonic, and not far under the loudest."""
    loud, tone = levels[:, 0], levels[:, 3]
    return (tone >= VOICED) & (loud >= np.percentile(loud, 95) - FLOOR_DB) & (loud > -70)


def sound_on_grid(grid: Signal, times: Signal, levels: Signal) -> list[Signal]:
    """The level of the middle and of the high band in dB, a floor under each."""
    after = np.searchsorted(times, grid).clip(1, len(times) - 1) if len(times) > 1 else np.zeros(len(grid), int)
    near = np.minimum(np.abs(grid - times[after]), np.abs(grid - times[np.maximum(after - 1, 0)])) <= SOUND_GAP_S / 2
    bands = []
    for level in levels[:, 1:3].T:
        power = 10 ** (level / 10)
        floored = 10 * np.log10(power + 10 ** (-FLOOR_DB / 10) * np.percentile(power, 95) + 1e-10)
        bands.append(np.where(near, np.interp(grid, times, floored), np.nan))
    return bands


def mouth_on_grid(grid: Signal, seen: tuple[Signal, Signal, Signal], least_s: float) -> Signal:
    """The opening between frames by a cubic spline through each unbroken look at one face of `least_s` or more.

    Args:
        grid: g, in s.
        seen: time, opening and track of n frames.
        least_s: shorter looks are left out.
    """
    from scipy.interpolate import CubicSpline

    times, opening, track = seen
    signal = np.full(len(grid), np.nan)
    edges = np.flatnonzero((np.diff(times) > MOUTH_GAP_S) | (np.diff(track) != 0)) + 1
    for own in np.split(np.arange(len(times)), edges):
        if len(own) >= 4 and times[own[-1]] - times[own[0]] >= least_s:
            inside = np.flatnonzero((grid >= times[own[0]]) & (grid <= times[own[-1]]))
            if len(inside) > 1 and not np.isnan(signal[inside[0] - 1]):
                inside = inside[1:]  # a point without a value keeps two faces' looks apart
            signal[inside] = CubicSpline(times[own], opening[own])(grid[inside])
    return signal


def changes(signal: Signal, band: tuple[float, float]) -> Signal:
    """The rate of change of a signal within a band of Hz, each unbroken run by itself; NaN stays NaN."""
    from scipy.signal import butter, sosfiltfilt

    result = np.full(len(signal), np.nan)
    sections = butter(2, band, "bandpass", fs=GRID_HZ, output="sos")
    known = np.flatnonzero(~np.isnan(signal))
    for run in np.split(known, np.flatnonzero(np.diff(known) > 1) + 1):
        if len(run) > 1:
            speed = np.gradient(signal[run])
            result[run] = sosfiltfilt(sections, speed, padlen=min(len(run) - 1, round(GRID_HZ / 2)))
    return result
