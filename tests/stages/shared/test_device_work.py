"""Launches and waits of a stage's call, counted on the CPU: upper bounds, as a GPU waits for each of them.

A call may wait where results leave the device. Constants are uploaded once, and no index is a Python list.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

from framekiln.contract.columns import pack
from framekiln.contract.placement import Placement
from framekiln_stages.categorize.stage import Categorize
from framekiln_stages.flow.stage import Flow
from tests.support.media import clip_factory
from tests.support.media.photos import photo
from tests.support.stages import flow_factory, inpaint_factory
from tests.support.stages.device_work import DeviceWork
from tests.support.stages.faces import faces_factory

pytestmark = pytest.mark.usefixtures("one_thread")


def work_of(call) -> tuple[int, int]:
    """Return the launches and the waits of a second call."""
    call()
    with DeviceWork() as work:
        call()
    return sum(work.launches.values()), sum(work.waits.values())


def rows(stage, images, **columns):
    heights, widths = ([image.shape[axis] for image in images] for axis in (0, 1))
    given = {stage.pixels: pack(images), "height": heights, "width": widths} | columns
    return stage(pa.table(given).select(stage.inputs))


@pytest.fixture
def classify(monkeypatch):
    clip_factory.use_tiny(monkeypatch)

    def make(of):
        stage = Categorize(Categorize.Config(model="clip-vit-b32", of=of))
        stage.setup({}, Placement())
        return stage

    return make


def test_photos_of_one_size(classify):
    stage, image = classify("frames"), np.ascontiguousarray(photo("china.jpg")[:300, :400])
    launches, waits = work_of(lambda: rows(stage, [image] * 4))
    assert launches <= 53 and waits == 1


def masks_of(shape, count):
    masks = []
    for i in range(count):
        masks.append(np.zeros(shape, bool))
        masks[-1][10 + i : 60 + 3 * i, 20 + 2 * i : 90 + 5 * i] = True
    return inpaint_factory.values(*masks)


def test_masks(classify):
    """20 instances in two crops each, with the CPU's nine operations for each size; 122 waits before."""
    stage, image = classify("instances"), np.ascontiguousarray(photo("china.jpg")[:300, :400])
    launches, waits = work_of(lambda: rows(stage, [image], masks=[masks_of(image.shape[:2], 20)]))
    assert launches <= 415 and waits <= 1


@pytest.mark.parametrize(("count", "most"), [(20, 430), (60, 680)])
def test_masks_beside_a_gpu(classify, count, most):
    """Crops are cut on the device; 389 and 691 launches and 2 waits before, when the host cut them."""
    stage, image = classify("instances"), np.ascontiguousarray(photo("china.jpg")[:300, :400])
    stage._on_device = True
    launches, waits = work_of(lambda: rows(stage, [image], masks=[masks_of(image.shape[:2], count)]))
    assert launches <= most and waits <= 1


def test_faces():
    """Photos of one size and of two: 391 and 466 launches; YuNet has more, as its graph is longer.

    Before, a photo had 302 of YuNet and 3 waits, eight of eight sizes 16 waits.
    """
    stage = faces_factory.make(on_device=True, size=0, paths=faces_factory.made_files())
    image = faces_factory.made_album()[0]
    small = np.ascontiguousarray(image[:500, :450])
    for images, most in (([image], 391), ([image, image], 391), ([image, small, image], 466)):
        launches, waits = work_of(lambda images=images: rows(stage, images))
        assert launches <= most and waits <= 2, (len(images), launches, waits)


def test_a_painted_crop():
    stage, image = inpaint_factory.network(), np.ascontiguousarray(photo("china.jpg")[:300, :400])
    mask = np.zeros(image.shape[:2], bool)
    mask[100:160, 120:180] = True
    batch = inpaint_factory.table([image], [inpaint_factory.values(mask)])
    stage._paint._whole = True
    launches, waits = work_of(lambda: stage(batch))
    assert launches <= 91 and waits == 1, launches


def test_flow():
    """Two pairs in both directions, one by one as on a CPU; 196 waits before."""
    stage = Flow(Flow.Config(backend="raft"))
    stage.setup({}, Placement())
    clip = [flow_factory.window(photo("china.jpg"), x, 40, 130, 170) for x in (40, 44, 50)]
    launches, waits = work_of(lambda: stage(flow_factory.table(clip)))
    assert launches <= 3728 and waits <= 4
