"""YuNet, a face detector: images to faces of any size.

Its anchors end at about 400 px: a face of 800 px is detected three times or not at all. So the network sees each image
twice, at the size for small faces and at a small size. Each face is taken from the pass in which it has a well-detected
size. The network runs in OpenCV's FaceDetectorYN (here), or in torch (`framekiln_stages.nets.faces.yunet_torch`).

It finds faces up to about 30 degrees from upright. So a picture without a sure face is also searched in quarter turns:
first small, some 4 ms a turn, then in full if that shows a face.

Shapes: n faces of one image. A turn is a number of quarters counterclockwise, as in `numpy.rot90`.
"""

import threading
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import NamedTuple

import cv2
import numpy as np
from numpy.typing import NDArray

from framekiln_stages.nets.faces.detections import FaceDetections, Image, Size
from framekiln_stages.nets.faces.second_look import RunNetwork, least_of, least_scores
from framekiln_stages.shared.device_images import DeviceImages

TURNS = (1, 2, 3)
COVERED = 0.5  # share of the smaller box: an upside-down head is taken for a face at its chin or at its forehead


def turn(image: Image, quarters: int) -> Image:
    """Return an image turned counterclockwise."""
    return np.ascontiguousarray(np.rot90(image, quarters))


def shrink(image: Image, side: int) -> Image:
    """Return an image whose longest side is at most `side` px, by means over areas."""
    scale = min(1.0, side / max(image.shape[:2]))
    height, width = (max(1, round(length * scale)) for length in image.shape[:2])
    return np.asarray(cv2.resize(image, (width, height), interpolation=cv2.INTER_AREA), np.uint8)


def turn_back(faces: FaceDetections, quarters: int, shape: Sequence[int]) -> FaceDetections:
    """Return faces of a turned image in px of the unturned image, of this shape (h w ...)."""
    points, corners = faces.points, faces.boxes.reshape(-1, 2, 2)
    for done in range(quarters):  # undone quarter by quarter: the last one turned an image of this width
        width = shape[1] if (quarters - done) % 2 else shape[0]
        points, corners = (np.stack([width - at[..., 1], at[..., 0]], axis=-1) for at in (points, corners))
    boxes = np.concatenate([corners.min(axis=1), corners.max(axis=1)], axis=1)
    return FaceDetections(boxes, points, faces.scores)


def join(faces: FaceDetections, others: FaceDetections) -> FaceDetections:
    """Return the first faces, and the others that cover none of them."""
    starts = np.maximum(faces.boxes[:, None, :2], others.boxes[None, :, :2])
    ends = np.minimum(faces.boxes[:, None, 2:], others.boxes[None, :, 2:])
    smaller = np.minimum(faces.sides.prod(axis=1)[:, None], others.sides.prod(axis=1))
    new = ((ends - starts).clip(0).prod(axis=2) <= COVERED * smaller).all(axis=0)
    return FaceDetections.concatenate([faces, others.select(new)])


OVERLAP = 0.3  # IoU above which two boxes are one face: the default of FaceDetectorYN
SMALL_SIDE = 320  # px, longest side of the second pass: 4 ms
# Largest face in px of the network's input. Scores of an enlarged portrait: 0.96 at 200 px, 0.95 at 300, 0.90 at 500;
# three faces at 800.
LARGEST = 400

CONFIDENT = 0.85  # least score of a face of the first pass that wins over a face of the second
SURE = 0.92  # least score without a second look: things had at most 0.89, portraits 0.92 to 0.96
# Least evidence, for the surest face, that a picture is turned. Upright, 66 of 69 photos with faces reach it. Turned,
# 65 photos of animals, hands and things reach 0.84.
TURNED = 0.86


class Looked(NamedTuple):
    """Faces of one image, and the evidence of the surest: 0 to 1, 0 without faces."""

    faces: FaceDetections
    evidence: float


