"""CLIP on a GPU, in each precision and compiled, stays within a stated distance of fp32 on the CPU."""

from __future__ import annotations

import pytest

from tests.support.media.clip_factory import closeness, seen
from tests.support.stages.on_gpu import DEVICE, needs_gpu

pytestmark = [*needs_gpu, pytest.mark.usefixtures("one_thread")]


@pytest.mark.parametrize(
    ("settings_", "least"),
    [
        ({"precision": "fp32"}, 0.9999),
        ({"precision": "auto"}, 0.999),
        ({"precision": "fp16"}, 0.9995),
        ({"precision": "auto", "compile_": True, "batch": 5}, 0.999),
    ],
)
def test_a_gpu_equals_the_cpu(tiny, album, settings_, least):
    assert closeness(seen(tiny, album, device=DEVICE, **settings_), seen(tiny, album)) >= least
