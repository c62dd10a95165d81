"""How well masks agree with the truth: J, their overlap, and F, that of their outlines.

Perazzi et al., "A Benchmark Dataset and Evaluation Methodology for Video Object Segmentation", CVPR 2016, section 5.1.

Shapes: masks h w bool, both of one size.
"""

from __future__ import annotations

import math

import cv2
import numpy as np

from stages.nets.masks import Mask

TOLERANCE = 0.008  # of the diagonal, rounded up to px: how far an outline may be off; the benchmark's own


def overlap(found: Mask, truth: Mask) -> float:
    """J: intersection over union, 0 to 1; 1 where both are empty."""
    union = int((found | truth).sum())
    return int((found & truth).sum()) / union if union else 1.0


def outline_score(found: Mask, truth: Mask, tolerance: float = TOLERANCE) -> float:
    """F: the harmonic mean of an outline's precision and recall, 0 to 1; 1 where both are empty.

    A pixel of one outline counts as found where the other has one within the tolerance, matched one-sidedly by dilation
    with a disc, as the benchmark's published code does instead of a bipartite matching.
    """
    radius = math.ceil(tolerance * math.hypot(*truth.shape))
    lines = [outline(mask) for mask in (found, truth)]
    if not all(line.any() for line in lines):
        return 1.0 if not any(line.any() for line in lines) else 0.0
    span = np.arange(-radius, radius + 1)
    disc = (span[:, None] ** 2 + span**2 <= radius**2).astype(np.uint8)
    near = [cv2.dilate(line.astype(np.uint8), disc).astype(bool) for line in lines]
    precision, recall = (float(lines[i][near[1 - i]].sum() / lines[i].sum()) for i in (0, 1))
    return 2 * precision * recall / (precision + recall) if precision + recall else 0.0


def outline(mask: Mask) -> Mask:
    """Pixels that differ from one to the right, below, or both: a line one pixel wide; the frame's edge is none."""
    grown = np.pad(mask, ((0, 1), (0, 1)), mode="edge")
    here = grown[:-1, :-1]
    return (here != grown[:-1, 1:]) | (here != grown[1:, :-1]) | (here != grown[1:, 1:])