class YuNet:
    """The detector: two passes over each image, a second look at unsure faces, and looks at turned images.

    Args:
        run: the network, down to the lower of both scores.
        side: longest side of the first pass in px; 0 for all pixels.
        max_faces: of one image.
        min_score: of a face, 0 to 1.
        min_look: least evidence of a face: a third of its score and two thirds of that in the second look, see
            `nets.faces.second_look`; None for no second look.
    """

    def __init__(
        self, run: RunNetwork, *, side: int, max_faces: int, min_score: float = 0.0, min_look: float | None = None
    ) -> None:
        self._run, self._side, self._max_faces = run, side, max_faces
        self._min_score, self._min_look = min_score, min_look

    def __call__(self, images: Sequence[Image], uploaded: DeviceImages | None = None) -> list[FaceDetections]:
        """Return the faces of each image, whichever way up it is.

        `images`: h w 3 each. `uploaded`: the same on the network's device, where it has one.
        """
        looked = self.look_upright(images, uploaded)
        for i, quarters in self._find_turns(images, looked):
            (found,) = self.look_upright([turn(images[i], quarters)], None)
            if found.evidence >= (SURE if self._min_look is None else TURNED) and found.evidence > looked[i].evidence:
                faces = turn_back(found.faces, quarters, images[i].shape)
                looked[i] = Looked(join(faces, looked[i].faces), found.evidence)
        return [faces.select(np.argsort(-faces.scores, kind="stable")[: self._max_faces]) for faces, _ in looked]

    def _find_turns(self, images: Sequence[Image], looked: Sequence[Looked]) -> list[tuple[int, int]]:
        """Return images without a sure face that show one when turned, each with its turn.

        At 320 px, 66 of 70 photos of people show a face of 0.6 and more, and 8 of 195 turned photos without people.
        """
        turned = [(i, quarters) for i, look in enumerate(looked) if look.evidence < SURE for quarters in TURNS]
        small = {i: shrink(images[i], SMALL_SIDE) for i, _ in turned}
        views = [turn(small[i], quarters) for i, quarters in turned]
        found = self._run(views, [max(view.shape) for view in views]) if views else []
        return [key for key, faces in zip(turned, found, strict=True) if faces.scores.max(initial=0) >= self._min_score]

    def look_upright(self, images: Sequence[Image], uploaded: DeviceImages | None) -> list[Looked]:
        """Return the faces of each image as it stands, with a second look at unsure ones."""
        run = self._run if uploaded is None else partial(self._run, uploaded=uploaded)
        longest = [max(image.shape[:2]) for image in images]
        sides = [min(length, self._side or length) for length in longest]
        large = [i for i, side in enumerate(sides) if side > SMALL_SIDE]
        # both passes in one call, so that a GPU is waited for once
        detections = run([*images, *(images[i] for i in large)], [*sides, *[SMALL_SIDE] * len(large)])
        for i, coarse in zip(large, detections[len(images) :], strict=True):
            detections[i] = _merge_passes(detections[i], coarse, LARGEST * longest[i] / sides[i])
        detections = [faces.select(faces.scores >= self._min_score) for faces in detections[: len(images)]]
        if self._min_look is None:
            return [Looked(faces, float(faces.scores.max(initial=0))) for faces in detections]
        return self._confirm(images, detections, self._min_look, uploaded)

    def _confirm(
        self,
        images: Sequence[Image],
        detections: Sequence[FaceDetections],
        min_look: float,
        uploaded: DeviceImages | None,
    ) -> list[Looked]:
        """Return faces that are sure, or score well in both looks: one call for all images."""
        every = FaceDetections.concatenate(detections)
        owners = np.repeat(np.arange(len(images)), [len(faces.scores) for faces in detections])
        evidence = every.scores.astype(np.float64)
        if len(unsure := np.flatnonzero(evidence < SURE)):
            boxes = every.boxes[unsure].astype(np.float64)
            if uploaded is None:
                scores = least_scores(self._run, [images[i] for i in owners[unsure]], boxes)
            else:
                scores = least_of(partial(self._run.look, uploaded, owners[unsure]), boxes)  # type: ignore[attr-defined]
            evidence[unsure] = (evidence[unsure] + 2 * scores) / 3
        kept = [(evidence >= min_look) & (owners == i) for i in range(len(images))]
        return [Looked(every.select(own), float(evidence[own].max(initial=0))) for own in kept]


