"""Segment: the same masks as a reference of the published algorithm, in any chunks.

The weights are random. The tests compare masks with the algorithm's masks from the same logits, not with objects.
"""

from __future__ import annotations

from functools import partial

import cv2
import numpy as np
import pytest

from framekiln.contract.placement import Placement
from framekiln_stages.shared.masks import decode
from tests.support.media.photos import photo
from tests.support.stages.sam import image_reference as reference
from tests.support.stages.sam.segment_factory import assert_whole, found, iou, small_photo, stage_of
from tests.support.stages.sam.thresholds import settled


def assert_same(masks, expected):
    """Return masks of the stage and of the reference, in their order."""
    assert len(masks) == len(expected.masks)
    for number, mask in enumerate(masks):
        pixels = decode(mask["segmentation"])
        assert pixels.shape == expected.masks[number].shape
        assert iou(pixels, expected.masks[number]) >= 0.99
        assert mask["predicted_iou"] == pytest.approx(expected.scores[number], abs=1e-3)
        assert mask["stability_score"] == pytest.approx(expected.stabilities[number], abs=0.01)
        assert (mask["point"]["x"], mask["point"]["y"]) == pytest.approx(expected.points[number])


def test_the_grid_has_the_masks_of_the_published_algorithm(sam, predict):
    given = settled(predict, small_photo(), points_per_side=5)
    expected = reference.generate(predict, small_photo(), reference.Settings(**given))
    assert len(expected.masks) >= 8
    assert min(expected.dropped[name] for name in ("iou", "stability", "nms")) >= 1, expected.dropped
    masks = found(stage_of(sam, **given), small_photo())[0]
    assert_same(masks, expected)
    for mask in masks:
        assert_whole(mask, small_photo())


@pytest.mark.heavy
def test_crops_have_the_masks_of_the_published_algorithm(sam, predict):
    image = cv2.resize(photo("flower.jpg"), (334, 250), interpolation=cv2.INTER_AREA)
    given = {"crop_n_layers": 1, "points_per_side": 6, "crop_n_points_downscale_factor": 2, "min_mask_region_area": 12}
    given = settled(predict, image, **given)
    expected = reference.generate(predict, image, reference.Settings(**given))
    assert len(expected.masks) >= 2  # 3 on one processor, 5 and more on others: the widest gaps differ
    assert min(expected.dropped[name] for name in ("iou", "stability", "nms", "edge", "crop_nms")) >= 1, (
        expected.dropped
    )
    assert np.abs(np.array(expected.judged["edge"]) - 20).min() > 1e-6
    assert_same(found(stage_of(sam, **given), image)[0], expected)


# Any chunks, neighbours and compilation


def test_sizes_of_chunks_change_nothing(sam, chosen):
    given = chosen | {"points_per_side": 3}
    expected = found(stage_of(sam, **given), small_photo())[0]
    assert len(expected) >= 2
    stage = stage_of(sam, **given)
    stage.chunk_sizes.update(prompts=2, masks=1, views=2)
    masks = found(stage, small_photo())[0]
    assert len(masks) == len(expected)
    for one, other in zip(masks, expected, strict=True):
        assert iou(decode(one["segmentation"]), decode(other["segmentation"])) > 0.99


@pytest.mark.heavy
def test_compiled_calls_are_equal_and_compile_once(sam, chosen, monkeypatch):
    """Traced as on a GPU, without generating code, which takes minutes and belongs to torch."""
    import torch._dynamo
    from torch._dynamo.utils import counters

    monkeypatch.setattr(torch, "compile", partial(torch.compile, backend="aot_eager"))
    images = [small_photo(), np.ascontiguousarray(small_photo()[:, ::-1]), np.ascontiguousarray(small_photo()[:60])]
    counters.clear()
    plain, compiled = (
        stage_of(sam, Placement(compile=way, batch=1), {"prompts": 12}, **chosen)  # of 16: the last call is padded
        for way in (False, True)
    )
    graphs = counters["stats"]["unique_graphs"]
    assert graphs == 6, "five kinds of the encoder's blocks and the decoder, in the set-up"
    for image in images:
        one, other = found(compiled, image)[0], found(plain, image)[0]
        assert len(one) == len(other) >= 3
        for a, b in zip(one, other, strict=True):
            assert iou(decode(a["segmentation"]), decode(b["segmentation"])) > 0.99
    assert counters["stats"]["unique_graphs"] == graphs
