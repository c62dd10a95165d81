"""Stages of faces: with random weights, and with trained ones where they are present."""

from __future__ import annotations

from functools import partial

import numpy as np
import pytest

from tests.support.media.material import weights, where_present
from tests.support.media.photos import PHOTOS, photo
from tests.support.stages.faces_factory import album, make
from tests.support.stages.onnx_factory import mobilefacenet


@pytest.fixture(scope="session", params=["random", *where_present("MobileFaceNet.onnx", "trained")])
def make_stage(request):
    """Return a function of settings to a stage."""
    return make if request.param == "trained" else partial(make, paths={})


@pytest.fixture(scope="session")
def images(make_stage):
    """Return images of no, one and two people for trained networks, else any images, with sizes down to a pixel."""
    if make_stage is make:
        return album()
    return [*(photo(name) for name in PHOTOS), photo("flower.jpg")[:300, :200], np.zeros((1, 1, 3), np.uint8)]


@pytest.fixture(params=["made", *where_present("MobileFaceNet.onnx", "published")])
def mobilefacenet_file(request, tmp_path):
    """MobileFaceNet with random weights, and the published file where it is present."""
    return mobilefacenet(tmp_path / "net.onnx") if request.param == "made" else weights("MobileFaceNet.onnx")
