"""Stand-in for a detector without weights, so that the rest of the stage can be timed.

A detector with random weights finds nothing, or thousands of boxes of noise. The stand-in therefore returns the same
four faces for every image, upright, with sides of an eighth of its short side. Such a benchmark includes no detection.
"""

import numpy as np

from framekiln_stages.faces.alignment import SIDE, TEMPLATE
from framekiln_stages.nets.faces.detections import FaceDetections, Image

FACES = 4
SHARE = 0.125  # of the short side: 160 px of `frame_1280`, a person in front of the camera
_SEED = 0


class DummyDetector:
    """A detector with the same faces for every image.

    Args:
        max_faces: of one image.
    """

    def __init__(self, *, max_faces: int) -> None:
        rng = np.random.default_rng(_SEED)
        self._starts = rng.uniform(0, 1, (FACES, 2))  # shares of the range of a box's corner
        self._offsets = rng.normal(0, 0.01, (FACES, *TEMPLATE.shape))  # so that no two crops are equal
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
