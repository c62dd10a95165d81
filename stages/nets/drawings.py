"""Masks and boxes as a report draws them: in shares of width and height, with few corners, so that a page is small."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import cv2
import numpy as np

from pipeline.stage import Area, Label
from stages.nets.masks import decode

COARSE = 200  # a corner is left out where the outline stays within this part of the mask's longer side


def area_of(segmentation: Mapping[str, Any], colour: int) -> Area:
    """A mask, a value of `stages.nets.masks.SEGMENTATION`, with its holes; outlines are off by up to 1/200 of it."""
    mask = decode(segmentation)
    height, width = mask.shape
    rings = []
    for contour in cv2.findContours(mask.astype(np.uint8), cv2.RETR_CCOMP, cv2.CHAIN_APPROX_SIMPLE)[0]:
        corners = cv2.approxPolyDP(contour, max(height, width) / COARSE, True)[:, 0] + 0.5
        rings.append([(x, y) for x, y in (corners / (width, height)).tolist()])
    return Area(rings=rings, colour=colour)


def label_of(box: Mapping[str, float], text: str) -> Label:
    """Words in the upper left corner of a box, x0 y0 x1 y1 in shares."""
    return Label(x=max(0.0, box["x0"]), y=max(0.0, box["y0"]), text=text)
