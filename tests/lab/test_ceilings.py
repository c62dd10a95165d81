"""Rates of models that a GPU measured lie under their bounds, and within the interval that the others tell."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from benchmarks.gpu.steps.ceilings import FULL, Ceiling
from framekiln.contract.placement import Placement
from framekiln.device import count_call, counted_calls, made_weights, torch
from framekiln.lab.measure.prepared import example_inputs, run
from framekiln.lab.modules import map_tensors
from framekiln.lab.output.cells import Cell
from framekiln.lab.predict.reached import guess, read_ceilings, usual_share
from framekiln.lab.predict.work import GpuWork, NetworkWork
from framekiln_stages.nets.faces.yunet_torch import TorchYuNet
from tests.lab.gpu_law import GPUS

MODELS = {**FULL, "clip_b32": Ceiling(model="clip-vit-b32", batch=1024, precision="bf16")}


def half(value):
    return map_tensors(value, lambda tensor: tensor.half() if tensor.is_floating_point() else tensor)


def work(name):
    """The work of one item in 16 bits, at the batch of the ceilings."""
    ceiling = MODELS[name]
    with made_weights():
        built = ceiling.recipe().built
    module = getattr(built.module, "net", built.module).half()
    inputs = half(example_inputs(built, Cell(batch=ceiling.batch, size=ceiling.size)))
    inputs = inputs if isinstance(inputs, tuple) else (inputs,)
    call = count_call(lambda *given: first(run(module, given)), inputs)
    return NetworkWork(rows=1 / ceiling.items, call=replace(call, rows=ceiling.batch))


def first(result):
    return result if isinstance(result, torch.Tensor) else result[0]


AGAIN = [("arcface", True, 27800), ("arcface", True, 31200), ("arcface", False, 18800), ("lama", False, 212)]
"""Rates of the same models on another day, with cuDNN's search, or by autocast: docs/measuring/performance.md."""
FP32 = {"clip": 268, "clip_b32": 4746, "arcface": 4750, "sam_encoder": 15, "sam_decoder": 2.48, "lama": 63}


@pytest.mark.heavy
@pytest.mark.parametrize("name", FP32)
def test_a_measured_rate_is_under_its_bound_and_reaches_the_stated_share(name):
    known = work(name)
    for ceiling in (each for each in read_ceilings() if each.model == name):
        gpu, batch = GPUS[ceiling.gpu], ceiling.batch / known.rows
        assert ceiling.per_s < 1 / known.bound(gpu, batch).max()
        assert ceiling.per_s * known.roofline_s(gpu, batch) == pytest.approx(ceiling.reached, abs=0.006)
        again = [rate for model, compiled, rate in AGAIN if (model, compiled) == (name, ceiling.compile)]
        assert all(rate < 1 / known.bound(gpu, batch).max() for rate in again)
    operations = sum(count * kernel.flops for kernel, count in known.call.kernels) * known.rows / known.call.rows
    assert 0.1 < FP32[name] * operations / (GPUS["h200"].fp32_tflops * 1e12) < 1


@pytest.mark.heavy
def test_the_face_detector_which_is_never_compiled_keeps_to_both_too():
    net = TorchYuNet(None, 0.5, Placement())
    with counted_calls() as calls:
        net([np.zeros((800, 1280, 3), np.uint8)] * 8, [1280] * 8)
    ((_, eager), call) = calls[0]
    known, gpu, per_s = NetworkWork(rows=1.0, call=call, eager=eager), GPUS["h200"], 8 / 0.005
    share = usual_share(compiled=False)
    assert eager and per_s < 1 / known.bound(gpu, 8).max()
    assert share.low < per_s * known.roofline_s(gpu, 8) < share.high
    slow, fast = (guess(GpuWork(networks=[replace(known, eager=is_eager)]), 8, gpu) for is_eager in (True, False))
    assert slow.low < 1 / per_s < slow.high and fast.high < 1 / per_s


def test_measured_shares_are_within_the_interval_and_nearly_all_within_that_of_the_other_models():
    inside = []
    for ceiling in read_ceilings():
        share = usual_share(compiled=ceiling.compile)
        others = [other for other in read_ceilings() if other.model != ceiling.model]
        left_out = usual_share(others, compiled=ceiling.compile)
        again = [rate for *key, rate in AGAIN if key == [ceiling.model, ceiling.compile]]
        assert all(share.low < ceiling.reached * rate / ceiling.per_s < share.high for rate in (ceiling.per_s, *again))
        inside.append(left_out.low < ceiling.reached < left_out.high)
    assert sum(inside) == 10 and len(inside) == 12
