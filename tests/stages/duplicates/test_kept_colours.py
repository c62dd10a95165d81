"""A coloured picture is kept before its grey copy, whatever is sharper or better named in it."""

from __future__ import annotations

import cv2
import numpy as np
import pytest

from framekiln_stages.duplicates.best import COLOURED, ONE_TONE
from framekiln_stages.duplicates.fingerprint import measure_colours
from tests.stages.duplicates.test_duplicates import find, jpeg, resize
from tests.support.media.photos import PHOTOS, photo

COLOUR = photo("china.jpg")
GREY = cv2.cvtColor(cv2.cvtColor(COLOUR, cv2.COLOR_RGB2GRAY), cv2.COLOR_GRAY2RGB)
SEPIA = (GREY * np.array([1.0, 0.9, 0.75])).astype(np.uint8)


def kept(images, **figures):
    (best,) = (row for row in find(images, **figures) if row["keep"])
    return best["media_id"], best["reason"]


@pytest.mark.parametrize("copy", [GREY, SEPIA, jpeg(GREY, 60)], ids=["grey", "sepia", "encoded"])
def test_a_copy_without_its_colours_gives_way(copy):
    assert kept({"a": copy, "longer": COLOUR}) == ("longer", "coloured")
    assert kept({"a": copy, "longer": COLOUR}, sharpness=[450, 400], noise=[0.5, 3.0]) == ("longer", "coloured")


def test_colours_are_no_reason_for_less_detail():
    assert kept({"a": resize(COLOUR, 0.5, 0.5), "grey": GREY}, sharpness=[180, 400]) == ("grey", "sharper")
    assert kept({"a": jpeg(COLOUR, 10), "grey": GREY}, blockiness=[3.0, 0.1]) == ("grey", "cleaner")


def test_of_pictures_of_one_tone_neither_is_the_coloured_one():
    assert kept({"a": GREY, "longer": SEPIA}, sharpness=[500, 400]) == ("a", "sharper")
    assert kept({"a": SEPIA, "longer": GREY}, sharpness=[500, 400]) == ("a", "sharper")


@pytest.mark.parametrize("name", PHOTOS)
@pytest.mark.parametrize("quality", [60, 95])
def test_one_tone_and_colours_are_far_apart(name, quality):
    grey = cv2.cvtColor(cv2.cvtColor(photo(name), cv2.COLOR_RGB2GRAY), cv2.COLOR_GRAY2RGB)
    toned = (grey * np.array([1.0, 0.9, 0.75])).astype(np.uint8)
    one_tone = [measure_colours(jpeg(image, quality)) for image in (grey, toned)]
    assert max(one_tone) < ONE_TONE < COLOURED < measure_colours(jpeg(photo(name), quality))
