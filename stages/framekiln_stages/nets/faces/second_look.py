"""A second look at faces: each alone, at YuNet's best size, and mirrored.

A false face scores well in one place, at one size, in one direction: a bear, a head lamp, a printed grid. A real face
scores well in every view, even if blurred or small. So the least score of several views separates them if the first
score does not. Both together separate better than the second alone. The second counts twice, since small faces have low
first scores.

Of 104 unsure faces in photos of sports, crowds, streets and videos, this keeps 66 from 0.77 on. Some are bent down, cut
off, turned away or wear goggles. The second score alone keeps 59 at 0.8. Of 65 photos of animals, hands and things at
three sizes neither keeps any: a dog has at most 0.76, a head lamp 0.72. At 24, 32, 40 or 64 px instead of 48 both
groups overlap more.

Shapes: n faces of any images.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import cv2
import numpy as np
from numpy.typing import NDArray

from framekiln.device import in_order, torch
from framekiln_stages.nets.faces.detections import FaceDetections, Image
from framekiln_stages.shared.device_images import DeviceImages

FACE = 48  # px, longer side of the face in its view
VIEW = 3 * FACE  # px, side of a view
LEAST_LOOK = 0.5  # lower scores count as 0
SAME = 0.3  # least IoU with the first box of the same face in the view
VIEWS_AT_ONCE = 256  # views of 62 kB each; on a device, 0.2 GB while they are cut
RunNetwork = Callable[..., list[FaceDetections]]
"""Returns the faces of RGB images (a sequence), scaled to these longest sides (a sequence of int) for the network, in
px of the unscaled images. A network on a device takes the images' copies there as `uploaded`."""
Box = NDArray[np.float64]  # x0 y0 x1 y1 in px
Boxes = NDArray[np.float64]  # n 4
Squares = NDArray[np.int64]  # n 3: left, top, side in px; they may reach beyond the image


def least_scores(run: RunNetwork, images: Sequence[Image], boxes: Sequence[Box] | Boxes) -> NDArray[np.float64]:
    """Return the least score of each face (n) in its views, from 0.

    `run`: the network, as in `RunNetwork`. `images`: n, the image of each face. `boxes`: n, the box of each face in its
    image.
    """

    def find(squares: Squares) -> list[FaceDetections]:
        views = [_cut_view(image, *square) for image, square in zip(images, squares.tolist(), strict=True)]
        views += [np.ascontiguousarray(view[:, ::-1]) for view in views]
        parts = (views[start : start + VIEWS_AT_ONCE] for start in range(0, len(views), VIEWS_AT_ONCE))
        return [faces for part in parts for faces in run(part, [VIEW] * len(part))]

    return least_of(find, np.array(boxes, np.float64).reshape(-1, 4))


def least_of(find: Callable[[Squares], list[FaceDetections]], boxes: Boxes) -> NDArray[np.float64]:
    """Return the least score of each face (n) in its views, from 0.

    `find` returns the faces in the views of n squares, then those in their mirrored views. `boxes`: n 4, of each face
    in its image.
    """
    extents = boxes[:, 2:] - boxes[:, :2]
    sides = np.maximum(np.rint(extents.max(axis=1) * VIEW / FACE), 3).astype(np.int64)
    corners = np.floor((boxes[:, :2] + boxes[:, 2:] - sides[:, None]) / 2).astype(np.int64)
    places = (boxes - np.tile(corners, 2)) * (VIEW / sides)[:, None]
    mirrored = np.stack([VIEW - places[:, 2], places[:, 1], VIEW - places[:, 0], places[:, 3]], axis=1)
    found = find(np.column_stack([corners, sides]))
    scores = map(_score_at, [*places, *mirrored], found)
    return np.array(list(scores)).reshape(2, -1).min(axis=0)


def views_on_device(images: DeviceImages, owners: NDArray[np.int64], squares: Squares) -> torch.Tensor:
    """Return views of squares as `least_scores` cuts them, n VIEW VIEW 3 uint8 on the device.

    `images`: on the device. `owners`: n, the image of each square. `squares`: n.
    """
    cells, parts, order = np.arange(VIEW + 1), [], []
    for numbers, sums in images.parts(owners):
        large = squares[numbers, 2] > VIEW
        for start in range(0, len(shrunk := numbers[large]), VIEWS_AT_ONCE):
            own = shrunk[start : start + VIEWS_AT_ONCE]
            edges = squares[own, :2, None] + squares[own, 2, None, None] * cells / VIEW
            parts.append(sums.areas(owners[own], edges))
            order.append(own)
        for start in range(0, len(grown := numbers[~large]), VIEWS_AT_ONCE):
            own = grown[start : start + VIEWS_AT_ONCE]
            first = squares[own, :2].astype(np.float64)
            limits = np.stack([first, first + squares[own, 2:] - 1], axis=2)  # first and last pixel in x and in y
            parts.append(sums.bilinear(owners[own], _make_maps(squares[own]), (VIEW, VIEW), limits=limits))
            order.append(own)
    return in_order(parts, order)


def _make_maps(squares: Squares) -> NDArray[np.float64]:
    """Return the coordinates in the image of x, y, 1 of a view, n 2 3."""
    step = squares[:, 2] / VIEW
    maps = np.zeros((len(squares), 2, 3))
    maps[:, 0, 0] = maps[:, 1, 1] = step
    maps[:, :, 2] = squares[:, :2] + ((step - 1) / 2)[:, None]
    return maps


def _cut_view(image: Image, left: int, top: int, side: int) -> Image:
    """Return a square of an image, black beyond it, at the size of a view."""
    part = image[max(top, 0) : max(top + side, 0), max(left, 0) : max(left + side, 0)]
    square = np.zeros((side, side, 3), np.uint8)
    y, x = max(-top, 0), max(-left, 0)
    square[y : y + part.shape[0], x : x + part.shape[1]] = part
    method = cv2.INTER_AREA if side > VIEW else cv2.INTER_LINEAR
    return np.asarray(cv2.resize(square, (VIEW, VIEW), interpolation=method), np.uint8)


def _score_at(box: Box, faces: FaceDetections) -> float:
    """Return the best score of the faces at a box; 0 without faces."""
    starts, ends = np.maximum(faces.boxes[:, :2], box[:2]), np.minimum(faces.boxes[:, 2:], box[2:])
    common = (ends - starts).clip(0).prod(axis=1)
    union = faces.sides.prod(axis=1) + (box[2:] - box[:2]).prod() - common
    return float(faces.scores[common > SAME * union].max(initial=0))
