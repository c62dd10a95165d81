"""Face alignment: upright crops of one size for recognition networks, their quality, and the angles of a head.

Sunglasses and masks remove the contrast of eyes and mouth, or have a pattern of their own (`contrast`).

Shapes: n faces, 5 points in the order right eye, left eye, nose tip, right and left corner of the mouth (the person's
own right, so the left of the image); points are float32 n 5 2 as x, y in px. A transform is float64 n 2 3 and maps
points of the image to points of the crop of 112 x 112 px.
"""

from __future__ import annotations

from typing import Any

import cv2
import numpy as np
from numpy.typing import NDArray

from framekiln.contract import Image
from framekiln.device import torch

Points = NDArray[np.float32]  # n 5 2
Transforms = NDArray[np.float64]  # n 2 3

SIDE = 112
TEMPLATE = np.array(
    [[38.2946, 51.6963], [73.5318, 51.5014], [56.0252, 71.7366], [41.5493, 92.3655], [70.7299, 92.2041]]
)
"""The five points in ArcFace's crops: `arcface_dst` of insightface/utils/face_align.py, and OpenCV's
FaceRecognizerSF::alignCrop."""

# Depth of the nose tip in px of a crop: 0.41 of the distance of the pupils, as in generic head models.
NOSE_DEPTH = 14.4
_HEAD = np.concatenate([TEMPLATE, [[0], [0], [-NOSE_DEPTH], [0], [0]]], axis=1)  # z away from the viewer
_FIT = np.linalg.pinv(_HEAD - _HEAD.mean(axis=0))  # 3 5


def similarity_transforms(points: Points) -> Transforms:
    """Fit rotation, scale and shift from points to the template by least squares (Umeyama 1991).

    In complex numbers, a similarity without reflection is w = a z + b. Coinciding points get a large, finite scale.
    """
    z = points.astype(np.float64) @ [1, 1j]
    w = TEMPLATE @ [1, 1j]
    middle = z.mean(axis=1, keepdims=True)
    spread = (np.abs(z - middle) ** 2).sum(axis=1)
    a = (np.conj(z - middle) @ (w - w.mean())) / np.maximum(spread, 1e-6)
    b = w.mean() - a * middle[:, 0]
    return np.stack([np.stack([a.real, -a.imag, b.real], 1), np.stack([a.imag, a.real, b.imag], 1)], axis=1)


def crop_scales(transforms: Transforms) -> NDArray[np.float64]:
    """Return the crop's pixels for one of the image (n); above 1, the crop is enlarged."""
    return np.hypot(transforms[:, 0, 0], transforms[:, 1, 0])


def orientations(transforms: Transforms) -> NDArray[np.int16]:
    """Return the angles by which faces are turned clockwise in the image (n): 0, 90, 180 or 270 degrees."""
    quarters = np.rint(np.arctan2(transforms[:, 0, 1], transforms[:, 0, 0]) * 2 / np.pi)
    return np.asarray(quarters * 90 % 360, np.int16)


