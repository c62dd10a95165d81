"""Drawings of masks and boxes for the report, in shares of width and height, with few corners to keep pages small."""

from collections.abc import Mapping

import cv2
import numpy as np

from framekiln.contract import Area, Label
from framekiln_stages.shared.masks import Segmentation, decode

COARSE = 200  # outlines keep to the mask's edge within this part of its longer side


def mask_area(segmentation: Segmentation, colour: int) -> Area:
    """Draw a mask with its holes; outlines are off by up to 1/200 of its longer side."""
    mask = decode(segmentation)
    height, width = mask.shape
    rings = []
    for contour in cv2.findContours(mask.astype(np.uint8), cv2.RETR_CCOMP, cv2.CHAIN_APPROX_SIMPLE)[0]:
        corners = cv2.approxPolyDP(contour, max(height, width) / COARSE, True)[:, 0] + 0.5
        rings.append([(x, y) for x, y in (corners / (width, height)).tolist()])
    return Area(rings=rings, colour=colour)


def box_edges(box: Mapping[str, float]) -> list[tuple[float, float, float, float]]:
    """Draw the four sides of a box, as `Drawing.lines`."""
    x0, y0, x1, y1 = (box[side] for side in ("x0", "y0", "x1", "y1"))
    return [(x0, y0, x1, y0), (x1, y0, x1, y1), (x1, y1, x0, y1), (x0, y1, x0, y0)]


def box_label(box: Mapping[str, float], text: str) -> Label:
    """Place text in the upper left corner of a box."""
    return Label(x=max(0.0, box["x0"]), y=max(0.0, box["y0"]), text=text)
