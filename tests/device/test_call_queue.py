"""Model calls of several threads, joined into full batches: rows, failures, memory, and what each thread is told."""

from __future__ import annotations

import threading
import time
from concurrent.futures import ThreadPoolExecutor

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from framekiln.contract.phases import PhaseClock, running
from framekiln.contract.placement import Placement
from framekiln.device import Batches
from framekiln.device.streams import Mark
from tests.support.runs.scheduled_calls import FOREVER, Network, numbers, opened, together


@pytest.fixture
def joint():
    with opened(FOREVER) as calls:
        yield calls


def test_rows_of_several_packets_fill_batches(joint):
    network = Network()
    requests = numbers(5, 3, 7, 1)
    results = together(joint, Batches(network, Placement(batch=4)), requests)
    assert network.sizes == [4, 4, 4, 4] and network.threads == {"device"}
    assert all(torch.equal(result, 2 * rows) for result, rows in zip(results, requests, strict=True))


def test_batches_are_filled_by_cost(joint):
    """Rows of a quarter of the unit go sixteen at a time, rows of twice the unit two, and larger ones alone."""
    for values, sizes in ((2, [16, 4]), (8, [4] * 5), (16, [2] * 10), (64, [1] * 20)):
        network = Network()
        batches = Batches(network, Placement(batch=4), unit=8)
        requests = [torch.full((10, values), float(i)) for i in range(2)]
        results = together(joint, batches, requests)
        assert network.sizes == sizes
        assert all(torch.equal(result, 2 * rows) for result, rows in zip(results, requests, strict=True))
        assert torch.equal(batches.direct(requests[1]), 2 * requests[1]) and max(network.sizes) == sizes[0]


def test_memory_that_runs_out_halves_what_a_batch_may_cost(joint):
    network = Network(lambda rows: full_above(8, rows))
    batches = Batches(network, Placement(batch=4), unit=8)
    assert all(isinstance(result, torch.Tensor) for result in together(joint, batches, [torch.ones(8, 2)] * 2))
    assert network.sizes == [16, 8, 8]
    together(joint, batches, [torch.ones(8, 8)])
    assert network.sizes[3:] == [2] * 4


def full_above(most, rows):
    if len(rows) > most:
        raise torch.OutOfMemoryError("CUDA out of memory")


@given(st.lists(st.integers(1, 9), min_size=1, max_size=5), st.integers(1, 8))
def test_each_call_gets_its_own_rows_whatever_shares_its_batches(counts, batch):
    with opened(0.0) as calls:
        requests = numbers(*counts)
        network = Network()
        results = together(calls, Batches(network, Placement(batch=batch)), requests)
    assert sum(network.sizes) == sum(counts) and max(network.sizes) <= batch
    assert all(torch.equal(result, 2 * rows) for result, rows in zip(results, requests, strict=True))


def test_calls_of_other_models_or_shapes_do_not_share_a_batch(joint):
    first, second = Network(), Network()
    one, two = Batches(first, Placement(batch=8)), Batches(second, Placement(batch=8))
    calls = [(one, torch.ones(3, 1)), (one, torch.ones(2, 5)), (two, torch.ones(4, 1))]
    barrier = threading.Barrier(3)

    def work(call):
        with joint.packet():
            barrier.wait()
            return call[0](call[1])

    with ThreadPoolExecutor(3) as pool:
        shapes = [tuple(result.shape) for result in pool.map(work, calls)]
    assert shapes == [(3, 1), (2, 5), (4, 1)] and sorted(first.sizes) == [2, 3] and second.sizes == [4]


def waiting(calls, requests):
    """Call models one after the other from threads of their own while the device works alone; the order of batches."""
    order = []

    def model(name):
        return lambda rows: (order.append((name, len(rows))), rows)[1]

    models = {name: Batches(model(name), Placement(batch=4)) for name, _ in requests}
    begun, go = threading.Event(), threading.Event()

    def work(name, count):
        with calls.packet():
            return models[name](torch.ones(count, 1))

    with ThreadPoolExecutor(len(requests) + 1) as pool:
        alone = pool.submit(calls.apart, lambda: (begun.set(), go.wait()))
        begun.wait()
        results = []
        for number, request in enumerate(requests, 1):
            results.append(pool.submit(work, *request))
            while len(calls._calls) < number:  # until it waits
                time.sleep(0.001)
        go.set()
        assert [len(result.result()) for result in results] == [count for _, count in requests]
        alone.result()
    return order


