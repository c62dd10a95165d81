"""Made masks stand in where a network without weights keeps none, so that later steps have work."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest
import torch

from framekiln.contract.columns import pack
from framekiln.contract.placement import Placement
from framekiln_stages.nets.sam2.image import MODELS
from framekiln_stages.segment.mask_proposals import SHAPES, dummy_logits, stability_score
from framekiln_stages.segment.stage import Segment
from framekiln_stages.shared.masks import decode
from tests.support.media.photos import photo
from tests.support.runs.plan_factory import plan
from tests.support.stages.sam.weights import TOY


@pytest.fixture(scope="module")
def row():
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(MODELS, "toy", TOY)
        stage = Segment(Segment.Config(model="toy", points_per_side=4))
        stage.setup({}, Placement())
        image = photo("china.jpg")
        sizes = {"height": pa.array([427], pa.int32()), "width": pa.array([640], pa.int32())}
        return stage(pa.table({"frame_1024": pack([image]), **sizes})).to_pylist()[0]


def test_random_weights_leave_masks_for_later_steps(row):
    assert row["mask_count"] == len(SHAPES)
    for mask in row["masks"]:
        pixels = decode(mask["segmentation"])
        assert pixels.shape == (427, 640)
        assert pixels.sum() == mask["area"] > 0


def test_made_masks_lie_where_they_are_said_to(row):
    boxes = sorted(
        (mask["box"]["x0"], mask["box"]["y0"], mask["box"]["x1"], mask["box"]["y1"]) for mask in row["masks"]
    )
    expected = sorted((x - rx, y - ry, x + rx, y + ry) for x, y, rx, ry in SHAPES)
    assert np.abs(np.array(boxes) - expected).max() < 0.01


def test_made_masks_are_stable_and_apart():
    logits = dummy_logits(256)
    assert stability_score(torch.from_numpy(logits), 0.0, 1.0).min() > 0.95
    inside = logits > 0
    assert inside.sum(0).max() == 1
    assert 0.2 < inside.any(0).mean() < 0.3
    assert not inside[:, [0, -1]].any()
    assert not inside[:, :, [0, -1]].any()


def test_the_plan_says_which_figures_are_void(no_weights):
    steps = {"segment": {"use": "framekiln_stages.segment:Segment"}, "flow": {"use": "framekiln_stages.flow:Flow"}}
    assert [sentence.split(":")[0] for sentence in plan(steps, missing_weights="dummy").void] == ["segment"]