def align_face(image: Image, transform: NDArray[np.float64]) -> Image:
    """Return the aligned face, 112 112 3; black outside the image.

    Bilinear sampling skips pixels if a face is much larger than its crop. Then the same face would differ between
    images of two sizes. So its part of the image is first averaged over whole pixels.
    """
    shrink = int(1 / max(np.hypot(*transform[:, 0]), 1e-6))
    if shrink < 2:
        return _warp(image, transform)
    corners = np.array([[0, 0, 1], [SIDE, 0, 1], [0, SIDE, 1], [SIDE, SIDE, 1]], float)
    inverse = cv2.invertAffineTransform(transform)
    in_image = corners @ inverse.T
    # one averaged pixel more on each side, which samples at the edge need
    left, top = np.maximum((np.floor(in_image.min(axis=0)).astype(int) // shrink - 1) * shrink, 0).tolist()
    right, bottom = (np.ceil(in_image.max(axis=0)).astype(int) + 2 * shrink).tolist()
    part = image[top:bottom, left:right]
    part = part[: len(part) // shrink * shrink, : part.shape[1] // shrink * shrink]
    if not part.size:
        return _warp(image, transform)
    small = cv2.resize(part, (part.shape[1] // shrink, part.shape[0] // shrink), interpolation=cv2.INTER_AREA)
    linear = transform[:, :2] * shrink
    middle = (shrink - 1) / 2  # centre of the first averaged pixel
    shift = transform[:, :2] @ [left + middle, top + middle] + transform[:, 2]
    return _warp(small, np.column_stack([linear, shift]))


def _warp(image: Image, transform: NDArray[np.float64]) -> Image:
    return np.asarray(cv2.warpAffine(image, transform, (SIDE, SIDE), flags=cv2.INTER_LINEAR), np.uint8)


def head_angles(points: Points) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
    """Return yaw and pitch of each head in degrees (n each), independent of its roll.

    A scaled orthographic camera is fitted to a head of mean proportions (the first step of POSIT, DeMenthon and Davis
    1995). Yaw is positive where the nose points to the right of the image, pitch where it points up.

    Both are rough. For five portraits at 100 to 500 px, yaw stayed within 5 degrees of its mean (one: 8), pitch within
    10. Pitch is biased downwards: -12 on average for people who look into the camera.
    """
    camera = (_FIT @ (points - points.mean(axis=1, keepdims=True))).transpose(0, 2, 1)  # n 2 3
    u, _, vt = np.linalg.svd(camera, full_matrices=False)
    right, down = np.moveaxis(u @ vt, 1, 0)
    x, y, z = np.cross(right, down).T  # viewing direction in the head's own axes, which roll leaves unchanged
    yaw, pitch = np.degrees(np.arctan2(x, np.hypot(y, z))), np.degrees(np.arctan2(-y, z))
    return yaw.astype(np.float32), pitch.astype(np.float32)


BLURRED = 100.0  # variance of the Laplacian below which images are usually called blurred; its factor is 0.5
THUMBNAIL = 16  # px; blurred and reduced copies of a face differ little in it, and two photos of a person do
JPEG_QUALITY = 95  # 6 to 8 KB; embedded again, such a crop has a cosine of 0.998 with its face. At 85: 4 KB, 0.994

# For `contrast`: x, y, half the width and half the height in px of the aligned face, at the places of `TEMPLATE`.
EYES_AND_MOUTH = ((38, 52, 11, 6), (73, 52, 11, 6), (56, 92, 18, 8))
INSIDE = (56, 68, 36, 38)  # the face without hair and background
EYES = ((38, 52, 10, 10), (73, 52, 10, 10))  # with brows above, and with cheeks in the lower third
JAW = ((33, 84, 10, 10), (79, 84, 10, 10), (56, 104, 16, 7))  # skin beside and below the mouth
NOISE = 4.0  # levels, added to the contrast of the face
LIMIT = 0.3  # contrast of a covered face
# Least change of luma a px in the smoothest part of the jaw, as a share of the face's contrast, of a pattern. Least
# lightness of the cheeks over the eyes, as a share of their contrast: mirrors show a light sky over a dark ground.
# Chosen on 300 people of Labeled Faces in the Wild with drawn coverings, tried on 150 others (accuracy.md).
PATTERNED, MIRRORED = 0.25, -0.7


def face_qualities(
    scale: NDArray[np.float64], yaw: NDArray[np.float32], pitch: NDArray[np.float32], sharp: NDArray[np.float64]
) -> NDArray[np.float64]:
    """Return the reliability of embeddings (n, 0 to 1): size times frontalness times sharpness.

    Size is 1 if the crop is not enlarged, else the image's pixels for one of the crop. Frontalness is cos(yaw)
    cos(pitch), 0 from the profile on. Sharpness is v / (v + 100) with v the variance of the crop's Laplacian.
    """
    frontal = np.cos(np.radians(yaw)).clip(0) * np.cos(np.radians(pitch)).clip(0)
    return np.minimum(1, 1 / np.maximum(scale, 1e-9)) * frontal * sharp / (sharp + BLURRED)


def sharpness(face: Image) -> float:
    """Return the variance of the Laplacian of a crop's luma (Pech-Pacheco and others 2000), in codes squared."""
    return float(cv2.Laplacian(cv2.cvtColor(face, cv2.COLOR_RGB2GRAY), cv2.CV_64F).var())


def thumbnail(face: Image) -> NDArray[np.uint8]:
    """Return the luma of a crop in few pixels, `THUMBNAIL` squared."""
    luma = cv2.cvtColor(face, cv2.COLOR_RGB2GRAY)
    return np.asarray(cv2.resize(luma, (THUMBNAIL, THUMBNAIL), interpolation=cv2.INTER_AREA).ravel(), np.uint8)


def thumbnail_on_device(luma: torch.Tensor) -> torch.Tensor:
    """Return `thumbnail` of crops from their luma on a device (n 112 112), n 256 float32."""
    return torch.nn.functional.avg_pool2d(luma[:, None], SIDE // THUMBNAIL).flatten(1).round()


def luma_on_device(faces: torch.Tensor) -> torch.Tensor:
    """Return luma of crops on a device, n 112 112 float32, rounded as by OpenCV."""
    red, green, blue = faces.int().unbind(3)
    return ((red * 4899 + green * 9617 + blue * 1868 + (1 << 13)) >> 14).float()


def sharpness_on_device(luma: torch.Tensor) -> torch.Tensor:
    """Return `sharpness` of crops from their luma on a device (n 112 112), n float64."""
    ringed = torch.nn.functional.pad(luma[:, None], (1, 1, 1, 1), "reflect")[:, 0]
    across = ringed[:, 1:-1, :-2] + ringed[:, 1:-1, 2:]
    edges = (across + ringed[:, :-2, 1:-1] + ringed[:, 2:, 1:-1] - 4 * luma).flatten(1).double()
    return edges.var(dim=1, correction=0)


def contrast(face: Image) -> float:
    """Return the least contrast of eyes and mouth as a share of the face's (deviations of luma); 0: covered.

    A pattern on the jaw, or eyes that are lighter than the cheeks, lower it. By eyes and mouth 4 % of 1,282 photos of
    Labeled Faces in the Wild had less than 0.3. With drawn masks 99 % had, with drawn sunglasses 86 %, with hats to the
    brows 4 %.
    """
    return float(_measure_contrast(cv2.cvtColor(face, cv2.COLOR_RGB2GRAY)[None].astype(np.float64), np)[0])


def contrast_on_device(luma: torch.Tensor) -> torch.Tensor:
    """Return `contrast` of faces from their luma on a device (n 112 112), n float64."""
    measured: torch.Tensor = _measure_contrast(luma.double(), torch)
    return measured


def _measure_contrast(luma: Any, library: Any) -> Any:
    """Return `contrast` (n) from luma (n 112 112, float64) by a library, which is NumPy or torch.

    Maps of the whole face come first, since a GPU waits for launches, not for pixels.
    """
    squares = luma * luma
    rows = luma[:, :-2] + luma[:, 1:-1] + luma[:, 2:]
    soft = (rows[:, :, :-2] + rows[:, :, 1:-1] + rows[:, :, 2:]) / 9  # means of 3 by 3 px, which hide noise
    right, down = abs(soft[:, :, 2:] - soft[:, :, :-2]), abs(soft[:, 2:] - soft[:, :-2])
    spots = (*EYES_AND_MOUTH, INSIDE, *EYES)
    means, powers = (library.stack([_cut_spot(part, spot).mean((1, 2)) for spot in spots]) for part in (luma, squares))
    deviations = abs(powers - means**2) ** 0.5
    face, eyes = deviations[3] + NOISE, deviations[4:] + NOISE
    cheeks = library.stack([_cut_spot(luma, eye)[:, 14:].mean((1, 2)) for eye in EYES])  # the lower 6 of 20 lines
    lighter = (cheeks - means[4:]) * (20 / 14) / eyes  # than the upper 14
    changes = library.stack(
        [right[:, y - h : y + h - 2, x - w : x + w - 4].mean((1, 2)) for x, y, w, h in JAW]
        + [down[:, y - h : y + h - 4, x - w : x + w - 2].mean((1, 2)) for x, y, w, h in JAW]
    )
    jaw = library.amin((changes[:3] + changes[3:]) / 2, 0) / face
    others = [LIMIT * PATTERNED / (jaw + 1e-9), LIMIT + (lighter.mean(0) - MIRRORED) / 2]
    return library.amin(library.stack([library.amin(deviations[:3], 0) / face, *others]), 0).clip(min=0)


def _cut_spot(luma: Any, spot: tuple[int, int, int, int]) -> Any:
    x, y, wide, high = spot
    return luma[:, y - high : y + high, x - wide : x + wide]


def encode_jpeg(face: Image) -> bytes:
    """Return a crop as a JPEG file."""
    coded = cv2.imencode(".jpg", cv2.cvtColor(face, cv2.COLOR_RGB2BGR), [cv2.IMWRITE_JPEG_QUALITY, JPEG_QUALITY])[1]
    return bytes(coded)
