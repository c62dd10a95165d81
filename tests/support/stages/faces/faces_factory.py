"""Shared by the tests of faces: a stage with trained or made networks, and pictures of the faces that these find."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from tempfile import mkdtemp

import cv2
import numpy as np
import pyarrow as pa

from framekiln.contract.columns import pack, views
from framekiln.contract.placement import Placement
from framekiln_stages.faces.stage import Faces
from tests.support.media.material import media, picture, weights
from tests.support.media.media_factory import packets_of
from tests.support.media.photos import photo
from tests.support.stages.faces.onnx_factory import mobilefacenet
from tests.support.stages.faces.yunet_factory import marked, yunet

PORTRAITS = {
    "obama/obama.jpg": "obama",
    "obama/obama2.jpg": "obama",
    "obama/obama_partial_face.jpg": "obama",
    "obama/obama_partial_face2.jpg": "obama",
    "biden/biden.jpg": "biden",
    "single/astronaut.png": "collins",
    "single/grace_hopper.bmp": "hopper",
}
SPEAKERS = {  # GRID: six clips of five people
    name: "swwp2s" if name in ("id2_vcd_swwp2s", "pwij3p") else name
    for name in ("bbaf2n", "id2_vcd_swwp2s", "lbax4n", "lrwp9a", "pwij3p", "sbwe5n")
}


def files():
    return {
        "yunet_n_dynamic": weights("yunet_n_dynamic.onnx"),
        "mobilefacenet": weights("MobileFaceNet.onnx"),
    }


@cache
def made_files():
    """Return networks that need no training: a detector of green squares, and recognition by random weights."""
    folder = Path(mkdtemp())
    return {"yunet_n_dynamic": yunet(folder / "yunet.onnx"), "mobilefacenet": mobilefacenet(folder / "net.onnx")}


def make(precision="fp32", paths=None, *, on_device=False, **settings_):
    """Return a stage that is set up, with the trained networks unless others are given.

    With `on_device` it works as beside a GPU, by torch's operations, which here run on the CPU.
    """
    if on_device:
        settings_ = {"runtime": "torch", **settings_}
    stage = Faces(Faces.Config(**settings_))
    stage.setup(files() if paths is None else paths, Placement(precision=precision, channels_last=True))
    stage._on_device = on_device
    return stage


@cache
def faces():
    """Return the stage with its defaults, set up once."""
    return make()


def call(stage, *images):
    return stage(pa.table({stage.pixels: pack(list(images))}))


def found(stage, *images):
    return call(stage, *images)["faces"].to_pylist()


def embedding(face):
    return np.array(face["embedding"], np.float32)


def scaled(image, factor):
    method = cv2.INTER_AREA if factor < 1 else cv2.INTER_CUBIC
    return cv2.resize(image, None, fx=factor, fy=factor, interpolation=method)


@cache
def portraits():
    return {name: picture(f"faces/{name}") for name in PORTRAITS}


@cache
def speakers():
    """Return every fifteenth frame of the GRID clips, by clip, as the pipeline decodes them."""
    result = {}
    for packet in packets_of(media("av/grid"), every_nth=15):
        for name, image in zip(packet.rows["media_id"].to_pylist(), views(packet.rows["frame"]), strict=True):
            result.setdefault(Path(name).stem, []).append(image)
    return result


@cache
def album():
    """Return images of no, one and two people, with sizes down to a pixel."""
    tall = portraits()["single/astronaut.png"]
    return [
        tall,
        picture("categories/cat.bmp"),
        np.hstack([tall, tall[:, ::-1]]),
        np.zeros((1, 1, 3), np.uint8),
        picture("pose/test_image.bmp"),
        np.full((3, 900, 3), 90, np.uint8),
        portraits()["single/grace_hopper.bmp"],
    ]


@cache
def made_album():
    """Return images of no, one and two squares that the made detector takes for faces, with sizes down to a pixel."""
    one = marked(photo("grace_hopper.jpg"), (200, 150))
    return [
        one,
        photo("china.jpg"),
        np.hstack([one, one[:, ::-1]]),
        np.zeros((1, 1, 3), np.uint8),
        marked(photo("flower.jpg"), (101, 77, 32, 200), (402, 300)),
        np.full((3, 900, 3), 90, np.uint8),
        marked(photo("china.jpg"), (333, 210)),
    ]
