"""SAM 2.1 on a GPU finds the masks of the CPU, in 16 bits as profiles have it."""

from __future__ import annotations

from framekiln.contract.placement import Placement
from framekiln_stages.shared.masks import decode
from tests.support.stages.on_gpu import DEVICE, needs_gpu
from tests.support.stages.sam.segment_factory import found, iou, small_photo, stage_of

pytestmark = needs_gpu


def test_a_gpu_equals_the_cpu(sam, chosen):
    expected = found(stage_of(sam, **chosen), small_photo())[0]
    masks = found(stage_of(sam, Placement(device=DEVICE), **chosen), small_photo())[0]
    assert len(masks) == len(expected) >= 3
    for one, other in zip(masks, expected, strict=True):
        assert iou(decode(one["segmentation"]), decode(other["segmentation"])) > 0.95
