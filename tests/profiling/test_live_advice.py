"""Advice from a run's last seconds: idle GPUs and models, the step to change, and no advice without evidence."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace

import pytest

from framekiln.contract.row_errors import DECODE
from framekiln.contract.stage import Scope
from framekiln.planning.processes.placement import Room
from framekiln.profiling.advice import live_advice
from framekiln.profiling.records import Reading
from tests.support.runs.live_events import DECODING, GPU_SAMPLE, ON_GPU, after, live, working


def placed(name, *, workers=1, keeps_model=True):
    """Return as much of a step as the advice asks for."""
    placement, stage = SimpleNamespace(batch=8, workers=workers), SimpleNamespace(scope=Scope.ROW)
    return SimpleNamespace(name=name, keeps_model=keeps_model, placement=placement, stage=stage)


def sentence(advice):
    return f"{advice.reason}; {advice.change}." if advice else ""


def advised(window, *steps, use=20.0):
    window.read(Reading(node="host", time=99.0, gpus=({**GPU_SAMPLE, "use_percent": use},)))
    names = (DECODE, *(step.name for step in steps))
    return sentence(live_advice(steps, {name: now for name in names if (now := window.step(name, 100.0))}, {}))


def test_an_idle_gpu_gives_advice_with_its_reason():
    hungry = live(DECODING["busy"], working("faces", 0.2, 0.3, **ON_GPU))
    advice = advised(hungry, placed("faces", workers=2))
    assert advice.startswith(
        "The GPU is used 20 %: faces waits 60 % of its time for input while decode is busy 100 % of its time; "
        "raise decode's workers"
    )
    small = live(DECODING["idle"], working("faces", 0.5, **ON_GPU))
    assert advised(small, placed("faces")).startswith(
        "The GPU is used 20 %: faces is busy 100 % of its time; raise its batch"
    )
    outside = live(DECODING["idle"], working("faces", 0.5, device="cuda", phases={"preprocess": 0.4}))
    assert "one more worker on the GPU" in advised(outside, placed("faces"))


def test_waiting_models_on_the_cpu_give_advice_on_the_slow_step():
    hungry = live(DECODING["busy"], working("faces", 0.1, 0.4))
    assert advised(hungry, placed("faces")).startswith("faces waits 80 % of its time for input while decode")
    slow = live(working(DECODE, 0.1, worker="h:9"), working("pose", 0.5, worker="h:8"), working("faces", 0.1, 0.4))
    assert "raise pose's workers" in advised(slow, placed("pose"), placed("faces"))
    decoding = [replace(event, around={}) for event in working(DECODE, 0.1, 0.4, worker="host:9", until=99.6)]
    shared = live(decoding, after(decoding, "lighting", 0.4), working("faces", 0.1, 0.4))
    names = {name: shared.step(name, 100.0) for name in (DECODE, "lighting", "faces")}
    beside = placed("lighting", keeps_model=False)
    advice = sentence(live_advice([beside, placed("faces")], names, {}))
    assert "while lighting is busy" in advice and "; raise decode's workers" in advice


def test_with_saturated_cores_no_more_workers_are_advised():
    waiting = [DECODING["busy"], working("faces", 0.2, 0.3, **ON_GPU)]
    outside = [DECODING["idle"], working("faces", 0.5, device="cuda", phases={"preprocess": 0.4})]
    for some, cost in ((waiting, "read smaller images"), (outside, "lower faces's cost")):
        window = live(*some)
        window.read(Reading(node="host", time=98.0, gpus=(), cpu_percent=97.0))
        advice = advised(window, placed("faces"))
        assert f", and all cores are taken (CPU 97 %); more workers will not help; {cost}" in advice
        assert "raise" not in advice and "one more" not in advice
    window, step = live(*waiting), placed("faces")
    window.read(Reading(node="host", time=99.0, gpus=({**GPU_SAMPLE, "use_percent": 20.0},), cpu_percent=50.0))
    now = {name: window.step(name, 100.0) for name in (DECODE, "faces")}
    assert "raise decode's workers" in sentence(live_advice([step], now, {}))
    advice = sentence(live_advice([step], now, {DECODE: Room(processes=1, is_full=True)}))
    assert "the plan has no core for another process (CPU 50 %); more workers will not help" in advice


@pytest.mark.parametrize(
    ("some", "use"),
    [
        ((DECODING["busy"], working("faces", 0.2, 0.3, **ON_GPU)), 80.0),  # the GPU is busy
        ((DECODING["idle"], working("faces", 0.2, 0.3, **ON_GPU)), 20.0),  # no process is busy
        ((DECODING["busy"], working("faces", 0.2, 0.3, packets=3, **ON_GPU)), 20.0),  # too early
        ((DECODING["busy"], working("faces", 0.2, 0.3, packets=10, **ON_GPU)), 20.0),  # within the first seconds
        ((DECODING["busy"], working("faces", 0.4, 0.1)), 20.0),  # at work on the CPU
    ],
)
def test_no_advice_without_a_reason(some, use):
    assert advised(live(*some), placed("faces"), use=use) == ""


def test_no_advice_on_gpus_without_readings():
    window = live(DECODING["idle"], working("faces", 0.5, **ON_GPU))
    names = {name: window.step(name, 100.0) for name in (DECODE, "faces")}
    assert live_advice([placed("faces")], names, {}) is None
