"""Objects before one background are alike from afar, and no copies of each other."""

from __future__ import annotations

import cv2
import numpy as np

from tests.stages.duplicates.test_duplicates import crop, find, jpeg, tiles


def before(back: np.ndarray, tile: np.ndarray) -> np.ndarray:
    """An oval part of a picture in the middle of a background of 360 by 480 px, as a product in a shop."""
    centre = np.zeros(back.shape[:2], np.float32)
    cv2.ellipse(centre, (240, 180), (125, 125), 0, 0, 360, 1, -1)
    mask = cv2.GaussianBlur(centre, (0, 0), 1.5)[..., None]
    whole = np.zeros_like(back)
    whole[55:305, 115:365] = cv2.resize(tile, (250, 250), interpolation=cv2.INTER_AREA)
    return jpeg((back * (1 - mask) + whole * mask).astype(np.uint8), 90)


def test_objects_before_one_background_are_no_copies_of_each_other():
    white = np.full((360, 480, 3), 240, np.uint8)
    shade = np.repeat(np.linspace(250, 120, 360), 480 * 3).reshape(360, 480, 3).astype(np.uint8)
    shown = [*tiles()[:4], *tiles()[8:]]  # without the flower, of which one half mirrors the other
    for back in (white, shade):
        objects = {f"{number}": before(back, tile) for number, tile in enumerate(shown)}
        copies = {f"{name} cut": crop(image, 0.04, 0.05, 0.93) for name, image in objects.items()}
        found = {frozenset(pair["media_id"].split()[0] for pair in group) for group in grouped(find(objects | copies))}
        assert found == {frozenset({name}) for name in objects}, "each crop is with its own object"


def grouped(rows: list[dict]) -> list[list[dict]]:
    return [[row for row in rows if row["group"] == group] for group in {row["group"] for row in rows}]
