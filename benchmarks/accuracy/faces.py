"""Faces found by `Faces` beside OpenCV's FaceDetectorYN called directly, on the same network.

Truth: the number of faces that one sees in each photo, counted by hand. Small faces are photos shrunk until the face
has that many pixels. Photos without faces are shown at several sizes and upside down too. Settings were chosen on the
first group of photos and on every second category; the others are the check.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import cache
from pathlib import Path

import av
import cv2
import numpy as np
import pyarrow as pa

from benchmarks.accuracy import AccuracyFigure
from framekiln.contract.columns import Image, pack
from framekiln.contract.placement import Placement
from framekiln_stages.faces.stage import Faces
from framekiln_stages.nets.faces.yunet import OpenCvYuNet, YuNet
from tests.support.media.material import media, weights

CHOSEN = {f"faces/{name}": 1 for name in ("biden/biden.jpg", "single/astronaut.png", "single/grace_hopper.bmp")}
CHOSEN |= {f"faces/obama/{name}.jpg": 1 for name in ("obama", "obama2", "obama_partial_face", "obama_partial_face2")}
CHOSEN_CLIPS = tuple(
    f"av/grid/{name}.mpg" for name in ("bbaf2n", "id2_vcd_swwp2s", "lbax4n", "lrwp9a", "pwij3p", "sbwe5n")
)
ASIDE = {"clip/franz-kafka.jpg": 1, "pose/squat.bmp": 1, "pose/coco/000000000785.jpg": 1, "inpaint/image.png": 1}
COUPLE = {"pose/test_image.bmp": 2}
ASIDE_CLIPS = ("vos/06_pingpong.mp4",)
WITHOUT = (
    *("lighting", "masks/bird_segmentation.bmp", "flow/rubberwhale/rubberwhale1.png", "inpaint/bunny.jpeg"),
    *("inpaint/overture-creations-5sI6fQgYIuo.png", "inpaint/unwant_object.jpg"),
)
SIDES = (40, 24, 18)  # px of a shrunk face
SCALES = (0.5, 1.0, 1.5)
SHORT, LONG = 1280, 1280  # px: the pixels that the stage reads, and the detector's input
Counts = Callable[[Image], int]
Scenes = list[tuple[Image, int]]


def measure() -> list[AccuracyFigure]:
    """Return recall by size of the face, and false faces in photos without any."""
    stage, net = real_stage(), cv2.FaceDetectorYN.create(str(weights("yunet_n_dynamic.onnx")), "", (LONG, LONG))

    def ours(image: Image) -> int:
        return int(stage(pa.table({stage.pixels: pack([image])}))["face_count"][0].as_py())

    def library(image: Image) -> int:
        pixels = _shrunk(image, LONG / max(image.shape[:2]))
        net.setInputSize(pixels.shape[1::-1])
        found = net.detect(cv2.cvtColor(pixels, cv2.COLOR_RGB2BGR))[1]
        return 0 if found is None else len(found)

    things = sorted(media("categories").iterdir())
    others = [path for name in WITHOUT for path in _paths(name)]
    figures = []
    for name, photos, clips, empty in (
        ("chosen", CHOSEN, CHOSEN_CLIPS, things[::2]),
        ("check", ASIDE | COUPLE, ASIDE_CLIPS, [*things[1::2], *others]),
    ):
        scenes = [(read(each), count) for each, count in photos.items()]
        scenes += [(frame, 1) for clip in clips for frame in frames(clip)]
        figures.append(_recall(f"{name}: {len(scenes)} images", scenes, ours, library))
        singles = [(image, count) for image, count in scenes if count == 1]
        for side in SIDES:
            small = [(shrunk, 1) for image, _ in singles if (shrunk := with_face_of(image, side)) is not None]
            figures.append(_recall(f"{name}: {len(small)} images, face of {side} px", small, ours, library))
        turned = [(np.ascontiguousarray(np.rot90(image, k)), count) for image, count in scenes for k in (1, 2, 3)]
        figures.append(
            _recall(f"{name}: {len(turned)} images turned by 90, 180 and 270 degrees", turned, ours, library)
        )
        figures.append(_of_things(name, empty, ours, library))
    return figures


def real_stage() -> Faces:
    """Return the stage with its defaults and real weights."""
    stage = Faces()
    stage.setup(
        {"yunet_n_dynamic": weights("yunet_n_dynamic.onnx"), "mobilefacenet": weights("MobileFaceNet.onnx")},
        Placement(),
    )
    return stage


def _recall(data: str, scenes: Scenes, ours: Counts, library: Counts) -> AccuracyFigure:
    total = sum(count for _, count in scenes)
    found = [sum(min(count, finder(image)) for image, count in scenes) / total for finder in (ours, library)]
    return AccuracyFigure(
        subject="faces", data=data, measure="share of faces found", value=found[0], library=found[1], better="higher"
    )


def _of_things(name: str, photos: Sequence[Path], ours: Counts, library: Counts) -> AccuracyFigure:
    views = [view for path in photos for view in _views(_shrunk(_load(path), 1))]
    return AccuracyFigure(
        subject="faces",
        data=f"{name}: {len(views)} views of {len(photos)} photos without faces",
        measure="false faces",
        value=float(sum(map(ours, views))),
        library=float(sum(map(library, views))),
        better="lower",
    )


def with_face_of(image: Image, side: int) -> Image | None:
    """Return an image shrunk until its clearest face has this side; None if the face is smaller."""
    own = face_side(image)
    return _shrunk(image, side / own) if own > side else None


@cache
def _any_face() -> YuNet:
    return YuNet(OpenCvYuNet(weights("yunet_n_dynamic.onnx"), 0.6), side=LONG, max_faces=1)


def face_side(image: Image) -> float:
    """Return the shorter side of the clearest face in px, found at a low score; 0 without a face."""
    sides = _any_face()([image])[0].sides
    return float(sides.min()) if sides.size else 0.0


def _views(image: Image) -> Iterator[Image]:
    for scale in SCALES:
        resized = cv2.resize(image, None, fx=scale, fy=scale, interpolation=cv2.INTER_AREA)
        yield from (np.asarray(resized, np.uint8), np.ascontiguousarray(resized[::-1]))


def _shrunk(image: Image, scale: float) -> Image:
    scale = min(scale, 1)
    return np.asarray(cv2.resize(image, None, fx=scale, fy=scale, interpolation=cv2.INTER_AREA), np.uint8)


def read(name: str) -> Image:
    """Return a photo at the size that the stage reads."""
    return _load(media(name))


def _load(path: Path) -> Image:
    image = cv2.cvtColor(cv2.imread(str(path)), cv2.COLOR_BGR2RGB)
    return _shrunk(np.asarray(image, np.uint8), SHORT / min(image.shape[:2]))


def _paths(name: str) -> Sequence[Path]:
    path = media(name)
    return sorted(path.iterdir()) if path.is_dir() else [path]


def frames(name: str, step: int = 30) -> list[Image]:
    """Return every frame of a clip whose number is a multiple of `step`."""
    with av.open(str(media(name))) as file:
        return [
            np.asarray(f.to_ndarray(format="rgb24"), np.uint8)
            for i, f in enumerate(file.decode(video=0))
            if i % step == 0
        ]
