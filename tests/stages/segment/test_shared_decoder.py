"""SAM 2.1's mask decoder without copies of an image for each prompt: the values of transformers', in less memory."""

from __future__ import annotations

from itertools import chain

import pytest
import torch

from framekiln.contract.placement import Placement
from framekiln_stages.nets.sam2.image import Sam2
from framekiln_stages.segment.mask_generator import MaskGenerator
from framekiln_stages.shared.masks import decode
from tests.support.stages.device_work import DeviceWork
from tests.support.stages.sam import image_reference as reference
from tests.support.stages.sam.segment_factory import ANY, POINTS, call, found, iou, small_photo, stage_of
from tests.support.stages.sam.weights import TOY

PROMPTS = 24
WAITS = 9  # of a call with one photo, whatever the number of masks


@pytest.fixture(scope="module")
def net(sam_file):
    return Sam2(TOY, sam_file, Placement())


@pytest.fixture(scope="module")
def features(net):
    with torch.random.fork_rng():
        torch.manual_seed(1)
        return net.encode(torch.randn(2, 3, TOY.side, TOY.side))


def prompts(points: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Return prompts of two images, with as many points each: labels of points and of a box's corners."""
    with torch.random.fork_rng():
        torch.manual_seed(2)
        return torch.rand(2, PROMPTS, points, 2), torch.randint(0, 4, (2, PROMPTS, points))


@pytest.mark.parametrize("several", [True, False])
@pytest.mark.parametrize("points", [pytest.param(1, marks=pytest.mark.heavy), 3])
def test_prompts_of_two_images_in_one_call_equal_transformers(net, features, sam_file, several, points):
    places, labels = prompts(points)
    plain = reference.plain(sam_file)
    logits, scores = net.decode(features, places, labels, several=several, rows=2)
    for image in range(2):
        with torch.no_grad():
            expected = plain(
                image_embeddings=[level[image : image + 1] for level in net.levels(features)],
                input_points=places[image : image + 1] * TOY.side,
                input_labels=labels[image : image + 1],
                multimask_output=several,
            )
        torch.testing.assert_close(logits[image], expected.pred_masks[0], atol=2e-4, rtol=1e-4)
        torch.testing.assert_close(scores[image], expected.iou_scores[0], atol=1e-5, rtol=1e-4)


def test_a_prompt_takes_less_memory_than_in_transformers(net, features, sam_file):
    plain, (places, labels) = reference.plain(sam_file), prompts(1)
    levels = [level[:1] for level in net.levels(features)]
    with DeviceWork() as ours, torch.no_grad():
        net.decode(features[:1], places[:1], labels[:1], several=True, rows=1)
    with DeviceWork() as theirs, torch.no_grad():
        plain(image_embeddings=levels, input_points=places[:1] * TOY.side, input_labels=labels[:1])
    assert ours.peak <= 0.6 * theirs.peak
    copied = PROMPTS * sum(level.nbytes for level in levels)
    assert ours.peak < theirs.peak - copied, "not even the features are repeated"


@pytest.mark.parametrize(
    "chunk", [pytest.param(1, marks=pytest.mark.heavy), 3, pytest.param(64, marks=pytest.mark.heavy)]
)
def test_calls_of_few_shapes_have_the_masks_of_single_ones(sam, monkeypatch, chunk):
    """As on a GPU: prompts of all frames share calls, and are added up to a power of two."""
    images = [small_photo(), small_photo()[:, ::-1].copy(), small_photo()[::-1].copy()][: 3 if chunk > 4 else 2]
    points = [[{"x": x, "y": y} for x, y in POINTS[:count]] for count in (3, 1, 4)[: len(images)]]
    grid = stage_of(sam, box_nms_thresh=1, mask_size="low", **ANY)
    asked = stage_of(sam, prompts="points", prompt_column="p", mask_size="low")
    alone = found(grid, *images), found(asked, *images, p=points)
    monkeypatch.setattr(MaskGenerator, "alone", False)
    shapes = set()
    own = Sam2.decode

    def noted(net, features, places, labels, **given):
        shapes.add((places.shape[1], len(features)))
        return own(net, features, places, labels, **given)

    monkeypatch.setattr(Sam2, "decode", noted)
    for stage in (grid, asked):
        stage.chunk_sizes |= {"prompts": chunk, "views": 3}
    for masks, expected in zip((found(grid, *images), found(asked, *images, p=points)), alone, strict=True):
        assert [len(row) for row in masks] == [len(row) for row in expected]
        for one, other in zip(chain(*masks), chain(*expected), strict=True):
            assert one["predicted_iou"] == pytest.approx(other["predicted_iou"], abs=1e-4)
            assert iou(decode(one["segmentation"]), decode(other["segmentation"])) > 0.99
    sizes = {size for size, _ in shapes}
    assert sizes <= {1, 2, 4} or (chunk == 3 and sizes <= {1, 2, 3})
    assert all(size * rows <= max(chunk, size) for size, rows in shapes)
    assert max(rows for _, rows in shapes) == (3 if chunk > 4 else 1)


def test_a_call_waits_a_few_times_only(sam):
    stage = stage_of(sam, points_per_side=2, box_nms_thresh=1, **ANY)
    call(stage, small_photo())
    with DeviceWork() as work:
        (masks,) = found(stage, small_photo())
    assert len(masks) == 12
    assert sum(work.waits.values()) <= WAITS, work.waits
