"""LaMa is compiled for the few shapes of its crops, in its set-up, and for no other."""

from __future__ import annotations

from functools import partial

import numpy as np
import pytest
import torch

from framekiln.contract.placement import Placement
from framekiln_stages.inpaint.crops import Framing, cut, mask_crops, shapes
from framekiln_stages.nets.lama.network import Sizes
from framekiln_stages.nets.lama.runners import EagerLama


@pytest.mark.heavy
def test_crops_of_any_size_use_the_graphs_of_the_set_up(monkeypatch):
    """Traced as on a GPU, without generating code."""
    from torch._dynamo.utils import counters

    monkeypatch.setattr(torch, "compile", partial(torch.compile, backend="eager"))
    torch._dynamo.reset()
    counters.clear()
    sides, framing = shapes(256), Framing(margin=0.25, min_margin=8, longest=256, few=True)
    painter = EagerLama(None, Placement(compile=True), 2, Sizes(width=8, blocks=2), shapes=sides)
    graphs = counters["stats"]["unique_graphs"]
    assert (graphs, len(sides)) == (24, 8), "of each shape: the part before the blocks, one block, and the part after"
    seen = set()
    for height, width in ((90, 100), (200, 130), (130, 200), (300, 200), (1500, 700), (400, 2000), (60, 70)):
        image, mask = np.zeros((height, width, 3), np.uint8), np.zeros((height, width), bool)
        mask[height // 4 : height // 2, width // 4 : width // 2] = True
        (crop,) = mask_crops(mask, framing)
        assert painter(*([part] for part in cut(image, mask, crop))).shape[1:3] == crop.shape
        seen.add(crop.shape)
    assert len(seen) >= 4 and counters["stats"]["unique_graphs"] == graphs
