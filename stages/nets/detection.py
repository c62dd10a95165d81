"""Which detector finds faces, and what runs it: on a GPU, or on a core beside one."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

from pipeline.device import Phase
from pipeline.stage import Placement
from stages.nets.placeholder import Placeholder
from stages.nets.scrfd import Scrfd
from stages.nets.yunet import Found, Image, OpenCv, YuNet

DETECTORS = {
    "yunet": "yunet_n_dynamic",
    "yunet-s": "yunet_s_dynamic",
    "yunet-2023mar": "yunet_2023mar",
    "scrfd": "scrfd_10g",
}
"""Entries of the weights lockfile by the name that a pipeline file uses."""

PICTURES = 8  # shown at once where torch runs the detector: 70 to 100 MB each at 1280 px, by the picture's own size
_BY_TORCH = ("yunet", "yunet-s")

Detect = Callable[[Sequence[Image]], list[Found]]


def detection(
    name: str,
    path: Path | None,
    *,
    side: int,
    min_score: float,
    most: int,
    runtime: str,
    placement: Placement,
    phase: Phase,
) -> tuple[Detect, bool]:
    """Faces of pictures, and whether many are looked at together.

    Args:
        name: of the detector.
        path: its weights; None for faces that are made up.
        side: longest side in px that it is shown; 0 for all pixels.
        min_score: of a face.
        most: faces of one picture.
        runtime: "torch" or "onnxruntime", as for the other network.
        placement: torch's device.
        phase: counts the time of a block.

    Raises:
        RuntimeError: OpenCV refuses the file.
        ValueError: onnxruntime does, or torch cannot run its graph.
    """
    if path is not None and runtime == "torch" and name in _BY_TORCH:
        from stages.nets.yunet_torch import Torch

        return YuNet(Torch(path, min_score, placement, phase), side=side, most=most), True
    on_gpu = False
    if path is None:
        detect = _each(Placeholder(most=most))
    elif name == "scrfd":
        found = Scrfd(path, side=side, min_score=min_score, most=most, placement=placement)
        detect, on_gpu = _each(found), found.on_gpu
    else:
        detect = YuNet(OpenCv(path, min_score), side=side, most=most)
    # beside a card, what a core does is work that makes the card's input
    return _timed(detect, phase, "infer" if on_gpu or placement.device == "cpu" else "preprocess"), False


def _each(detect: Callable[[Image], Found]) -> Detect:
    return lambda images: [detect(image) for image in images]


def _timed(detect: Detect, phase: Phase, name: str) -> Detect:
    def timed(images: Sequence[Image]) -> list[Found]:
        with phase(name):
            return detect(images)

    return timed
