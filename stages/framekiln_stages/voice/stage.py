"""Features of speech in the sound of each frame: loudness, two bands and harmonicity.

Sound itself is not kept after the first pass: two hours take 230 MB, these features 12 MB. A frame's features depend on
its slice of the sound and on the start of the next two.

Shapes: k windows of one slice, evenly spaced, about 10 ms apart. A window is 512 samples (32 ms) of float32; the first
one starts with the slice.
"""

import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from typing import Annotated, Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from framekiln.contract import SOUND_RATE, Placement, Scope, Stage, Weights, field
from framekiln.contract.limits import Limits
from framekiln_stages.shared.tables import SOUND_WINDOW as WINDOW

Slice = NDArray[np.int16]  # samples of one frame

STEP = 160  # samples: 10 ms, the usual step in speech recognition
SEEN = 400  # samples under the Hann window: 25 ms, the usual window in speech recognition
PITCH = (80, 400)  # Hz: from a low male voice to a child's
MOST_GAIN = 4.0  # factor for the power of a window cut off at the end of a file or at very high frame rates
SILENCE_DB = -100.0  # below the noise of 16 bits, -98 dB

_LEVELS = pa.list_(pa.float32())
VOICE = pa.struct(
    [
        ("samples", pa.int32()),  # length of the slice
        ("loudness", _LEVELS),  # RMS in dB of full scale, -100 to 0
        ("middle", _LEVELS),  # power of the middle band, dB of full scale
        ("high", _LEVELS),  # power of the high band
        ("harmonicity", _LEVELS),  # height of the autocorrelation's peak at a pitch of speech: 0 noise, 1 a steady tone
    ]
)
OUTPUTS = pa.schema(
    [field("voice", VOICE, "sound of the frame's slice, a value each 10 ms: loudness, two bands, harmonicity", "dB")]
)


class Voice(Stage):
    """Levels and harmonicity of the sound from each frame to the next; null if a file has no sound.

    A slice without samples has empty lists.
    """

    inputs = ("sound",)
    outputs = OUTPUTS
    scope = Scope.CLIP
    thread_safe = True
    version = 2  # 2: three frames ahead, and levels of the samples that a window has
    # A window reaches up to 32 ms beyond the start of its slice: three more slices hold that up to 120 frames a second.
    # At 240 a window has only 17 ms, which decide its levels: 7 frames would cost each packet 8 % of its pixels.
    halo = 3

    @dataclass(frozen=True, kw_only=True)
    class Config(Stage.Config):
        """The two frequency bands, and the number of samples processed at once.

        Raises ValueError: a band is empty or above 8 kHz.
        """

        # Hz, the first two formants: the loudness there rises most when the mouth opens.
        middle_band: tuple[float, float] = (500.0, 2500.0)
        # Hz. It also gets louder with the opening, and softer with closed lips. Without it, swapped sound correlates
        # more.
        high_band: tuple[float, float] = (2500.0, 4000.0)
        # Samples processed at once: 1 s. It limits memory if one image covers minutes of sound.
        chunk: Annotated[int, Limits(ge=WINDOW)] = 16_000

        def __post_init__(self) -> None:
            for name in ("middle_band", "high_band"):
                low, high = getattr(self, name)
                if not 0 <= low < high <= SOUND_RATE / 2:
                    raise ValueError(f"{name} must rise from at least 0 to at most {SOUND_RATE // 2} Hz")

    def setup(self, weights: Weights, placement: Placement) -> None:  # noqa: ARG002
        """Load a part of librosa, so that no call waits for it."""
        self._describe(np.zeros((1, WINDOW), np.float32))

    def __call__(self, batch: pa.Table) -> pa.Table:
        """Describe each slice; rows are one clip and its halo."""
        slices = [item.values.to_numpy() if item.is_valid else None for item in batch["sound"]]
        with self.phase("infer"):
            rows = [
                None if own is None else self._make_row(slices[i : i + 1 + self.halo]) for i, own in enumerate(slices)
            ]
        return pa.table([pa.array(rows, VOICE)], schema=OUTPUTS)

    def _make_row(self, slices: list[Slice | None]) -> dict[str, Any]:
        own = 0 if slices[0] is None else len(slices[0])
        parts = [np.zeros((0, 4), np.float32), *map(self._describe, self._cut_windows(slices, own))]
        columns = np.concatenate(parts).T
        names = ("loudness", "middle", "high", "harmonicity")
        return {"samples": own} | dict(zip(names, columns, strict=True))

    def _cut_windows(self, slices: list[Slice | None], own: int) -> Iterator[NDArray[np.float32]]:
        """Yield the windows of the first slice, chunk by chunk: k WINDOW each, -1 to 1, NaN after the last sound."""
        samples = np.concatenate([part for part in slices if part is not None])[: own + WINDOW].astype(np.float32)
        samples = np.pad(samples / 32768, (0, own + WINDOW - len(samples)), constant_values=np.nan)
        count = max(round(own / STEP), 1) if own else 0
        starts = np.arange(count) * own // max(count, 1)
        most = self.config.chunk // STEP
        for first in range(0, len(starts), most):
            yield samples[starts[first : first + most, None] + np.arange(WINDOW)]

    def _describe(self, windows: NDArray[np.float32]) -> NDArray[np.float32]:
        """Return loudness, middle, high and harmonicity of each window (k 4), from the samples that are not NaN."""
        taper, tones = hann_and_tones()
        heard = np.isfinite(windows).sum(axis=1, keepdims=True)
        windows = np.nan_to_num(windows)
        windows *= np.sqrt(np.minimum(WINDOW / heard, MOST_GAIN), dtype=np.float32)
        power = squares(np.fft.rfft(windows * taper)) / SEEN**2
        bands = [
            power[:, (tones >= low) & (tones < high)].sum(axis=1)
            for low, high in (self.config.middle_band, self.config.high_band)
        ]
        loud = (windows**2).mean(axis=1)
        levels = [10 * np.log10(np.maximum(value, 10 ** (SILENCE_DB / 10))) for value in (loud, *bands)]
        return np.stack([*levels, harmonicity(windows, heard)], axis=1).astype(np.float32)


