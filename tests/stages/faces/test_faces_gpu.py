"""Faces on a GPU: the same faces and embeddings as on the CPU, with made networks, and with trained ones if present."""

from __future__ import annotations

import numpy as np
import pytest

from framekiln.contract.placement import Placement
from framekiln_stages.faces.alignment import SIDE
from framekiln_stages.faces.recognizers import NETWORKS, Recognizer
from framekiln_stages.faces.stage import Faces
from tests.support.stages.faces.faces_factory import embedding, found
from tests.support.stages.on_gpu import DEVICE, needs_gpu

pytestmark = needs_gpu


@pytest.mark.parametrize("model", ["mobilefacenet", "arcface-r50", "auraface"])
def test_16_bits_are_close_to_fp32(model):
    crops = np.random.default_rng(0).integers(0, 256, (70, SIDE, SIDE, 3), dtype=np.uint8)
    full, half = (
        Recognizer(
            NETWORKS[model],
            None,
            runtime="auto",
            placement=Placement(device=DEVICE, precision=precision, channels_last=True, pin_memory=True),
        )(crops)
        for precision in ("fp32", "auto")
    )
    assert (full * half).sum(1).min() > 0.999


@pytest.mark.parametrize(("precision", "least"), [("auto", 0.9999), ("fp32", 0.9999), ("bf16", 0.999)])
def test_a_gpu_equals_onnxruntime(networks, make_stage, images, precision, least):
    expected, embeddings = [found(make_stage(embedding="float32"), *images)], []
    stage = Faces(Faces.Config(embedding="float32"))
    stage.setup(networks, Placement(device=DEVICE, precision=precision, channels_last=True))
    expected.append(found(stage, *images))
    for rows in expected:
        clear = [face for row in rows for face in row if face["quality"] > 0.1]
        embeddings.append(np.stack([embedding(face) for face in clear]))
    assert len(embeddings[0]) >= 4
    assert (embeddings[0] * embeddings[1]).sum(1).min() > least
