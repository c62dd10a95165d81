"""Voice: levels of a known tone are known, a voice is told from noise, and cuts between clips change nothing."""

from __future__ import annotations

import itertools

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from framekiln.contract.columns import SOUND
from framekiln_stages.voice.stage import Voice
from tests.support.stages.sync_factory import spoken, voice


def test_levels_of_a_tone_are_known():
    time = np.arange(16_000) / 16_000
    for hertz, louder, quieter in ((1000, "middle", "high"), (3200, "high", "middle")):
        tone = (16384 * np.sin(2 * np.pi * hertz * time)).astype(np.int16)
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
