"""Objects on a GPU: the masks of the CPU, whose memory each frame's masks come from."""

from __future__ import annotations

import numpy as np
import pytest

from framekiln.contract.placement import Placement
from framekiln_stages.nets.sam2.video import Tracker
from framekiln_stages.shared.point_prompts import Prompt
from tests.support.media.photos import take
from tests.support.stages.on_gpu import DEVICE, needs_gpu
from tests.support.stages.sam import video_reference as reference

pytestmark = [*needs_gpu, pytest.mark.usefixtures("one_thread")]

FRAMES = 3
POINT = Prompt(points=np.array([[0.4, 0.5]], np.float32), labels=np.array([1]))


@pytest.mark.parametrize(("precision", "least"), [("fp32", 0.9999), ("bf16", 0.99)])
def test_a_gpu_equals_the_cpu(precision, least):
    logits = []
    for place in (Placement(), Placement(device=DEVICE, precision=precision)):
        tracker = Tracker(reference.model(), place)
        tracker.add(POINT)
        found = [tracker.track(image)[0].float().cpu().numpy() for image in take("flower.jpg", FRAMES, 540, 960)]
        logits.append(np.stack(found).reshape(FRAMES, -1))
    assert np.ptp(logits[0]) > 1
    for one, other in zip(*logits, strict=True):
        assert one @ other / np.linalg.norm(one) / np.linalg.norm(other) > least
