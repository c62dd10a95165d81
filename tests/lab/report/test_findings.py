"""Each rule applies to numbers beyond its limit, and to none before it."""

from __future__ import annotations

from dataclasses import replace

import pytest

from framekiln.lab import findings as rules
from framekiln.lab.findings import findings, load
from framekiln.lab.output.cells import Cell, Drift, Leak, SpeedUp
from framekiln.planning.sample import Statistics
from tests.lab.report.results import layer, memory, result


def times(ms):
    return Statistics.of([ms / 1000] * 3)


def gpu(latency, enqueue, work):
    return {"latency_ms": times(latency), "enqueue_ms": times(enqueue), "gpu_ms": times(work)}


def speedup(factor, low=None, high=None):
    return {"speedup": SpeedUp(factor=factor, low=low or factor, high=high or factor, turns=5)}


def share(factor):
    return {"factor": factor, "low": factor, "high": factor, "turns": 5}


def blocks(*ms):
    return {"layers": tuple(layer(f"encoder.{n}", 0.1, value) for n, value in enumerate(ms))}


CASES = {
    "layer dominates": ({"layers": (layer("encoder", 0.51),)}, {"layers": (layer("encoder", 0.5),)}),
    "blocks differ": (blocks(1.0, 1.0, 1.0, 2.0), blocks(1.0, 1.1, 1.0, 1.2)),
    "patch embedding": (
        {"layers": (layer("embeddings.patch_embedding", 0.11),)},
        {"layers": (layer("embeddings.patch_embedding", 0.10),)},
    ),
    "large memory": ({"memory": memory(peak=8_100_000_000)}, {"memory": memory(peak=7_900_000_000)}),
    "memory nearly full": (
        {"memory": memory(peak=9 * 10**8, device=10**9)},
        {"memory": memory(peak=7 * 10**8, device=10**9)},
    ),
    "memory leak": (
        {"leak": Leak(calls=200, slope=4e6, leaks=True, allocated=())},
        {"leak": Leak(calls=200, slope=0.0, leaks=False, allocated=())},
    ),
    "overflow": (
        {"drift": Drift(rel_l2=None, cosine=None, max=None, nonfinite=3)},
        {"drift": Drift(rel_l2=0.001, cosine=1.0, max=0.1, nonfinite=0)},
    ),
    "drift": (
        {"drift": Drift(rel_l2=0.06, cosine=1.0, max=0.1, nonfinite=0)},
        {"drift": Drift(rel_l2=0.04, cosine=1.0, max=0.1, nonfinite=0)},
    ),
    "gaps": (gpu(10.0, 1.0, 7.9), gpu(10.0, 1.0, 8.1)),
    "bound by launches": (gpu(10.0, 9.1, 9.0), gpu(10.0, 8.9, 9.0)),
    "work around the model": ({"extra": {"model_share": share(0.85)}}, {"extra": {"model_share": share(0.91)}}),
    "small operations": (
        {"layers": (layer("a", 0.2, 0.4), layer("b", 0.2, 0.4))},
        {"layers": (layer("a", 0.2, 0.4), layer("b", 0.2, 0.6))},
    ),
    "unsteady": ({"seconds": [0.01, 0.02, 0.01]}, {"seconds": [0.01, 0.011, 0.01]}),
    "throttled": ({"clocks": ({"throttled": ["power cap"]},)}, {"clocks": ({"throttled": []},)}),
    "little arithmetic": ({"peak_share": 0.09}, {"peak_share": 0.11}),
}


def found(settings):
    settings = dict(settings)
    cell = result(settings.pop("seconds", (0.01,) * 3), **settings)
    return {finding.rule: finding for finding in findings([cell])}


@pytest.mark.parametrize("rule", CASES)
def test_a_rule_applies_beyond_its_limit_alone(rule):
    beyond, before = CASES[rule]
    assert rule in found(beyond) and rule not in found(before)
    assert found(beyond)[rule].fix and found(beyond)[rule].where == "net, batch 1, fp32"


@pytest.mark.parametrize(
    ("figures", "band"),
    [
        (speedup(0.9), "slower"),
        (speedup(1.05), "no gain"),
        (speedup(1.2), "slight"),
        (speedup(1.5), "good"),
        (speedup(2.0, 0.9, 3.0), "unclear"),
    ],
)
def test_bands_of_a_speed_up(figures, band):
    assert f"({band})" in found(figures)["speed-up"].text


@pytest.mark.parametrize(("backend", "kept"), [("torch", "fp32"), ("torchscript", "eager PyTorch")])
def test_a_cell_without_gain_keeps_what_it_was_compared_with(backend, kept):
    cell = replace(result(**speedup(1.05)), cell=Cell(backend=backend))
    assert findings([cell])[0].fix.startswith(f"keep {kept} ")


@pytest.mark.parametrize(
    ("used", "numbers"),
    [
        ({"cores": 0.7}, []),  # of 4: others have less than a fifth
        ({"cores": 0.8}, [{"cores": 0.8}]),
        ({"cores": 0.1, "gpu_percent": 19}, []),
        ({"cores": 0.1, "gpu_percent": 20}, [{"gpu_percent": 20.0, "gpu_gb": 0.0}]),
        ({"cores": 0.1, "gpu_percent": 0, "gpu_processes_gb": {"7": 3.0}}, [{"gpu_percent": 0.0, "gpu_gb": 3.0}]),
    ],
)
def test_the_load_is_what_others_use_of_the_machine_and_the_gpu(used, numbers):
    assert [finding.numbers for finding in load({"machine_cores": 4, **used})] == numbers


def test_a_container_is_no_small_operation():
    inside = layer("a", 0.4, 0.4), layer("a.b", 0.2, 0.2, depth=2), layer("a.c", 0.2, 0.2, depth=2)
    assert found({"layers": inside})["small operations"].numbers["share"] == pytest.approx(0.4)


def test_memory_bounds_a_model_that_reaches_half_of_the_bandwidth():
    near, far = ({"peak_share": 0.02, "bandwidth_share": share} for share in (0.6, 0.04))
    assert found(near)["little arithmetic"].numbers == {"share": 0.02, "bandwidth": 0.6}
    assert found(far)["little arithmetic"].numbers == {"share": 0.02}


def test_blocks_with_other_flops_are_meant_to_differ():
    alike = blocks(1.0, 1.0, 1.0, 2.0)["layers"]
    assert "blocks differ" in found({"layers": tuple(replace(one, flops=1e9) for one in alike)})
    narrowing = tuple(replace(one, flops=one.mean_ms * 1e9) for one in alike)
    assert "blocks differ" not in found({"layers": narrowing})


def test_a_layer_that_dominates_names_its_slowest_parts():
    whole = layer("a", 0.9), layer("a.b", 0.2, 2.0, depth=2), layer("a.c", 0.7, 7.0, depth=2)
    assert "begin with a.c, a.b;" in found({"layers": whole})["layer dominates"].fix
    assert "--depth 2" in found({"layers": whole[:1]})["layer dominates"].fix


def test_each_rule_has_a_case_and_cells_that_failed_have_none():
    assert len(rules.RULES) == 9 and len(CASES) + 1 == 16  # speed-up has cases of its own; a rule may find several
    failed = result(outcome="oom", peak_share=0.01)
    assert findings([failed]) == ()
