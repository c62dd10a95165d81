"""Speed of lips and of loudness on a common time grid, at any frame rate and with gaps.

Shapes: n frames, w windows of sound, g points of a grid of `GRID_HZ`. A `Signal` is float64 g, NaN where unknown.
"""

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from framekiln.contract import SOUND_RATE
from framekiln_stages.shared.tables import SOUND_WINDOW

Signal = NDArray[np.float64]

GRID_HZ = 100.0  # points at most a tenth of a frame apart; windows of sound are 10 ms apart too
MIDDLE_S = SOUND_WINDOW / 2 / SOUND_RATE  # from a window's start to its middle
MOUTH_GAP_S = 0.13  # longest gap without a face: two frames at 25/s, one interval at 8/s
SOUND_GAP_S = 0.05
SILENT_DB = -70.0  # and below: no voice; 16 bits end at -90
FLOOR_DB = 30.0  # dB below the loudest 5 %: quieter sound is the room's, not the voice's
VOICED = 0.5  # harmonicity; none of 5,000 windows of white noise exceeds 0.25
LEVELS = ("loudness", "middle", "high", "harmonicity")


def windows_of(times: Signal, voice: pa.ChunkedArray) -> tuple[Signal, Signal]:
    """Return the time in s (w) and the levels (w 4, in the order of `LEVELS`) of all windows of a file's sound.

    A slice starts at its frame's time. The first slice with samples ends at the next frame, since it also contains the
    sound before its frame.

    `times`: n, in s, increasing. `voice`: n structs with `samples` and lists `loudness`, `middle`, `high`,
    `harmonicity`.
    """
    whole = voice.combine_chunks()
    samples = whole.field("samples").fill_null(0).to_numpy(zero_copy_only=False)
    audible = np.flatnonzero((samples > 0) & whole.is_valid().to_numpy(zero_copy_only=False))
    starts = times.astype(float)
    if audible.size and audible[0] + 1 < len(times):
        first = audible[0]
        starts[first] = times[first + 1] - samples[first] / SOUND_RATE
    lists = [whole.field(name).filter(whole.is_valid()) for name in LEVELS]
    counts = np.zeros(len(times), int)
    counts[whole.is_valid().to_numpy(zero_copy_only=False)] = lists[0].value_lengths().to_numpy(zero_copy_only=False)
    own = np.repeat(np.arange(len(times)), counts)
    place = np.arange(len(own)) - np.repeat(np.cumsum(counts) - counts, counts)
    at = starts[own] + place * samples[own] / np.maximum(counts[own], 1) / SOUND_RATE + MIDDLE_S
    levels = np.stack([values.flatten().to_numpy(zero_copy_only=False).astype(float) for values in lists], axis=1)
    order = np.argsort(at, kind="stable")
    return at[order], levels[order]


def voiced(levels: Signal) -> NDArray[np.bool_]:
    """Return a mask of voiced windows (w): harmonic, and not far below the loudest."""
    loud, tone = levels[:, 0], levels[:, 3]
    return (tone >= VOICED) & (loud >= np.percentile(loud, 95) - FLOOR_DB) & (loud > SILENT_DB)


def sound_on_grid(grid: Signal, times: Signal, levels: Signal) -> list[Signal]:
    """Return the levels of the middle and of the high band in dB, each with a lower limit."""
    after = np.searchsorted(times, grid).clip(1, len(times) - 1) if len(times) > 1 else np.zeros(len(grid), int)
    near = np.minimum(np.abs(grid - times[after]), np.abs(grid - times[np.maximum(after - 1, 0)])) <= SOUND_GAP_S / 2
    bands = []
    for level in levels[:, 1:3].T:
        power = 10 ** (level / 10)
        floored = 10 * np.log10(power + 10 ** (-FLOOR_DB / 10) * np.percentile(power, 95) + 1e-10)
        bands.append(np.where(near, np.interp(grid, times, floored), np.nan))
    return bands


def mouth_on_grid(grid: Signal, seen: tuple[Signal, Signal, Signal], least_s: float) -> Signal:
    """Return the mouth's opening, by a cubic spline through each unbroken track of at least `least_s`.

    `grid`: g, in s. `seen`: time, opening and track of n frames. `least_s`: shorter tracks are left out, in s.
    """
    from scipy.interpolate import CubicSpline

    times, opening, track = seen
    signal = np.full(len(grid), np.nan)
    edges = np.flatnonzero((np.diff(times) > MOUTH_GAP_S) | (np.diff(track) != 0)) + 1
    for own in np.split(np.arange(len(times)), edges):
        if len(own) >= 4 and times[own[-1]] - times[own[0]] >= least_s:
            inside = np.flatnonzero((grid >= times[own[0]]) & (grid <= times[own[-1]]))
            if len(inside) > 1 and not np.isnan(signal[inside[0] - 1]):
                inside = inside[1:]  # a point without a value separates two faces' tracks
            signal[inside] = CubicSpline(times[own], opening[own])(grid[inside])
    return signal


def changes(signal: Signal, band: tuple[float, float]) -> Signal:
    """Return the rate of change of a signal within a band in Hz, for each unbroken run separately; NaN stays NaN."""
    from scipy.signal import butter, sosfiltfilt

    result = np.full(len(signal), np.nan)
    sections = butter(2, band, "bandpass", fs=GRID_HZ, output="sos")
    known = np.flatnonzero(~np.isnan(signal))
    for run in np.split(known, np.flatnonzero(np.diff(known) > 1) + 1):
        if len(run) > 1:
            speed = np.gradient(signal[run])
            result[run] = sosfiltfilt(sections, speed, padlen=min(len(run) - 1, round(GRID_HZ / 2)))
    return result
