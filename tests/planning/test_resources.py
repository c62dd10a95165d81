"""Workers that do not fit the machines are refused: Ray would wait for ever."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from framekiln.contract.errors import ResourceError
from framekiln.planning.processes.resources import Demand, Node, place
from tests.support.errors import fails

LAPTOP = Node(name="laptop", cpus=2)
BOX = Node(name="box", cpus=16, gpus=1)


def test_what_fits_is_placed():
    place([Demand(step="pose", cpus=1, copies=1), Demand(step="decode", cpus=1)], [LAPTOP])
    place([Demand(step="clip", cpus=1, gpus=0.5, copies=2), Demand(step="decode", cpus=1)], [LAPTOP, BOX])


def test_missing_cores_are_named():
    with fails("FK-WORKERS-DO-NOT-FIT", "'pose'", "3 of 4", "1 CPU,", "0 CPU", "laptop has 2 CPU"):
        place([Demand(step="pose", cpus=1, copies=4)], [LAPTOP])


def test_a_missing_gpu_is_named():
    with fails("FK-NO-GPU", "'clip'", "1 CPU and 1 GPU"):
        place([Demand(step="clip", cpus=1, gpus=1)], [LAPTOP])


def message(*demands, nodes=(LAPTOP,)):
    with pytest.raises(ResourceError) as error:
        place(demands, nodes)
    return str(error.value)


def test_the_advice_names_what_can_be_lowered():
    """Workers were lowered before, as far as that helps."""
    text = message(Demand(step="a", cpus=2), Demand(step="decode", cpus=1))
    assert "lower `cpus` of a, decode in the profile, or name fewer steps" in text and "workers" not in text
    assert message(Demand(step="decode", cpus=4)).count("`cpus` of decode") == 1
    assert "16 CPU, 1 GPU on one node" in message(Demand(step="clip", cpus=1, gpus=2), nodes=[BOX])


def test_resources_of_two_nodes_do_not_add_up_for_one_process():
    with fails("FK-WORKERS-DO-NOT-FIT"):
        place([Demand(step="big", cpus=3)], [LAPTOP, LAPTOP])


@given(st.lists(st.floats(0.25, 4), min_size=1, max_size=12), st.integers(1, 4))
def test_never_more_is_placed_than_there_is(cpus, nodes):
    machines = [Node(name=str(i), cpus=4) for i in range(nodes)]
    try:
        place([Demand(step="s", cpus=value) for value in cpus], machines)
    except ResourceError:
        return
    assert sum(cpus) <= 4 * nodes + 1e-3