@cache
def hann_and_tones() -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return the Hann window in the middle of a window (WINDOW), and the frequency of each of its tones in Hz.

    These parts of librosa load in a second. `librosa.stft`, `rms` and `autocorrelate` lie in modules that numba
    compiles on import, for 15 s.
    """
    try:
        from librosa.filters import get_window
    except RuntimeError:  # numba finds no folder for its cache, which nothing here fills
        import numba

        with tempfile.TemporaryDirectory() as numba.config.CACHE_DIR:  # type: ignore[attr-defined]
            from librosa.filters import get_window
    from librosa import fft_frequencies

    return np.pad(get_window("hann", SEEN), (WINDOW - SEEN) // 2), fft_frequencies(sr=SOUND_RATE, n_fft=WINDOW)


def harmonicity(windows: NDArray[np.float32], heard: NDArray[np.int64]) -> NDArray[np.float32]:
    """Return the similarity of each window to itself one period later, for the best period within `PITCH`: k, 0 to 1.

    It is the autocorrelation at the lag over that at zero, divided by the overlapping fraction of the window (Boersma
    1993, eq. 9, for a rectangular window). The mean is subtracted first.

    `heard`: k 1, samples of each window before the padding zeros. Periods have at most two thirds of them.
    """
    shortest, longest = (SOUND_RATE // pitch for pitch in reversed(PITCH))
    means = windows.sum(axis=1, keepdims=True) / heard
    centred = np.where(np.arange(WINDOW) < heard, windows - means, 0)
    own = np.fft.irfft(squares(np.fft.rfft(centred, n=2 * WINDOW)))  # padded, so that no end meets the beginning
    lags = np.arange(shortest, longest + 1)
    overlap = np.where(lags <= heard * 2 / 3, heard / np.maximum(heard - lags, 1), 0)
    similarity = own[:, lags] / np.maximum(own[:, :1], 1e-9) * overlap
    return np.asarray(similarity.max(axis=1).clip(0, 1))


def squares(spectra: NDArray[np.complexfloating]) -> NDArray[np.floating]:
    """Return the squared magnitude of each value."""
    return spectra.real**2 + spectra.imag**2
