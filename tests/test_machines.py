"""Ray waits for ever for a place that does not exist; the plan must not."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipeline.errors import ResourceError
from pipeline.machines import Demand, Node, place

LAPTOP = Node(name="laptop", cpus=2)
BOX = Node(name="box", cpus=16, gpus=1)


def test_what_fits_is_placed():
    place([Demand(step="pose", cpus=1, copies=1), Demand(step="decode", cpus=1)], [LAPTOP])
    place([Demand(step="clip", cpus=1, gpus=0.5, copies=2), Demand(step="decode", cpus=1)], [LAPTOP, BOX])


def test_missing_cores_are_named():
    with pytest.raises(
        ResourceError, match=r"'pose' does not fit: worker 3 of 4 wants 1 CPU, but at most 0 CPU .*laptop has 2 CPU"
    ):
        place([Demand(step="pose", cpus=1, copies=4)], [LAPTOP])


def test_a_missing_gpu_is_named():
    with pytest.raises(ResourceError, match="'clip' wants 1 CPU and 1 GPU for each worker, and there is no GPU"):
        place([Demand(step="clip", cpus=1, gpus=1)], [LAPTOP])


def test_resources_of_two_nodes_do_not_add_up_for_one_process():
    with pytest.raises(ResourceError):
        place([Demand(step="big", cpus=3)], [LAPTOP, LAPTOP])


@given(st.lists(st.floats(0.25, 4), min_size=1, max_size=12), st.integers(1, 4))
def test_never_more_is_placed_than_there_is(cpus, nodes):
    machines = [Node(name=str(i), cpus=4) for i in range(nodes)]
    try:
        place([Demand(step="s", cpus=value) for value in cpus], machines)
    except ResourceError:
        return
    assert sum(cpus) <= 4 * nodes + 1e-3
