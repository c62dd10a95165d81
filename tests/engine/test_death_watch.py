"""Which deaths of processes stop a run."""

from __future__ import annotations

import threading
from itertools import count

import pytest
import ray

from framekiln.engine.ray import death_watch
from framekiln.engine.ray.death_watch import DeathWatch

EARLIER = {bytes([i]): True for i in range(30)}  # killed in earlier runs on the same Ray


@pytest.mark.parametrize(("new", "codes"), [(0, []), (9, []), (10, ["FK-PROCESSES-KILLED"])])
def test_deaths_before_the_run_do_not_count_while_the_coordinator_starts(monkeypatch, new, codes):
    looks, errors, looked = [], [], threading.Event()

    def workers():
        looks.append(EARLIER if not looks else EARLIER | {bytes([100 + i]): True for i in range(new)})
        if len(looks) > 3:
            looked.set()
        return looks[-1]

    def advances():
        raise ray.exceptions.GetTimeoutError

    def stop(error):
        errors.append(error.code)
        looked.set()

    monkeypatch.setattr(death_watch, "list_workers", workers)
    monkeypatch.setattr(death_watch, "_SECONDS", 0.01)
    monkeypatch.setattr(death_watch, "_LEAST_S", 0.0)
    watch = DeathWatch(stop, advances)
    assert looked.wait(60)
    watch.close()
    assert errors == codes


def test_a_standstill_for_want_of_memory_stops_the_run(monkeypatch):
    class Lasts:
        def lasts(self, *, progress):
            return not progress

    errors, stopped = [], threading.Event()
    monkeypatch.setattr(death_watch, "list_workers", dict)
    monkeypatch.setattr(death_watch, "_SECONDS", 0.01)
    monkeypatch.setattr(death_watch, "Standstill", Lasts)
    watch = DeathWatch(lambda error: (errors.append(error.code), stopped.set()), lambda: 7)
    assert stopped.wait(60)
    watch.close()
    assert errors == ["FK-MEMORY-FULL"]


@pytest.mark.parametrize(("advances", "codes"), [(lambda: 7, ["FK-PROCESSES-KILLED"]), (count().__next__, [])])
def test_deaths_between_which_work_ends_do_not_stop_the_run(monkeypatch, advances, codes):
    """Each look finds ten more deaths, of processes that began some work again."""
    looks, errors, looked = [], [], threading.Event()

    def workers():
        looks.append({bytes([i]): True for i in range(10 * len(looks))})
        if len(looks) > 5:
            looked.set()
        return looks[-1]

    monkeypatch.setattr(death_watch, "list_workers", workers)
    monkeypatch.setattr(death_watch, "_SECONDS", 0.01)
    monkeypatch.setattr(death_watch, "_LEAST_S", 0.0)
    watch = DeathWatch(lambda error: (errors.append(error.code), looked.set()), advances)
    assert looked.wait(60)
    watch.close()
    assert errors == codes
