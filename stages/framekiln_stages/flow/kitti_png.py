"""Flow fields as KITTI's 16-bit PNGs, the format of optical-flow benchmarks."""

import cv2
import numpy as np

from framekiln_stages.flow.motion import Field

SCALE, ZERO = 64.0, 32768.0  # KITTI 2015 development kit: u = (value - 2^15) / 64


def encode(flow: Field) -> bytes:
    """Return a flow field as a KITTI 16-bit PNG: red x, green y, both in 1/64 px around 2^15; blue 1 where valid.

    Rounding errs by at most 1/128 px. Displacements above 511 px or not finite are marked invalid.
    """
    valid = np.all(np.abs(flow) <= 511, axis=-1, keepdims=True)
    steps = np.where(valid, flow, 0) * SCALE + ZERO
    x, y = cv2.split(np.rint(steps).astype(np.uint16))
    channels = cv2.merge([valid.astype(np.uint16), y, x])
    return cv2.imencode(".png", channels, [cv2.IMWRITE_PNG_COMPRESSION, 1])[1].tobytes()


def decode(data: bytes) -> Field:
    """Return the flow field of a KITTI 16-bit PNG; NaN where it is marked invalid.

    Raises:
        ValueError: not a PNG of 16 bits and three channels.
    """
    image = cv2.imdecode(np.frombuffer(data, np.uint8), cv2.IMREAD_UNCHANGED) if data else None
    if image is None or image.dtype != np.uint16 or image.ndim != 3:
        raise ValueError("not a KITTI flow field: a PNG of 16 bits and three channels is needed")
    flow = (image[..., 2:0:-1].astype(np.float32) - np.float32(ZERO)) / np.float32(SCALE)
    flow[image[..., 0] == 0] = np.nan
    return flow
