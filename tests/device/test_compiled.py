"""Compiled functions: as many graphs as are known before the first call, whatever comes, and none where torch fails."""

from __future__ import annotations

import copy
import threading
from functools import partial

import pytest
import torch

from framekiln.contract.placement import Placement
from framekiln.device import Batches, take_failures
from framekiln.device.compiled import LAZY_SHAPES, batch_sizes


def graphs():
    return torch._dynamo.utils.counters["stats"]["unique_graphs"]


@pytest.fixture(autouse=True)
def _without_code(monkeypatch):
    """Trace functions as on a GPU, and generate no code, which belongs to torch."""
    monkeypatch.setattr(torch, "compile", partial(torch.compile, backend="eager"))
    torch._dynamo.reset()  # imports it, which takes seconds: never while tests are collected
    torch._dynamo.utils.counters.clear()
    take_failures()


def doubled(rows=16):
    """Return the double of each row, by a compiled function."""
    weight = torch.full((3,), 2.0)

    def double(tensor):
        return tensor * weight

    return Batches(double, Placement(compile=True, batch=rows))


def numbers(rows, width=3):
    return torch.arange(rows * width, dtype=torch.float32).view(rows, width)


@pytest.mark.parametrize(("rows", "sizes"), [(1, (1,)), (4, (4,)), (16, (4, 16)), (66, (17, 66))])
def test_two_sizes_from_16_rows(rows, sizes):
    assert batch_sizes(rows) == sizes


def test_no_number_of_rows_is_compiled_after_the_warm_up():
    batches = doubled()
    batches.warm_up(numbers(1))
    assert graphs() == 2
    for rows in (1, 3, 4, 5, 16, 17, 40):
        assert torch.equal(batches(numbers(rows)), numbers(rows) * 2)
    assert graphs() == 2


def test_tensors_of_any_origin_are_not_compiled_again():
    batches, results = doubled(), []
    batches.warm_up(numbers(1))
    strided = torch.stack([numbers(4)] * 2, dim=2)[:, :, 0]
    assert not strided.is_contiguous()
    thread = threading.Thread(target=lambda: results.append(batches.direct(numbers(4))))
    thread.start()
    thread.join()
    with torch.inference_mode():
        results += [batches(numbers(4)), batches(strided), batches(numbers(8)[4:] - 12)]
    assert all(torch.equal(result, numbers(4) * 2) for result in results)
    assert graphs() == 2


def test_another_number_of_threads_is_not_compiled_again():
    batches, threads = doubled(), torch.get_num_threads()
    batches.warm_up(numbers(1))
    torch.set_num_threads(threads + 1)
    try:
        assert torch.equal(batches(numbers(16)), numbers(16) * 2)
    finally:
        torch.set_num_threads(threads)
    assert graphs() == 2


def test_shapes_without_a_warm_up_run_uncompiled():
    batches = doubled()
    batches.warm_up(numbers(1))
    assert torch.equal(batches(torch.ones(5, 7, 3)), torch.full((5, 7, 3), 2.0))
    assert torch.equal(batches(torch.ones(5, 3, dtype=torch.float64)), torch.full((5, 3), 2.0, dtype=torch.float64))
    assert graphs() == 2


def test_without_any_warm_up_the_first_shapes_are_compiled():
    batches = doubled(rows=2)
    for height in range(1, LAZY_SHAPES + 4):
        assert torch.equal(batches(torch.ones(3, height, 3)), torch.full((3, height, 3), 2.0))
    assert graphs() == LAZY_SHAPES


def refusing_backend(graph, inputs):
    raise RuntimeError("no compiler here\nand much advice")


def test_what_torch_cannot_compile_runs_uncompiled_with_one_reason(monkeypatch):
    monkeypatch.setattr(torch, "compile", partial(torch.compile.func, backend=refusing_backend))
    batches = doubled()
    batches.warm_up(numbers(1))
    reasons = take_failures()
    assert len(reasons) == 1 and "no compiler here" in reasons[0] and "advice" not in reasons[0]
    assert torch.equal(batches(numbers(40)), numbers(40) * 2)
    assert take_failures() == []


def test_a_failure_in_a_call_is_its_own():
    """Inputs that the function refuses must fail as they do uncompiled, and are no failure of the compiler."""
    batches = doubled()
    batches.warm_up(numbers(1))
    with pytest.raises(RuntimeError, match="size"):
        batches(torch.ones(2, 5))
    assert take_failures() == []


def test_memory_that_ends_at_the_larger_size_leaves_the_smaller_one(monkeypatch):
    full = []

    def network(tensor):
        return tensor * 2

    def executed(graph, _):
        def run(tensor):
            full.append(len(tensor))
            if len(tensor) > 4:
                raise torch.OutOfMemoryError("as on a small GPU")
            return graph(tensor)

        return run

    monkeypatch.setattr(torch, "compile", partial(torch.compile.func, backend=executed))
    batches = Batches(network, Placement(compile=True, batch=16))
    batches.warm_up(numbers(1))
    assert take_failures() == ["out of memory"]
    assert full == [4, 16]
    assert torch.equal(batches(numbers(3)), numbers(3) * 2)
    assert torch.equal(batches(numbers(9)), numbers(9) * 2)
    assert full == [4, 16, 4], "nine rows ran uncompiled"


def test_after_memory_ran_out_no_larger_graph_is_used():
    batches = doubled()
    batches.warm_up(numbers(1))
    batches.halve((numbers(1),))
    assert torch.equal(batches(numbers(9)), numbers(9) * 2)
    assert (batches.most((numbers(1),)), graphs()) == (8, 2)


class Blocks(torch.nn.Module):
    """Three blocks with weights of their own, which are alike, around a sum."""

    def __init__(self):
        super().__init__()
        self.blocks = torch.nn.ModuleList(torch.nn.Linear(3, 3) for _ in range(3))

    def forward(self, tensor):
        for block in self.blocks:
            tensor = tensor + block(tensor)
        return tensor


def test_a_block_of_two_steps_is_compiled_once():
    plain = Blocks().eval().requires_grad_(False)
    net = copy.deepcopy(plain)
    for rows in (2, 4, 4):
        batches = Batches(net, Placement(compile=True, batch=rows), regions=tuple(net.blocks))
        batches.warm_up(numbers(1))
        assert torch.allclose(batches(numbers(2)), plain(numbers(2)))
    assert graphs() == 2


def test_blocks_that_are_alike_share_a_graph_for_each_size():
    torch.manual_seed(0)
    plain = Blocks().eval().requires_grad_(False)
    compiled = copy.deepcopy(plain)
    batches = Batches(compiled, Placement(compile=True, batch=16), regions=tuple(compiled.blocks))
    batches.warm_up(numbers(1))
    assert graphs() == 2
    for rows in (1, 4, 9, 16, 17):
        assert torch.allclose(batches(numbers(rows)), plain(numbers(rows)))
    wide = torch.ones(5, 7, 3)
    assert torch.equal(batches(wide), plain(wide)), "of no compiled shape"
    assert graphs() == 2
