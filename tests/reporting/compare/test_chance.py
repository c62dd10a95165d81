"""Intervals of changes: chance is rarely called a difference, a fifth more nearly always."""

from __future__ import annotations

import numpy as np
import pytest

from framekiln.planning.sample import PERCENTILES
from framekiln.profiling.stats.speed import TimedCalls
from framekiln.reporting.compare.chance import interval, spreads

DRAWS = 200


def draw(chance, count, alike, factor=1.0, workers=2, rows=16):
    """Return calls with log-normal times (a quarter up or down), in each worker an AR(1) process."""
    parts = []
    for worker in range(workers):
        noise = chance.normal(size=count // workers)
        for i in range(1, len(noise)):
            noise[i] = alike * noise[i - 1] + np.sqrt(1 - alike**2) * noise[i]
        seconds = factor * 0.16 * np.exp(0.25 * noise)
        begun = np.cumsum(seconds + chance.exponential(0.02, size=len(seconds))) - seconds
        parts.append((np.full(len(seconds), worker), begun, seconds, np.full(len(seconds), rows)))
    return TimedCalls.of(*(np.concatenate(column) for column in zip(*parts, strict=True)))


def points(calls):
    each = calls.seconds / calls.rows
    own = {"rate": calls.rows.sum() / calls.cycles.sum(), "ms_row": calls.seconds.sum() / calls.rows.sum()}
    return own | {name: float(np.quantile(each, share)) for name, share in PERCENTILES.items()}


def called(alike, factor, count):
    """By figure, in which share of draws the two sides are called different."""
    chance, hits = np.random.default_rng(7), {}
    for _ in range(DRAWS):
        sides = draw(chance, count, alike), draw(chance, count, alike, factor)
        known = [spreads(side) for side in sides]
        values = [points(side) for side in sides]
        for name in known[0]:
            result = interval(*(tuple([side[name]] for side in sides) for sides in (values, known)))
            hits[name] = hits.get(name, 0) + (not result.contains_zero) / DRAWS
    return hits


@pytest.mark.parametrize("alike", [0.5, pytest.param(0.0, marks=pytest.mark.heavy)])
def test_two_samples_of_one_distribution_are_rarely_called_different(alike):
    result = called(alike, 1.0, 200)
    assert {"rate", "ms_row", "p50", "p90", "p95"} == set(result)
    assert np.mean(list(result.values())) <= 0.08, result  # of 1,000 draws 4.0 to 7.4 %; 200 are off by 1.7 % or so
    assert max(result.values()) <= 0.11, result


@pytest.mark.parametrize("alike", [0.0, pytest.param(0.5, marks=pytest.mark.heavy)])
def test_a_fifth_more_is_found(alike):
    result = called(alike, 1.2, 200)
    assert min(result[name] for name in ("rate", "ms_row", "p50")) >= 0.9, result


@pytest.mark.parametrize("calls", [0, pytest.param(60, marks=pytest.mark.heavy)])
def test_repeated_runs_with_luck_of_their_own_are_rarely_called_different(calls):
    """Each run is faster or slower as a whole by 3 %, which its calls know nothing of; with and without records."""
    chance, draws = np.random.default_rng(3), DRAWS // 2

    def side(factor):
        factors = factor * np.exp(0.03 * chance.normal(size=3))
        if not calls:
            return factors.tolist(), [None] * 3
        runs = [draw(chance, calls, 0.3, factor) for factor in factors]
        return [points(run)["ms_row"] for run in runs], [spreads(run)["ms_row"] for run in runs]

    result = {1.0: 0, 1.2: 0}
    for _ in range(draws):
        for factor in result:
            (first, known), (second, more) = side(1.0), side(factor)
            result[factor] += not interval((first, second), (known, more)).contains_zero
    assert result[1.0] / draws <= 0.09
    assert result[1.2] / draws >= (0.75 if calls else 0.9)  # of 200 draws 84 %, where calls vary by a quarter


def test_few_calls_have_no_spread():
    chance = np.random.default_rng(1)
    assert spreads(draw(chance, 30, 0.0)) == {}
    assert set(spreads(draw(chance, 100, 0.0))) == {"rate", "ms_row", "p50", "p90", "p95"}
    assert interval(([1.0], [2.0]), ([None], [None])) is None
    timeless = TimedCalls.of(np.zeros(100), np.arange(100.0), np.zeros(100), np.ones(100))
    assert {name: spread.variance for name, spread in spreads(timeless).items()} == {"rate": pytest.approx(0, abs=0.1)}


def test_cycles_hold_the_waits_between_calls_of_one_worker():
    calls = TimedCalls.of(["b", "a", "a"], [0.0, 5.0, 1.0], [1.0, 1.0, 2.0], [4, 4, 4])
    assert calls.worker.tolist() == [0, 0, 1]
    assert calls.cycles.tolist() == [4.0, 1.0, 1.0]
