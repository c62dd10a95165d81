"""J and F of known masks follow their definitions; folders are read in the layouts of DAVIS and SA-V."""

from __future__ import annotations

import math

import cv2
import numpy as np
import pytest
from PIL import Image
from scipy.ndimage import distance_transform_edt

from framekiln.device import Meter
from framekiln.lab.sav.layout import annotated_videos
from framekiln.lab.sav.masks import contour_accuracy, outline, region_similarity
from framekiln.lab.sav.measure import ObjectBench


def disc(radius: float, x: float = 100, y: float = 100, side: int = 200) -> np.ndarray:
    rows, columns = np.mgrid[:side, :side]
    return (rows - y) ** 2 + (columns - x) ** 2 <= radius**2


def test_the_overlap_of_known_rectangles():
    one, other = np.zeros((2, 60, 80), bool)
    one[10:30, 10:50] = True
    other[10:30, 20:60] = True
    assert region_similarity(one, other) == pytest.approx(30 / 50)
    assert region_similarity(one, one) == region_similarity(one & False, one & False) == 1
    assert region_similarity(one, one & False) == 0


@pytest.mark.parametrize(("shift", "want"), [(0, 1.0), (2, 1.0), (3, 1.0), (60, None)])
def test_outlines_within_the_tolerance_match(shift, want):
    # the tolerance of a frame of 200 by 200 is ceil(0.008 * 282.8) = 3 px
    score = contour_accuracy(disc(50, 100 + shift), disc(50))
    assert score == want if want is not None else score < 0.2


@pytest.mark.parametrize(("a", "b"), [(disc(50), disc(56)), (disc(60, 95), disc(55, 103)), (disc(30), ~disc(38))])
def test_f_equals_that_by_distances(a, b):
    """By a distance transform: a pixel matches if the other outline's nearest is within the tolerance."""
    radius = math.ceil(0.008 * math.hypot(200, 200))
    lines = [outline(mask) for mask in (a, b)]
    far = [distance_transform_edt(~line) for line in lines]
    precision, recall = (far[1][lines[0]] <= radius).mean(), (far[0][lines[1]] <= radius).mean()
    want = 2 * precision * recall / (precision + recall) if precision + recall else 0.0
    assert contour_accuracy(a, b) == pytest.approx(want)


def test_an_empty_outline_matches_only_an_empty_one():
    none = np.zeros((200, 200), bool)
    assert contour_accuracy(none, none) == 1
    assert contour_accuracy(none, disc(50)) == contour_accuracy(disc(50), none) == 0


def test_an_outline_is_one_pixel_wide_and_closed():
    line = outline(disc(50))
    assert cv2.connectedComponents(line.astype(np.uint8))[0] == 2
    assert abs(line.sum() - 2 * math.pi * 50) < 0.35 * 2 * math.pi * 50
    assert not outline(np.ones((9, 9), bool)).any()


class Copies:
    """A tracker that returns each prompted mask unchanged."""

    def reset(self):
        self._masks = []

    def add(self, mask):
        self._masks.append(mask)

    def track(self, image):
        import torch

        low = [cv2.resize(mask.astype(np.float32), (256, 256), interpolation=cv2.INTER_AREA) for mask in self._masks]
        return torch.from_numpy(np.stack(low)) - 0.5, None


@pytest.mark.parametrize("layout", ["davis", "sav"])
def test_folders_of_davis_and_sa_v_are_read(tmp_path, layout):
    """Object 1 stands still, object 2 appears in the second frame and then moves by 10 px a frame."""
    names = ("JPEGImages/480p/walk", "Annotations/480p/walk") if layout == "davis" else ("JPEGImages_24fps/walk",) * 2
    images, notes = tmp_path / names[0], tmp_path / names[1].replace("JPEGImages", "Annotations")
    notes = notes if layout == "davis" else tmp_path / "Annotations_6fps/walk"
    images.mkdir(parents=True)
    notes.mkdir(parents=True)
    for i in range(7):
        cv2.imwrite(str(images / f"{i:05}.jpg"), np.full((200, 200, 3), 90, np.uint8))
        objects = {1: disc(30, 50, 50), **({2: disc(30, 100 + 10 * i, 140)} if i else {})}
        if layout == "davis":
            picture = Image.fromarray(sum(mask.astype(np.uint8) * n for n, mask in objects.items()), mode="P")
            picture.putpalette(list(range(256)) * 3)
            picture.save(notes / f"{i:05}.png")
        elif i % 2 == 1 or i == 0:
            for n, mask in objects.items():
                (notes / f"{n:03}").mkdir(exist_ok=True)
                Image.fromarray(mask.astype(np.uint8) * 255).save(notes / f"{n:03}" / f"{i:05}.png")
    (video,) = annotated_videos(tmp_path)
    bench = ObjectBench(tracker=Copies(), device="cpu", meter=Meter("cpu"), prompt="mask")
    still, moving = (bench.run(video, name) for name in video.objects)
    counted = (1, 2, 3, 4, 5) if layout == "davis" else (3,)  # DAVIS counts the prompt's frame of a late object
    assert (still.scored_frames, moving.scored_frames) == ((5, 5) if layout == "davis" else (2, 1))
    assert still.j > 0.95 and still.f == pytest.approx(1)
    want = [region_similarity(disc(30, 110, 140), disc(30, 100 + 10 * i, 140)) for i in counted]
    assert moving.j == pytest.approx(np.mean(want), abs=0.04)
