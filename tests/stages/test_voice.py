"""Voice: levels of a known tone are known, a voice is told from noise, and cuts between clips change nothing."""

from __future__ import annotations

import itertools
import os
import subprocess
import sys

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from scipy import signal

from framekiln.contract.columns import SOUND
from framekiln_stages.voice.stage import PITCH, SEEN, WINDOW, Voice
from tests.support.stages.sync_factory import CLIPS, clip, spoken, voice

TIME = np.arange(16_000) / 16_000
MADE = {
    "tone": 16384 * np.sin(2 * np.pi * 1000 * TIME),
    "clipped": 32767 * np.sign(np.sin(2 * np.pi * 150 * TIME)),
    "sweep": 9000 * np.sin(2 * np.pi * (50 + 3900 * TIME) * TIME),
    "noise": np.random.default_rng(1).integers(-9000, 9000, 16_000),
    "silence": np.zeros(16_000),
}
SET_UP = """
from framekiln_stages.voice.stage import Voice
Voice().setup({}, None)
"""


def test_levels_of_a_tone_are_known():
    for hertz, louder, quieter in ((1000, "middle", "high"), (3200, "high", "middle")):
        tone = (16384 * np.sin(2 * np.pi * hertz * TIME)).astype(np.int16)
        row = spoken(tone, np.array([640] * 25))["voice"].to_pylist()[5]
        assert len(row["loudness"]) == 4
        assert row["samples"] == 640
        assert row["loudness"] == pytest.approx([20 * np.log10(0.5 / np.sqrt(2))] * 4, abs=0.1)
        assert min(row[louder]) > max(row[quieter]) + 30


def test_a_buzz_is_voiced_and_noise_is_not():
    buzz = np.zeros(16_000, np.int16)
    buzz[::125] = 20_000  # 128 Hz
    noise = np.random.default_rng(1).integers(-9000, 9000, 16_000).astype(np.int16)
    lengths = np.array([640] * 25)
    tones = [
        np.concatenate([row["harmonicity"] for row in spoken(x, lengths)["voice"].to_pylist()[:-1]])
        for x in (buzz, noise)
    ]
    assert tones[0].min() > 0.8
    assert tones[1].max() < 0.4


@pytest.mark.parametrize(("rate", "least"), [(1, 0.95), (12, 0.95), (60, 0.95), (120, 0.95), (240, 0.7)])
def test_a_voice_is_as_loud_and_as_harmonic_at_any_frame_rate(rate, least):
    """At 240 frames a second a window has half of its samples, too few for the lowest pitches."""
    samples = clip("lbax4n")[2][:32_000]

    def heard(fps):
        edges = np.arange(2 * fps + 1) * 16_000 // fps
        rows = spoken(samples, np.diff(edges))["voice"].to_pylist()
        loud, tones = (np.concatenate([row[name] for row in rows]) for name in ("loudness", "harmonicity"))
        return np.percentile(loud, 90), (tones > 0.5).mean()

    (loud, voiced), (loud_25, voiced_25) = heard(rate), heard(25)
    assert loud == pytest.approx(loud_25, abs=1)
    assert least * voiced_25 <= voiced <= voiced_25 / 0.95


def test_the_last_sound_of_a_file_is_as_loud_as_before():
    tone = (16384 * np.sin(2 * np.pi * 1000 * TIME)).astype(np.int16)
    rows = spoken(tone, np.array([640] * 25))["voice"].to_pylist()
    assert rows[-1]["loudness"] == pytest.approx(rows[5]["loudness"], abs=0.1)


@settings(max_examples=15, deadline=None, suppress_health_check=list(HealthCheck))
@given(
    cuts=st.sets(st.integers(1, 39), max_size=6),
    rate=st.sampled_from([160, 267, 533, 640, 2000, 20_000]),
    chunk=st.integers(512, 40_000),
)
def test_where_clips_are_cut_changes_nothing(cuts, rate, chunk):
    noise = np.random.default_rng(rate).integers(-9000, 9000, 40 * rate).astype(np.int16)
    slices = [*np.split(noise, 40)]
    slices[7] = slices[7][:0]
    stage = Voice(Voice.Config(chunk=chunk))
    whole = voice()(pa.table({"sound": pa.array(slices, SOUND)}))["voice"].to_pylist()
    edges = [0, *sorted(cuts), 40]
    pieces = []
    for start, stop in itertools.pairwise(edges):
        given_ = pa.table({"sound": pa.array(slices[start : stop + stage.halo], SOUND)})
        pieces += stage(given_)["voice"].to_pylist()[: stop - start]
    for one, other in zip(whole, pieces, strict=True):
        assert one.keys() == other.keys()
        assert all(np.allclose(one[key], other[key], atol=1e-3) for key in one)


def test_no_sound_is_null():
    assert voice()(pa.table({"sound": pa.array([None, None], SOUND)}))["voice"].null_count == 2


@pytest.mark.parametrize("sound", [*MADE, *CLIPS])
def test_levels_equal_scipys_and_the_definition_of_autocorrelation(sound):
    samples = (MADE[sound] if sound in MADE else clip(sound)[2]).astype(np.int16)
    (row,) = spoken(samples, np.array([len(samples)]))["voice"].to_pylist()
    starts = np.arange(len(row["loudness"])) * len(samples) // len(row["loudness"])
    starts = starts[starts + WINDOW <= len(samples)]  # the last ones have fewer samples
    windows = (samples / 32768)[starts[:, None] + np.arange(WINDOW)]
    seen = windows[:, (WINDOW - SEEN) // 2 : (WINDOW + SEEN) // 2]
    tones, _, spectra = signal.stft(seen, 16_000, nperseg=SEEN, nfft=WINDOW, boundary=None, padded=False)
    power = np.abs(spectra[..., 0]) ** 2 / 4  # a Hann window's mean is one half
    middle, high = (power[:, (tones >= low) & (tones < top)].sum(axis=1) for low, top in ((500, 2500), (2500, 4000)))
    for name, own in (("loudness", (windows**2).mean(axis=1)), ("middle", middle), ("high", high)):
        assert row[name][: len(own)] == pytest.approx(10 * np.log10(np.maximum(own, 1e-10)), abs=1e-3)
    lags = np.arange(16_000 // PITCH[1], 16_000 // PITCH[0] + 1)
    centred = windows - windows.mean(axis=1, keepdims=True)
    own = np.stack([(centred[:, lag:] * centred[:, : WINDOW - lag]).sum(axis=1) for lag in lags], axis=1)
    energy = np.maximum((centred**2).sum(axis=1, keepdims=True), 1e-9)
    peaks = (own / energy * WINDOW / (WINDOW - lags)).max(axis=1).clip(0, 1)
    assert row["harmonicity"][: len(peaks)] == pytest.approx(peaks, abs=1e-5)


def test_the_set_up_compiles_nothing(tmp_path):
    """Numba keeps what it compiles, and most of librosa's modules let it compile when they are imported."""
    environment = os.environ | {"NUMBA_CACHE_DIR": str(tmp_path)}
    subprocess.run([sys.executable, "-c", SET_UP], env=environment, check=True)
    assert [path for path in tmp_path.rglob("*") if path.is_file()] == []


def test_the_set_up_needs_no_folder_for_numbas_cache():
    environment = os.environ | {"NUMBA_CACHE_LOCATOR_CLASSES": "UserProvidedCacheLocator"}  # none is provided
    environment.pop("NUMBA_CACHE_DIR", None)
    subprocess.run([sys.executable, "-c", SET_UP], env=environment, check=True)
