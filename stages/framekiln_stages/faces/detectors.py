"""The face detectors that a pipeline file can name, and the runtime of each: on a GPU, or on a CPU core beside it."""

from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

import numpy as np

from framekiln.contract import Placement
from framekiln.device import Phase, counting
from framekiln_stages.faces.alignment import SIDE, TEMPLATE
from framekiln_stages.nets.faces.detections import FaceDetections, Image
from framekiln_stages.nets.faces.scrfd import Scrfd
from framekiln_stages.nets.faces.second_look import LEAST_LOOK
from framekiln_stages.nets.faces.yunet import OpenCvYuNet, YuNet
from framekiln_stages.shared.device_images import DeviceImages

# Without weights each image has the same upright faces, so that the rest of the stage can be timed. Random weights
# would find nothing, or thousands of boxes of noise. Such a benchmark includes no detection on a CPU, and on a GPU
# both looks at an image that always take place.
FACES = 4
SHARE = 0.125  # share of the short side: 160 px of `frame_1280`, a person in front of the camera


class DummyDetector:
    """A detector with the same faces for every image. `max_faces`: of one image."""

    def __init__(self, *, max_faces: int) -> None:
        rng = np.random.default_rng(0)
        self._starts = rng.uniform(0, 1, (FACES, 2))  # position of a box's corner, as a share of its range
        self._offsets = rng.normal(0, 0.01, (FACES, *TEMPLATE.shape))  # no two crops are equal
        self._max_faces = max_faces

    def __call__(self, image: Image) -> FaceDetections:
        """Return faces at the same shares of any image, with a score of 1."""
        height, width = image.shape[:2]
        side = SHARE * min(height, width)
        starts = self._starts * (np.array([width, height]) - side)
        points = starts[:, None] + (TEMPLATE / SIDE + self._offsets) * side
        boxes = np.concatenate([starts, starts + side], axis=1)
        faces = FaceDetections(boxes.astype(np.float32), points.astype(np.float32), np.ones(FACES, np.float32))
        return faces.select(np.arange(min(self._max_faces, FACES)))


DETECTORS = {
    "yunet": "yunet_n_dynamic",
    "scrfd": "scrfd_10g",
}
"""Entries of the weights lockfile, by the detector's name in a pipeline file."""

IMAGES_PER_CHUNK = 8  # images per detector call in torch: 70 to 100 MB each at 1280 px, by the image's own size

Detect = Callable[[Sequence[Image], DeviceImages | None], list[FaceDetections]]
"""Returns the faces of images; their copies on the device save an upload."""


def build_detector(
    name: str,
    path: Path | None,
    *,
    side: int,
    min_score: float,
    min_look: float | None,
    max_faces: int,
    runtime: str,
    placement: Placement,
    phase: Phase,
) -> tuple[Detect, bool]:
    """Return a detector, and whether it takes many images at once.

    Settings are those of `Faces.Config`: `side` is `detect_side`, `min_score` its own. `path` is None for the dummy.
    `runtime` is that of the recognition network, "torch" or "onnxruntime".

    Raises RuntimeError: OpenCV rejects the file. Raises ValueError: onnxruntime or torch rejects it, or this detector's
    work cannot be counted.
    """
    least = min_score if min_look is None else min(min_score, LEAST_LOOK)
    yunet = partial(YuNet, side=side, max_faces=max_faces, min_score=min_score, min_look=min_look)
    made = _detect_one_by_one(DummyDetector(max_faces=max_faces))
    on_gpu = placement.device != "cpu" or counting()
    if name == "yunet" and (on_gpu if path is None else runtime == "torch"):
        from framekiln_stages.nets.faces.yunet_torch import TorchYuNet

        detect = yunet(TorchYuNet(path, least, placement, phase))
        return detect if path else _add_looks(detect, made), True
    if counting():
        raise ValueError(f"{name} is no network of torch")
    # on the CPU, detection prepares the GPU's input
    cpu_phase = "infer" if placement.device == "cpu" else "preprocess"
    if path is None:
        return _time(made, phase, cpu_phase), False
    if name == "scrfd":
        scrfd = Scrfd(path, side=side, min_score=min_score, max_faces=max_faces, placement=placement)
        return _time(_detect_one_by_one(scrfd), phase, "infer" if scrfd.on_gpu else cpu_phase), False
    on_cpu = yunet(OpenCvYuNet(path, least))
    return _time(lambda images, _: on_cpu(images), phase, cpu_phase), False


def _add_looks(detect: YuNet, made: Detect) -> Detect:
    def look_and_make(images: Sequence[Image], uploaded: DeviceImages | None) -> list[FaceDetections]:
        detect.look_upright(images, uploaded)
        return made(images, uploaded)

    return look_and_make


def _detect_one_by_one(detect: Callable[[Image], FaceDetections]) -> Detect:
    return lambda images, _: [detect(image) for image in images]


def _time(detect: Detect, phase: Phase, name: str) -> Detect:
    def timed(images: Sequence[Image], uploaded: DeviceImages | None) -> list[FaceDetections]:
        with phase(name):
            return detect(images, uploaded)

    return timed