class OpenCvYuNet:
    """The network in OpenCV, one image after the other on one thread; each calling thread has a detector.

    `path`: an ONNX file with variable height and width, as in libfacedetection.train and opencv_zoo. `min_score`: from
    0 to 1.
    Raises RuntimeError: OpenCV refuses the file.
    """

    def __init__(self, path: Path, min_score: float) -> None:
        cv2.setNumThreads(1)  # parallel workers scale better than threads within an image
        self._path, self._min_score = path, min_score
        self._own = threading.local()  # a detector keeps the size of its input
        self._get_net()

    def _get_net(self) -> cv2.FaceDetectorYN:
        if not hasattr(self._own, "net"):
            self._own.net = open_detector(self._path, self._min_score)
        return self._own.net

    def __call__(self, images: Sequence[Image], sides: Sequence[int]) -> list[FaceDetections]:
        return [self._detect(image, input_size(image, side)) for image, side in zip(images, sides, strict=True)]

    def _detect(self, image: Image, size: Size) -> FaceDetections:
        unscaled = size == image.shape[:2]
        pixels = image if unscaled else cv2.resize(image, size[::-1], interpolation=cv2.INTER_AREA)
        net = self._get_net()
        net.setInputSize(size[::-1])
        rows = net.detect(cv2.cvtColor(pixels, cv2.COLOR_RGB2BGR))[1]
        return rows_to_faces(np.empty((0, 15), np.float32) if rows is None else rows, image.shape, size)


_LOGGING = threading.Lock()
"""Held while OpenCV's log level, which the whole process shares, is changed."""


def open_detector(path: Path, min_score: float) -> cv2.FaceDetectorYN:
    """Open OpenCV's detector. Raises RuntimeError: OpenCV refuses the file."""
    with _LOGGING:
        level = cv2.utils.logging.setLogLevel(cv2.utils.logging.LOG_LEVEL_ERROR)  # silences a warning on the target
        try:
            return cv2.FaceDetectorYN.create(str(path), "", (SMALL_SIDE, SMALL_SIDE), min_score, OVERLAP)
        except cv2.error as error:
            raise RuntimeError(f"OpenCV cannot use {path}: {error}") from error
        finally:
            cv2.utils.logging.setLogLevel(level)


def input_size(image: Image, side: int) -> Size:
    """Return the size of an image scaled to this longest side."""
    height, width = image.shape[:2]
    scale = side / max(height, width)
    return max(1, round(height * scale)), max(1, round(width * scale))


def rows_to_faces(rows: NDArray[np.float32], shape: Sequence[int], size: Size) -> FaceDetections:
    """Return FaceDetectorYN's rows as faces in px of the image.

    `rows`: n 15: x y width height, five points, score; in px of the network's input. `shape`: of the unscaled image.
    `size`: of the network's input.
    """
    rows = rows[np.isfinite(rows).all(axis=1)]
    scale = np.array([shape[1] / size[1], shape[0] / size[0]], np.float32)
    start, extent = rows[:, :2] * scale, rows[:, 2:4] * scale
    points = rows[:, 4:14].reshape(-1, 5, 2) * scale
    return FaceDetections(np.concatenate([start, start + extent], axis=1), points, rows[:, 14])


def _merge_passes(fine: FaceDetections, coarse: FaceDetections, limit: float) -> FaceDetections:
    """Take small faces from the first pass, and large ones from the second, which may repeat faces of the first.

    If two overlap, a confident one of the first pass stays: more pixels give better landmarks.
    """
    small = fine.select(fine.sides.max(axis=1) <= limit)
    large = coarse.select(coarse.sides.max(axis=1) > limit / 2)
    faces = FaceDetections.concatenate([small, large])
    fine_one = np.arange(len(faces.scores)) < len(small.scores)
    ranks = faces.scores + (fine_one & (faces.scores >= CONFIDENT))  # above 1 for them
    return faces.suppress(OVERLAP, ranks)
