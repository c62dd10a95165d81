"""RAFT on a GPU finds the flow of the CPU, with random weights."""

from __future__ import annotations

import numpy as np
import pytest

from framekiln.contract.placement import Placement
from framekiln_stages.nets.raft import Flows
from tests.support.media.photos import photo
from tests.support.stages.flow_factory import window
from tests.support.stages.on_gpu import DEVICE, needs_gpu

pytestmark = needs_gpu


@pytest.mark.parametrize(("precision", "least"), [("fp32", 0.9999), ("fp16", 0.99)])
def test_a_gpu_equals_the_cpu(precision, least):
    images = [window(photo("china.jpg"), x, y, 130, 170) for x, y in ((40, 40), (44, 39))]
    place = Placement(device=DEVICE, precision=precision, pin_memory=True)
    expected, found = (np.stack(Flows(None, each, 2)(images)).ravel() for each in (Placement(), place))
    assert np.abs(expected).max() > 0.1, "there is motion to compare"
    assert found @ expected / np.linalg.norm(found) / np.linalg.norm(expected) > least
