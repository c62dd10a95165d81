"""Times of layers against layers that sleep for known times."""

from __future__ import annotations

import time
from types import SimpleNamespace

import pytest
import torch
from torch import nn

from framekiln.contract.phases import PhaseClock
from framekiln.lab.measure.layers import WHOLE, hooked, measure_layers, modules_to, slowest
from tests.lab.models import Raises, Sleep

MS = {"a": 4, "b": 2, "c": 2, "d": 9, "e": 2, "f": 1}


class Steps:
    """The time of the clocks, which `Timed` layers move forward."""

    now = 0.0


@pytest.fixture(autouse=True)
def steps(monkeypatch):
    monkeypatch.setattr("framekiln.contract.phases.time", SimpleNamespace(perf_counter=lambda: Steps.now))


class Timed(nn.Module):
    """A layer that takes a known time."""

    def __init__(self, ms):
        super().__init__()
        self.ms = ms

    def forward(self, x):
        Steps.now += self.ms / 1000
        return x


class Blocks(nn.Module):
    """A list of blocks and a head that is called twice."""

    def __init__(self):
        super().__init__()
        self.blocks = nn.ModuleList([nn.Sequential(Timed(3), Timed(1)), nn.Sequential(Timed(5))])
        self.head = Timed(2)

    def forward(self, x):
        for block in self.blocks:
            x = block(x)
        Steps.now += 0.0005
        return self.head(self.head(x))


def measured(net, depth=1, calls=3):
    return measure_layers(lambda: net(torch.ones(1)), {"": net}, depth, "cpu", calls)


def test_times_and_order_of_layers():
    net = nn.Sequential()
    for name, ms in MS.items():
        net.add_module(name, Timed(ms))
    layers = measured(net)
    assert [layer.path for layer in layers] == [WHOLE, *MS]
    assert {layer.path: round(layer.mean_ms, 6) for layer in layers} == {WHOLE: 20.0, **MS}
    assert [layer.path for layer in slowest(layers, 2)] == ["d", "a"]
    assert layers[4].share == pytest.approx(9 / 20) and layers[4].std_ms == pytest.approx(0, abs=1e-9)


def test_blocks_of_a_list_are_children_and_own_time_leaves_them_out():
    layers = {layer.path: layer for layer in measured(Blocks(), depth=2)}
    assert list(layers) == [WHOLE, "blocks.0", "blocks.0.0", "blocks.0.1", "blocks.1", "blocks.1.0", "head"]
    assert layers["blocks.0"].mean_ms == pytest.approx(4) and layers["blocks.0"].own_ms == pytest.approx(0)
    assert layers[WHOLE].mean_ms == pytest.approx(13.5) and layers[WHOLE].own_ms == pytest.approx(0.5)


def test_a_module_that_is_called_twice_has_the_sum_of_both():
    layers = {layer.path: layer for layer in measured(Blocks())}
    assert layers["head"].uses == 2 and layers["head"].mean_ms == pytest.approx(4)


def test_a_deeper_module_counts_for_the_one_above_it_where_the_depth_ends():
    layers = {layer.path: layer for layer in measured(Blocks(), depth=1)}
    assert layers["blocks.0"].own_ms == pytest.approx(4) and "blocks.0.0" not in layers


def test_a_layer_that_raises_is_ended_and_leaves_no_hooks():
    net, clock = Raises(), PhaseClock()
    with hooked({"": net}, 1, clock) as uses, pytest.raises(RuntimeError, match="this layer stops"):
        net(torch.ones(2, 3))
    assert clock._open == [] and uses == {"first": 1, "second": 1}
    assert not net.first._forward_hooks and not net.first._forward_pre_hooks


def test_a_module_under_two_names_is_listed_once():
    net = nn.Module()
    net.one = net.two = nn.Linear(2, 2)
    assert [path for path, _, _ in modules_to({"": net}, 2)] == ["one"]


def test_phases_in_phases_in_phases_count_once():
    clock = PhaseClock()
    for _ in range(3):
        clock.begin()
    for name in ("inner", "middle", "outer"):
        Steps.now += 1
        clock.end(name)
    assert clock.take() == pytest.approx({"inner": 1.0, "middle": 1.0, "outer": 1.0})


def test_by_the_own_clock_of_the_cpu_the_longest_sleep_comes_first(monkeypatch):
    monkeypatch.setattr("framekiln.contract.phases.time", time)
    net = nn.Sequential(Sleep(1), Sleep(15), Sleep(1))
    layers = measure_layers(lambda: net(torch.ones(1)), {"": net}, 1, "cpu", 2)
    assert slowest(layers, 1)[0].path == "1" and layers[2].mean_ms >= 15
