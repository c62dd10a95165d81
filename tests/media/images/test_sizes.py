"""Each size of a photo has the means of its pixels, independently of other requested sizes."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from PIL import Image as Pil

from framekiln.contract.columns import reduction
from tests.support.media.media_factory import encoded
from tests.support.media.photo_factory import exif, save, scene, single_row
from tests.support.media.photos import PHOTOS, photo_file

PIXELS = ("frame", "frame_16", "frame_64", "frame_224")


@pytest.mark.parametrize("kind", ["JPEG", "PNG", "WEBP", "CMYK"])
@pytest.mark.parametrize("column", PIXELS)
def test_a_column_does_not_depend_on_the_others(tmp_path: Path, kind: str, column: str) -> None:
    image = Pil.fromarray(scene())
    data = encoded(image.convert("CMYK"), "JPEG") if kind == "CMYK" else encoded(image, kind, exif=exif(6))
    path = save(tmp_path, data)
    alone, together = single_row(path, (column,)), single_row(path, PIXELS)
    assert np.array_equal(alone[column], together[column])
    factor = reduction(453, 301, None if column == "frame" else int(column[6:]))
    assert sorted(alone[column].shape[:2]) == [-(-301 // factor), -(-453 // factor)]


@pytest.mark.parametrize("factor", [2, 4, 8])
@pytest.mark.parametrize("kind", ["JPEG", "PNG"])
def test_reductions_are_means_of_squares(tmp_path: Path, kind: str, factor: int) -> None:
    """PNG is exact up to the rounding of each halving; JPEG, scaled by DCT, is within 1.5 levels on average."""
    path = save(tmp_path, encoded(Pil.fromarray(scene()), kind, **({"quality": 95} if kind == "JPEG" else {})))
    name = f"frame_{-(-301 // factor)}"
    row = single_row(path, ("frame", name))
    padded = np.pad(row["frame"], ((0, -301 % factor), (0, -453 % factor), (0, 0)), mode="edge").astype(float)
    means = padded.reshape(padded.shape[0] // factor, factor, padded.shape[1] // factor, factor, 3).mean((1, 3))
    assert row[name].shape == means.shape
    difference = np.abs(row[name] - means)
    assert difference.mean() < (1.5 if kind == "JPEG" else 0.8)
    assert kind == "JPEG" or difference.max() <= 1.5


@pytest.mark.parametrize("name", PHOTOS)
def test_reductions_of_real_photos_are_close_to_means(name: str) -> None:
    row = single_row(photo_file(name), ("frame", "frame_224"))
    factor = reduction(row["height"], row["width"], 224)
    height, width = (side // factor * factor for side in row["frame"].shape[:2])
    means = row["frame"][:height, :width].reshape(height // factor, factor, width // factor, factor, 3).mean((1, 3))
    difference = np.abs(row["frame_224"][: height // factor, : width // factor] - means)
    assert difference.mean() < 1.5


def test_fast_mode_shrinks_the_photo_itself(tmp_path: Path) -> None:
    path = save(tmp_path, encoded(Pil.fromarray(scene(1500, 2000)), "JPEG"))
    row = single_row(path, ("frame", "frame_224", "frame_600"), fast_mode=True)
    assert row["frame"].shape == (375, 500, 3)
    assert (row["height"], row["width"]) == (375, 500)
    assert row["frame_600"].shape == row["frame"].shape  # nothing is larger than `frame`
    assert np.array_equal(row["frame"], single_row(path, ("frame_360",))["frame_360"])
    assert row["frame_224"].shape == (375, 500, 3)
    assert (single_row(path)["height"], single_row(path)["width"]) == (1500, 2000)
