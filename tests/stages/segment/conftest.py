"""A SAM 2.1 that a test can afford."""

from __future__ import annotations

import pytest


@pytest.fixture(scope="session")
def sam_file(tmp_path_factory):
    """A file of random weights."""
    from tests.support.stages.sam.weights import TOY, lively

    return lively(TOY, tmp_path_factory.mktemp("weights") / "toy.safetensors")


@pytest.fixture
def sam(sam_file, monkeypatch):
    """The same file, while `toy` is one of the models that a stage accepts."""
    import torch

    from framekiln_stages.nets.sam2.image import MODELS
    from tests.support.stages.sam.weights import TOY

    monkeypatch.setitem(MODELS, "toy", TOY)
    threads = torch.get_num_threads()
    torch.set_num_threads(min(2, threads))
    yield sam_file
    torch.set_num_threads(threads)


@pytest.fixture(scope="module")
def predict(sam_file):
    """Uses the pixels that the stage prepares, so that nothing differs before the filters."""
    import torch

    from framekiln.contract.placement import Placement
    from framekiln.device import prepare
    from tests.support.stages.sam import image_reference as reference
    from tests.support.stages.sam.weights import TOY

    return reference.predictor(
        reference.plain(sam_file),
        TOY.side,
        lambda image, _: prepare([image], TOY.preparation, Placement(), torch.float32),
    )


@pytest.fixture(scope="module")
def chosen(predict):
    """Settings with work for each filter, for which rounding changes nothing."""
    from tests.support.stages.sam.segment_factory import small_photo
    from tests.support.stages.sam.thresholds import settled

    return settled(predict, small_photo(), points_per_side=4)
