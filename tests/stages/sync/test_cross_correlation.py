"""What the offset of sound is computed by, against plain references: lags of correlation, and whose lips are read."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from framekiln_stages.sync.cross_correlation import active_seconds, confidence, correlation, highest
from framekiln_stages.sync.signals import opening_of_largest


@settings(max_examples=30, deadline=None)
@given(lag=st.integers(-30, 30), seed=st.integers(0, 99))
def test_correlation_is_pearsons_and_its_lag_is_the_delay(lag, seed):
    lips = np.random.default_rng(seed).standard_normal(400)
    curve = correlation(lips, np.roll(lips, lag), 50)
    assert curve.argmax() == 50 + lag
    assert curve[50 + lag] > 0.85
    same = correlation(lips, lips, 50)
    assert same[50] == pytest.approx(1)
    padded = np.pad(lips, 50)
    assert same == pytest.approx([padded[k : k + 400] @ lips / (lips @ lips) for k in range(101)])


@settings(max_examples=30, deadline=None)
@given(seed=st.integers(0, 99), seen=st.integers(5, 60), loud=st.floats(0.01, 1000))
def test_no_correlation_leaves_one_where_the_sound_is_loudest_beside_the_lips(seed, seen, loud):
    rng = np.random.default_rng(seed)
    lips = np.full(300, np.nan)
    lips[120 : 120 + seen] = rng.standard_normal(seen)
    sound = rng.standard_normal(300)
    sound[150 + seen :] *= loud
    sound[150 + seen : 150 + 2 * seen] = np.nan_to_num(lips[120 : 120 + seen]) * loud
    curve = correlation(lips, sound, 100)
    assert np.abs(curve).max() <= 1 + 1e-6


@given(at=st.floats(2, 8), height=st.floats(0.65, 1))
def test_the_top_of_a_parabola_is_found_between_points(at, height):
    curve = height - 0.01 * (np.arange(11) - at) ** 2
    assert (curve > 0).all()
    peak = highest(curve)
    assert (peak.at, peak.height) == pytest.approx((at, height), abs=1e-6)
    assert (peak.second, peak.inside) == (0, True)
    assert peak.median == pytest.approx(np.median(curve))


def test_a_curve_that_only_rises_or_is_negative_has_no_top():
    assert highest(np.arange(9.0)) is None
    assert highest(-1 - (np.arange(9.0) - 4) ** 2) is None


def curve_of(*peaks):
    """Bumps (place, height) of 0.1 s on a curve of 4 s."""
    points = np.arange(401.0)
    return sum(height * np.exp(-(((points - at) / 5) ** 2)) for at, height in peaks)


def test_the_runner_up_is_another_peak_and_not_a_ripple_of_the_same():
    assert highest(curve_of((100, 1.0), (110, 0.9), (300, 0.4))).second == pytest.approx(0.4, abs=1e-3)


def test_a_slope_that_rises_to_the_end_is_a_peak_outside():
    assert highest(curve_of((100, 0.5), (403, 1.0))).inside is False
    assert highest(curve_of((100, 0.5), (403, 0.4))).inside is True


def test_a_peak_is_surer_the_higher_it_is_and_the_lower_the_runner_up():
    alone, low, close = (highest(curve_of((100, 0.6), (300, other))) for other in (0.0, 0.2, 0.58))
    shares = [confidence(peak, 0.15) for peak in (alone, low, close)]
    assert shares == sorted(shares, reverse=True) and shares[0] > 0.99 and shares[2] < 0.8  # no offset is given
    assert confidence(alone, 0.15) > confidence(alone, 0.3)


def test_only_time_in_which_both_signals_change_counts():
    lips, sound = np.random.default_rng(0).standard_normal((2, 600))
    assert active_seconds(lips, [sound], 0) == pytest.approx(6, rel=0.1)
    padded = [np.pad(signal, 1500) for signal in (lips, sound)]
    assert active_seconds(padded[0], padded[1:], 0) == pytest.approx(6, rel=0.1)
    for lag in (300, -300):  # half of one is beside half of the other
        assert active_seconds(padded[0], padded[1:], lag) == pytest.approx(12, rel=0.1)
    late = np.pad(sound, (2100, 900))
    assert active_seconds(padded[0], [late], 600) == pytest.approx(6, rel=0.1)
    assert active_seconds(padded[0], [0 * late], 0) > 1e6


def test_people_who_come_and_go_are_different_tracks():
    def face(x, opening):
        return {"box": {"x0": x, "y0": 0.2, "x1": x + 0.3, "y1": 0.4 + opening / 5}, "opening": opening}

    frames = [[face(0.0, 1.0)] for _ in range(20)] + [[]] * 5 + [[face(0.6, 2.0), face(0.0, 1.0)] for _ in range(30)]
    column = pa.chunked_array([pa.array(frames)])
    times, opening, track = opening_of_largest(np.arange(55) / 10, column, 1.0)
    assert opening.tolist() == [1.0] * 20 + [2.0] * 30  # the larger of two, after .6 s without any
    assert len(set(track)) == 2
    assert times == pytest.approx(np.r_[0:20, 25:55] / 10)
    assert len(opening_of_largest(np.arange(55) / 10, column, 9.0)[0]) == 0


def test_the_height_between_two_points_stays_within_1():
    peak = highest(np.array([0.1, 0.9, 0.999, 0.998, 0.8, 0.2]))
    assert peak is not None and peak.height == 1.0
