"""Stand-ins for the masks of a network without weights, so that later steps have work.

With random weights hardly any mask of the grid passes the thresholds, and then steps that read masks do nothing.
"""

import numpy as np
from numpy.typing import NDArray

# Ellipses: middle and radii in shares of the view's width and height. Together they cover a quarter of it, one by one 1
# to 9 %, and none touches another or the edge.
SHAPES = (
    (0.25, 0.35, 0.15, 0.20),
    (0.70, 0.30, 0.12, 0.18),
    (0.60, 0.75, 0.20, 0.12),
    (0.15, 0.80, 0.08, 0.08),
    (0.90, 0.60, 0.06, 0.06),
    (0.45, 0.10, 0.10, 0.05),
)
SCORE = 0.9  # predicted IoU; above each threshold that ships
STEEPNESS = 200.0  # of logits: the outline moves by less than a cell between the thresholds of stability


def dummy_logits(side: int) -> NDArray[np.float32]:
    """Return logits of made masks on a square grid (n side side), above 0 inside."""
    centres = (np.arange(side, dtype=np.float32) + 0.5) / side
    x, y = centres[None, None, :], centres[None, :, None]
    shapes = np.array(SHAPES, np.float32).T[:, :, None, None]
    radius = np.hypot((x - shapes[0]) / shapes[2], (y - shapes[1]) / shapes[3])
    return (STEEPNESS * (1 - radius)).astype(np.float32)
