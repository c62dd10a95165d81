"""Stages of faces: with made networks, and with trained ones where they are present; and pictures for both."""

from __future__ import annotations

from functools import partial

import cv2
import pytest

from tests.support.media.material import weights, where_present
from tests.support.media.photos import photo
from tests.support.stages.faces.faces_factory import album, files, made_album, made_files, make, portraits
from tests.support.stages.faces.onnx_factory import mobilefacenet
from tests.support.stages.faces.yunet_factory import marked


@pytest.fixture(scope="session", params=["made", *where_present("MobileFaceNet.onnx", "trained")])
def networks(request):
    """Return the files of the networks; made ones take green squares for faces."""
    return made_files() if request.param == "made" else files()


@pytest.fixture(scope="session")
def make_stage(networks):
    """Return a function of settings to a stage."""
    return partial(make, paths=networks)


@pytest.fixture(scope="session")
def ready(make_stage):
    """Return the stage with its defaults, set up once."""
    return make_stage()


@pytest.fixture(scope="session")
def images(networks):
    """Return images of no, one and two people, with sizes down to a pixel."""
    return made_album() if networks == made_files() else album()


@pytest.fixture(scope="session")
def person(networks):
    """Return a picture of 300 x 300 px with a face about 50 px wide."""
    if networks == made_files():
        return marked(photo("grace_hopper.jpg")[:300, :300], (130, 130, 32, 150))
    return cv2.resize(portraits()["single/astronaut.png"][:500, :500], (300, 300))


@pytest.fixture(scope="session")
def small_face(networks):
    """Return a face in 60 x 60 px."""
    if networks == made_files():
        return marked(photo("grace_hopper.jpg")[80:140, 230:290], (14, 14))
    face = portraits()["single/astronaut.png"][:240, 110:350]
    return cv2.resize(face, (60, 60), interpolation=cv2.INTER_AREA)


@pytest.fixture(params=["made", *where_present("MobileFaceNet.onnx", "published")])
def mobilefacenet_file(request, tmp_path):
    """MobileFaceNet with random weights, and the published file where it is present."""
    return mobilefacenet(tmp_path / "net.onnx") if request.param == "made" else weights("MobileFaceNet.onnx")
