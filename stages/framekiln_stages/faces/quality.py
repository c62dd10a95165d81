"""Quality of aligned face crops, and the JPEG files that are kept of them.

Shapes: n faces; a crop is uint8 112 112 3 RGB.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import cv2
import numpy as np
from numpy.typing import NDArray

from framekiln.contract.columns import Image

if TYPE_CHECKING:
    import torch

BLURRED = 100.0  # variance of the Laplacian below which an image is customarily called blurred; its factor is 0.5
JPEG_QUALITY = 95  # 6 to 8 KB; embedded again, such a crop has a cosine of 0.998 with its face. At 85, 4 KB and 0.994


def face_qualities(
    scale: NDArray[np.float64], yaw: NDArray[np.float32], pitch: NDArray[np.float32], sharp: NDArray[np.float64]
) -> NDArray[np.float64]:
    """Return the reliability of embeddings (n, 0 to 1): size times frontalness times sharpness.

    Size is 1 where the crop is not enlarged, else the image's pixels for one of the crop. Frontalness is cos(yaw)
    cos(pitch), 0 from the profile on. Sharpness is v / (v + 100), v the variance of the Laplacian of the crop.
    """
    frontal = np.cos(np.radians(yaw)).clip(0) * np.cos(np.radians(pitch)).clip(0)
    return np.minimum(1, 1 / np.maximum(scale, 1e-9)) * frontal * sharp / (sharp + BLURRED)


def sharpness(face: Image) -> float:
    """Return the variance of the Laplacian of a crop's luma (Pech-Pacheco and others 2000), in codes squared."""
    return float(cv2.Laplacian(cv2.cvtColor(face, cv2.COLOR_RGB2GRAY), cv2.CV_64F).var())


def sharpness_on_device(faces: torch.Tensor) -> torch.Tensor:
    """Return `sharpness` of crops on a device, n float64; luma is rounded as by OpenCV."""
    from torch.nn.functional import pad

    red, green, blue = faces.int().unbind(3)
    luma = ((red * 4899 + green * 9617 + blue * 1868 + (1 << 13)) >> 14).float()
    ringed = pad(luma[:, None], (1, 1, 1, 1), "reflect")[:, 0]
    across = ringed[:, 1:-1, :-2] + ringed[:, 1:-1, 2:]
    edges = (across + ringed[:, :-2, 1:-1] + ringed[:, 2:, 1:-1] - 4 * luma).flatten(1).double()
    return edges.var(dim=1, correction=0)


def encode_jpeg(face: Image) -> bytes:
    """Return a crop as a JPEG file."""
    coded = cv2.imencode(".jpg", cv2.cvtColor(face, cv2.COLOR_RGB2BGR), [cv2.IMWRITE_JPEG_QUALITY, JPEG_QUALITY])[1]
    return bytes(coded)
