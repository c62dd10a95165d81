"""Crops of instances cut on a device: pixel by pixel those of the host, and the same categories."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from framekiln.contract.placement import Placement
from framekiln_stages.categorize import instance_crops as device_crops
from framekiln_stages.categorize.instance_crops import _cut, context_crop, cut_and_fit, masked_crop, window_crops
from framekiln_stages.shared.device_images import DeviceImages
from framekiln_stages.shared.masks import encode
from tests.support.media.clip_factory import TINY
from tests.support.media.photos import photo

FILL = np.array([123, 117, 104], np.uint8)
MARGINS = {"masked": 0.1, "context": 0.4}
KINDS = {"masked": masked_crop, "context": context_crop}


def scenes(count=24):
    """Return images of two sizes, and masks of other sizes, at edges, over all of an image and thinner than a pixel."""
    random = np.random.default_rng(0)
    images = [photo("china.jpg")[:150, :200], photo("flower.jpg")[:90, :300], photo("china.jpg")[100:250, :200]]
    owners, masks = random.integers(0, len(images), count).tolist(), []
    for i, owner in enumerate(owners):
        factor = (0.5, 1, 2)[i % 3]
        mask = np.zeros([max(1, int(side * factor)) for side in images[owner].shape[:2]], bool)
        top, left = (random.integers(0, side) for side in mask.shape)
        part = mask[top : top + random.integers(1, mask.shape[0]), left : left + random.integers(1, mask.shape[1])]
        part[...] = random.random(part.shape) < 0.7
        part[0, 0] = True
        masks.append(mask)
    masks[0][...] = True
    masks[5][...] = False
    masks[5][1, 1] = True  # of twice the size, between the centres of two pixels
    return images, owners, encode(masks)


def test_each_pixel_is_that_of_the_host():
    images, owners, masks = scenes()
    on_device = DeviceImages(images, Placement())
    for kind, crop in KINDS.items():
        cut = _cut(on_device, window_crops(on_device, owners, masks, {kind: MARGINS[kind]}), FILL).numpy()
        for whole, owner, mask in zip(cut, owners, masks, strict=True):
            expected = crop(images[owner], mask, MARGINS[kind], FILL)
            assert np.array_equal(whole[: len(expected), : len(expected)], expected)


@pytest.mark.parametrize("window_bytes", [device_crops.WINDOW_BYTES, 1])
def test_crops_keep_their_order_in_groups_of_any_size(window_bytes, monkeypatch):
    from framekiln.device import prepare

    monkeypatch.setattr(device_crops, "WINDOW_BYTES", window_bytes)
    images, owners, masks = scenes()
    on_device, how = DeviceImages(images, Placement()), TINY["clip-vit-b32"].preparation
    found = cut_and_fit(on_device, window_crops(on_device, owners, masks, MARGINS), how, FILL)
    pairs = [(images[owner], mask) for owner, mask in zip(owners, masks, strict=True)]
    crops = [KINDS[kind](*pair, margin, FILL) for kind, margin in MARGINS.items() for pair in pairs]
    expected = prepare(crops, how, Placement(), torch.float32)
    mean, std = (torch.tensor(values).mul(255).view(3, 1, 1) for values in (how.mean, how.std))
    difference = (found - (expected * std + mean)).abs()
    assert difference.max() < 1.01 and (difference > 0.5).float().mean() < 0.003
