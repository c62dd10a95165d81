"""Images of many sizes resized together: at most a level from each alone, in a number of calls that does not grow."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from framekiln.contract.placement import Placement
from framekiln.device import prepare
from framekiln_stages.nets.clip.architectures import OPENAI, SIGLIP
from tests.support.media.photos import photo
from tests.support.stages.device_work import DeviceWork


def album(count: int) -> list[np.ndarray]:
    """Return squares of as many sizes."""
    image = photo("china.jpg")
    return [
        np.ascontiguousarray(image[i : i + side, 2 * i : 2 * i + side]) for i, side in enumerate(range(60, 60 + count))
    ]


def odd() -> list[np.ndarray]:
    china, flower = photo("china.jpg"), photo("flower.jpg")
    return [china, flower[:300, :200], china[:97, :333], flower[10:24, 50:400], flower[:1, :1], china[:224, :224]]


@pytest.mark.parametrize("how", [OPENAI, SIGLIP])
def test_levels_are_those_of_each_image_alone(how):
    images = [*odd(), *album(5)]
    alone = prepare(images, how, Placement(), torch.float32, mixed=False)
    together = prepare(images, how, Placement(), torch.float32, mixed=True)
    levels = (together - alone).abs() * 255 * torch.tensor(how.std).view(3, 1, 1)
    assert levels.max() < 1.01
    assert (levels > 0.5).float().mean() < 3e-3
    for index in (0, 7):
        one = prepare(images[index : index + 1], how, Placement(), torch.float32, mixed=True)[0]
        assert ((together[index] - one).abs() * 255 * torch.tensor(how.std).view(3, 1, 1)).max() < 1.01


def test_the_number_of_operations_does_not_grow_with_the_sizes():
    """As on a GPU: sizes within a step of 128 px need one call; alone each needs nine operations."""
    prepare(album(1), OPENAI, Placement(), torch.bfloat16)
    counts = {}
    for number in (10, 60):
        with DeviceWork() as work:
            prepare(album(number), OPENAI, Placement(), torch.bfloat16, mixed=True)
        counts[number] = sum(work.launches.values())
        assert not work.waits, work.waits
    assert counts[60] == counts[10] <= 95
    with DeviceWork() as single:
        prepare(album(60), OPENAI, Placement(), torch.bfloat16, mixed=False)
    assert counts[60] < sum(single.launches.values()) / 5


def test_one_size_needs_few_operations_and_no_wait():
    images = [photo("china.jpg")] * 3
    prepare(images, OPENAI, Placement(), torch.bfloat16)
    with DeviceWork() as work:
        prepare(images, OPENAI, Placement(), torch.bfloat16)
    assert sum(work.launches.values()) <= 14, work.launches
    assert not work.waits, work.waits
