"""The timing loop, with a clock that only the calls move forward."""

from __future__ import annotations

import pytest

from framekiln.lab.measure.timed import MeasureOptions, TimeLimits, timed
from framekiln.planning.sample import Statistics, calls_for


class Machine:
    """A clock, a call that takes known seconds, and a queue that `wait` works off."""

    def __init__(self, seconds=(1.0,), queued=0.0):
        self.now, self.seconds, self.queued, self.calls, self.pending = 0.0, seconds, queued, 0, 0.0

    def clock(self):
        return self.now

    def call(self):
        self.now += self.seconds[min(self.calls, len(self.seconds) - 1)]
        self.pending += self.queued
        self.calls += 1

    def wait(self):
        self.now, self.pending = self.now + self.pending, 0.0

    def timed(self, limits, **options):
        return timed(self.call, self.wait, limits, clock=self.clock, **options)


class Event:
    """An event of a GPU that does the work of the queue after the calls."""

    made = 0

    def record(self):
        self.number = Event.made = Event.made + 1

    def synchronize(self):
        raise AssertionError("the loop must not wait for single events")

    def elapsed_time(self, later):
        return 250.0 * (later.number - self.number)


def test_a_number_of_calls_after_the_warm_up():
    machine = Machine()
    samples = machine.timed(TimeLimits(warmup=2, least=4, wanted=4, most=4, seconds=0))
    assert (samples.seconds, samples.warmup, samples.warmup_s, samples.wall_s) == ((1.0,) * 4, 2, 2.0, 4.0)
    assert samples.rate(8) == 8.0 and machine.calls == 6


def test_the_warm_up_lasts_as_long_as_the_longer_of_its_two_limits():
    assert Machine().timed(TimeLimits(warmup=1, warmup_s=2.5, most=1, least=1, wanted=1)).warmup == 3
    assert Machine().timed(TimeLimits(warmup=5, warmup_s=2.5, most=1, least=1, wanted=1)).warmup == 5


def test_seconds_bound_a_loop_and_patience_bounds_the_number_that_is_wanted():
    limits = TimeLimits(warmup=0, least=1, wanted=1, seconds=3.5)
    assert Machine().timed(limits).calls == 4
    patient = TimeLimits(warmup=0, least=1, wanted=100, seconds=3.5, patience_s=6.0)
    assert Machine().timed(patient).calls == 6


def test_a_slow_call_ends_a_loop():
    limits = TimeLimits(warmup=0, least=3, wanted=3, seconds=9.0, slow_s=30.0)
    assert Machine(seconds=(1.0, 31.0, 1.0)).timed(limits).calls == 2


def test_waiting_after_each_call_counts_for_its_latency_and_not_for_its_enqueueing():
    limits = TimeLimits(warmup=0, least=3, wanted=3, most=3, seconds=0)
    waited = Machine(queued=0.5).timed(limits, wait_each=True)
    assert waited.seconds == (1.5,) * 3 and waited.enqueue_s == (1.0,) * 3 and waited.wall_s == 4.5
    queued = Machine(queued=0.5).timed(limits)
    assert queued.seconds == queued.enqueue_s == (1.0,) * 3 and queued.wall_s == 4.5


def test_events_are_read_after_the_loop():
    samples = Machine().timed(TimeLimits(warmup=0, most=2, least=2, wanted=2, seconds=0), event=Event)
    assert samples.gpu_s == (0.25, 0.25)


def test_what_precedes_a_call_is_not_in_its_time():
    machine, numbers = Machine(), []

    def before(number):
        numbers.append(number)
        machine.now += 10

    samples = machine.timed(TimeLimits(warmup=1, most=2, least=2, wanted=2, seconds=0), before=before)
    assert samples.seconds == (1.0, 1.0) and numbers == [0, 1] and samples.wall_s == 22.0


@pytest.mark.parametrize(("pause", "calls"), [(0.1, 20), (2.0, 10), (30.0, 3)])
def test_seconds_are_those_of_calls_and_not_of_what_precedes_them(pause, calls):
    """2 s of calls of 0.1 s; 10 times as long in all, at most; and 3 calls in any case."""
    machine = Machine(seconds=(0.1,))

    def flush(_):
        machine.now += pause

    limits = MeasureOptions(seconds=2.0, cold_cache=True, warmup=0, warmup_s=0).limits
    assert machine.timed(limits, before=flush).calls == calls


def test_statistics_in_ms():
    result = Statistics.of([0.001, 0.002, 0.003, 0.010])
    assert (result.count, result.min, result.max) == (4, 1.0, 10.0)
    assert result.mean == pytest.approx(4.0) and result.median == pytest.approx(2.5)
    assert result.std == pytest.approx(4.0824829)


@pytest.mark.parametrize(("name", "least"), [("p50", 10), ("p90", 50), ("p95", 100), ("p99", 500)])
def test_a_percentile_needs_five_calls_beyond_it(name, least):
    assert calls_for(float(f"0.{name[1:]}")) == least
    assert getattr(Statistics.of([0.001] * (least - 1)), name) is None
    assert getattr(Statistics.of([0.001] * least), name) == pytest.approx(1.0)


def test_one_call_has_no_spread():
    assert Statistics.of([0.5]).std is None
