"""Each frame's slice of the sound, boiled down to what speech looks like: loudness in bands, and how voiced it is.

Sound itself never leaves the first pass: two hours are 230 MB of it, and 12 MB of this. What is said of a frame comes
from its slice and the start of the next two, so it does not matter where clips are cut.

Shapes: k windows of one slice, evenly spread, 10 ms apart as nearly as the slice's length allows. A window is 512
samples (32 ms) of float32, the first one starts where the slice does.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from pipeline.columns import SOUND_RATE, field
from pipeline.stage import Placement, Scope, Stage, Weights
from stages.nets.speech import WINDOW

Slice = NDArray[np.int16]  # the samples that lie with one frame

STEP = 160  # samples: 10 ms, the step of speech recognisers
SEEN = 400  # samples under the Hann window inside it: 25 ms, the window of speech recognisers
PITCH = (80, 400)  # Hz: from a low man's voice to a child's
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
    """Levels and harmonicity of the sound from each frame's time to the next one's; null where a file has no sound."""

    scope = Scope.CLIP
    halo = 2  # a window at the end of a slice reaches 22 ms into the next: two frames up to 90 frames a second
    placement = Placement()  # the numbers of other stages without a model, so that it shares their process

    @dataclass(frozen=True, kw_only=True)
    class Config(Stage.Config):
        """The two bands, and how much sound is looked at in one go.

        Raises:
            ValueError: a band is empty or beyond 8 kHz, or a chunk is shorter than a window.
        """

        # Hz. Where vowels differ in loudness as the mouth opens: between the first two formants' ranges.
        middle_band: tuple[float, float] = (500.0, 2500.0)
        # Hz. Rises with the opening too and falls with closed lips; without it swapped sound looks more like the lips'.
        high_band: tuple[float, float] = (2500.0, 4000.0)
        chunk: int = 16_000  # samples: one second; bounds memory where one picture lies over minutes of sound

        def __post_init__(self) -> None:
            for name in ("middle_band", "high_band"):
                low, high = getattr(self, name)
                if not 0 <= low < high <= SOUND_RATE / 2:
                    raise ValueError(f"{name} must rise from at least 0 to at most {SOUND_RATE // 2} Hz")
            if self.chunk < WINDOW:
                raise ValueError(f"chunk must be at least {WINDOW} samples")

    @property
    def inputs(self) -> tuple[str, ...]:
        """Sound only."""
        return ("sound",)

    @property
    def outputs(self) -> pa.Schema:
        """`voice`; null without sound, with empty lists where a slice is empty."""
        return OUTPUTS

    def setup(self, weights: Weights, placement: Placement) -> None:  # noqa: ARG002
        """Import librosa, and run it once: its first call imports and plans what the others use."""
        self._describe(np.zeros((1, WINDOW), np.float32))

    def __call__(self, batch: pa.Table) -> pa.Table:
        """Levels of each slice; the rows are one clip's and its halo's, in order."""
        slices = _slices(batch["sound"])
        with self.phase("infer"):
            rows = [None if own is None else self._row(slices[i : i + 1 + self.halo]) for i, own in enumerate(slices)]
        return pa.table([pa.array(rows, VOICE)], schema=OUTPUTS)

    def _row(self, slices: list[Slice | None]) -> dict[str, Any]:
        own = 0 if slices[0] is None else len(slices[0])
        parts = [np.zeros((0, 4), np.float32), *map(self._describe, self._windows(slices, own))]
        columns = np.concatenate(parts).T
        names = ("loudness", "middle", "high", "harmonicity")
        return {"samples": own} | dict(zip(names, columns, strict=True))

    def _windows(self, slices: list[Slice | None], own: int) -> Iterator[NDArray[np.float32]]:
        """The windows of the first slice, in parts that start within one chunk: k WINDOW each, -1 to 1."""
        heard = np.concatenate([part for part in slices if part is not None])[: own + WINDOW]
        heard = np.pad(heard, (0, own + WINDOW - len(heard))).astype(np.float32) / 32768
        starts = window_starts(own)
        most = self.config.chunk // STEP
        for first in range(0, len(starts), most):
            yield heard[starts[first : first + most, None] + np.arange(WINDOW)]

    def _describe(self, windows: NDArray[np.float32]) -> NDArray[np.float32]:
        """Loudness, middle, high, harmonicity of each window: k 4."""
        import librosa

        once = {"hop_length": WINDOW, "center": False}  # each window is one frame of librosa's
        spectra = librosa.stft(windows, n_fft=WINDOW, win_length=SEEN, **once)[..., 0]
        power = np.abs(spectra) ** 2 / SEEN**2
        tones = librosa.fft_frequencies(sr=SOUND_RATE, n_fft=WINDOW)
        bands = [
            power[:, (tones >= low) & (tones < high)].sum(axis=1)
            for low, high in (self.config.middle_band, self.config.high_band)
        ]
        loud = librosa.feature.rms(y=windows, frame_length=WINDOW, **once)[:, 0, 0] ** 2
        levels = [10 * np.log10(np.maximum(value, 10 ** (SILENCE_DB / 10))) for value in (loud, *bands)]
        return np.stack([*levels, harmonicity(windows)], axis=1).astype(np.float32)


def window_starts(samples: int) -> NDArray[np.int64]:
    """Where the windows of a slice start, in samples from its start: k, none of an empty slice."""
    count = max(round(samples / STEP), 1) if samples else 0
    return np.arange(count) * samples // max(count, 1)


def harmonicity(windows: NDArray[np.float32]) -> NDArray[np.float32]:
    """How alike a window is to itself one period later, for the best period within `PITCH`: 0 to 1 (k).

    The autocorrelation at the lag over that at zero, divided by the share of the window that overlaps (Boersma 1993,
    eq. 9, for a rectangular window). The mean is taken off first.
    """
    import librosa

    shortest, longest = (SOUND_RATE // pitch for pitch in reversed(PITCH))
    centred = windows - windows.mean(axis=1, keepdims=True)
    own = librosa.autocorrelate(centred, max_size=longest + 1)
    lags = np.arange(shortest, longest + 1)
    alike = own[:, lags] / np.maximum(own[:, :1], 1e-9) * WINDOW / (WINDOW - lags)
    best: NDArray[np.float32] = alike.max(axis=1).clip(0, 1)
    return best


def _slices(column: pa.ChunkedArray) -> list[Slice | None]:
    return [item.values.to_numpy() if item.is_valid else None for item in column]