def test_full_batches_go_first_in_the_order_of_their_oldest_call_and_then_the_fullest(joint):
    requests = [("few", 1), ("some", 2), ("many", 3), ("fp32", 2), ("some", 1), ("fp32", 2)]
    assert waiting(joint, requests) == [("fp32", 4), ("some", 3), ("many", 3), ("few", 1)]


def test_a_call_is_passed_over_by_eight_batches_at_most(joint):
    assert waiting(joint, [("lone", 1), ("other", 48)]) == [*[("other", 4)] * 8, ("lone", 1), *[("other", 4)] * 4]


def test_a_partial_batch_leaves_after_the_linger_time():
    with opened(0.001) as calls, calls.packet():  # of a thread that never calls: it might add rows
        assert together(calls, Batches(Network(), Placement(batch=8)), numbers(2))[0].tolist() == [[0], [2]]


def test_a_row_that_fails_fails_its_own_call_only(joint):
    def refuse(rows):
        if (rows == 4).any():
            raise ValueError("not four")

    results = together(joint, Batches(Network(refuse), Placement(batch=16)), numbers(3, 3, 3))
    assert [type(result).__name__ for result in results] == ["Tensor", "ValueError", "Tensor"]
    assert results[2].tolist() == [[12], [14], [16]]


def test_calls_that_do_not_fit_together_are_made_apart_and_later_ones_in_smaller_batches(joint):
    network = Network(lambda rows: full_above(4, rows))
    batches = Batches(network, Placement(batch=8))
    assert all(isinstance(result, torch.Tensor) for result in together(joint, batches, numbers(4, 4)))
    assert network.sizes == [8, 4, 4]
    together(joint, batches, numbers(4, 4))
    assert network.sizes[3:] == [4, 4]
    too_large = together(joint, batches, [torch.ones(4, 1)] * 2)  # both fit
    assert not any(isinstance(result, Exception) for result in too_large)


def test_a_device_that_is_lost_leaves_no_thread_waiting(joint, monkeypatch):
    def lost(*_):
        raise RuntimeError("CUDA error: an illegal memory access was encountered")

    batches = Batches(Network(), Placement(batch=2))
    monkeypatch.setattr(Mark, "wait", lost)
    results = together(joint, batches, numbers(9))  # more batches than may be ahead
    results += together(joint, Batches(lost, Placement(batch=2)), numbers(3, 2))
    assert [type(result).__name__ for result in results] == ["RuntimeError"] * 3


def test_a_call_alone_has_no_other_beside_it_and_calls_models_at_once(joint):
    network = Network()
    batches = Batches(network, Placement(batch=8))
    assert joint.apart(lambda: batches(torch.ones(3, 1))).shape == (3, 1) and network.sizes == [3]
    with pytest.raises(ZeroDivisionError):
        joint.apart(lambda: 1 / 0)
    assert joint.apart(lambda: 5) == 5


def test_the_clock_tells_the_wait_for_other_packets_from_the_model_s_own_time(joint):
    clock, seconds = PhaseClock(), {}

    def work(rows):
        with joint.packet(), running(clock):
            barrier.wait()
            clock.begin()
            batches(rows)
            clock.end("infer")
            seconds[len(rows)] = dict(clock.take())

    barrier, batches = threading.Barrier(2), Batches(Network(), Placement(batch=4))
    with ThreadPoolExecutor(2) as pool:
        list(pool.map(work, numbers(1, 3)))
    assert all(set(phases) == {"queue", "infer"} for phases in seconds.values())
    assert all(value >= 0 for phases in seconds.values() for value in phases.values())
