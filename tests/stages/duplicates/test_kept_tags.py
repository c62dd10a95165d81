"""A camera's own photo is kept before what a program made of it, whatever reads as sharper in the copy."""

from __future__ import annotations

import numpy as np
import pytest

from tests.stages.duplicates.test_duplicates import find, jpeg, resize, sign
from tests.support.media.photos import photo

LATER = np.datetime64("2026-03-04T05:06:00", "us")
OWN = photo("china.jpg")
SIGNED = sign(OWN)
BRIGHT = np.minimum(OWN * 1.4, 255).astype(np.uint8)


def kept(images, edited=None, **figures):
    """Return the kept one and the reason. Those called `own` and `edited` have a camera's tags."""
    has = [name.startswith("own") or name == edited for name in images]
    tags = {
        "camera_model": ["X100" if value else None for value in has],
        "taken_at": [LATER - np.timedelta64(1, "D") if value else None for value in has],
        "edited_at": [LATER if name == edited else None for name in images],
    }
    (best,) = (row for row in find(images, **tags, **figures) if row["keep"])
    return best["media_id"], best["reason"]


@pytest.mark.parametrize("copy", [SIGNED, BRIGHT, resize(SIGNED, 0.7, 0.7)], ids=["signed", "bright", "reduced"])
@pytest.mark.parametrize("edited", [None, "a"])
def test_text_or_contrast_that_reads_as_sharper_is_not_kept(copy, edited):
    assert kept({"a": copy, "own": OWN}, edited, sharpness=[400, 170]) == ("own", "tags")
    every = {"a": copy, "b": resize(OWN, 0.4, 0.4), "own": OWN}  # the third has another size
    assert kept(every, edited, sharpness=[400, 60, 170]) == ("own", "sharper")


def test_a_sharper_copy_that_looks_the_same_is_kept_if_no_program_is_known_to_have_changed_it():
    images = {"a": OWN, "own": jpeg(OWN, 40)}
    assert kept(images, sharpness=[400, 320]) == ("a", "sharper")
    assert kept(images, "a", sharpness=[400, 320]) == ("own", "tags")  # sharpened
    assert kept(images, "a", sharpness=[400, 320], blockiness=[0.1, 2.0]) == ("a", "sharper")  # the other lost detail


def test_a_larger_copy_is_kept_for_its_detail_without_tags_and_signed():
    images = {"a": OWN, "own": resize(OWN, 0.5, 0.5)}
    assert kept(images, sharpness=[400, 210]) == ("a", "sharper")
    assert kept({**images, "a": SIGNED}, sharpness=[400, 210]) == ("a", "sharper")
    assert kept(images, sharpness=[230, 210], noise=[1.0, 5.0]) == ("own", "original")  # it was enlarged


def test_copies_that_all_were_changed_are_chosen_by_detail():
    assert kept({"a": SIGNED, "b": OWN}, "b", sharpness=[400, 300]) == ("a", "sharper")
