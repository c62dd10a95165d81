"""FLOPs, bytes of operators and bytes of weights, against counts by hand."""

from __future__ import annotations

import warnings

import pytest
import torch
from torch.nn.functional import scaled_dot_product_attention

from framekiln.device import flops_by_module, flops_of, is_out_of_memory, traffic_of, weights_bytes

HEADS, ROWS, WIDTH = 3, 64, 16


def attention(device="cpu", *, eager=False):
    query = torch.rand(2, HEADS, ROWS, WIDTH, device=device)
    if eager:
        return lambda: (query @ query.transpose(-1, -2)).softmax(-1) @ query
    return lambda: scaled_dot_product_attention(query, query, query)


@pytest.mark.parametrize("call", [attention(), attention("meta"), attention(eager=True)], ids=["cpu", "meta", "eager"])
def test_attention_counts_its_two_products_wherever_it_runs(call):
    with torch.inference_mode():
        assert flops_of(call) == 2 * 2 * 2 * HEADS * ROWS * ROWS * WIDTH


def test_operations_by_module():
    net = torch.nn.Sequential(torch.nn.Linear(4, 8, bias=False), torch.nn.ReLU(), torch.nn.Linear(8, 2, bias=False))
    counts = flops_by_module(lambda: net(torch.ones(3, 4)))
    assert counts == {"Global": 288, "Sequential": 288, "Sequential.0": 192, "Sequential.2": 96}


def test_bytes_of_operators():
    a, b = torch.ones(4, 8), torch.ones(8, 2)
    assert traffic_of(lambda: a @ b) == 4 * (4 * 8 + 8 * 2 + 4 * 2)
    assert traffic_of(lambda: a.view(8, 4)) == 0


def test_weights_that_torch_ao_packs_are_seen():
    net = torch.nn.Sequential(torch.nn.Linear(10, 20), torch.nn.Linear(20, 5, bias=False))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        packed = torch.ao.quantization.quantize_dynamic(net, {torch.nn.Linear}, dtype=torch.qint8)
    assert weights_bytes(packed) == 10 * 20 + 4 * 20 + 20 * 5


def test_a_tensor_subclass_counts_as_what_it_stores():
    class Eighth(torch.Tensor):
        def __tensor_flatten__(self):
            return ["data8", "scale"], None

    weight = torch.ones(10, 20).as_subclass(Eighth)
    weight.data8, weight.scale = torch.zeros(10, 20, dtype=torch.int8), torch.zeros(10)
    net = torch.nn.Module()
    net.register_buffer("weight", weight)
    assert weights_bytes(net) == 10 * 20 + 4 * 10


def test_memory_that_a_cpu_lacks_is_out_of_memory():
    with pytest.raises(RuntimeError) as error:
        torch.empty(10**15)
    assert is_out_of_memory(error.value)
