"""A small output that a test may read, made once."""

from __future__ import annotations

import pytest

import framekiln
from tests.support.media.collections_factory import collection
from tests.support.runs.serial_engine import without_ray
from tests.toys.functions import brightness


@pytest.fixture(scope="session")
def media(tmp_path_factory):
    """Six photos, a clip of 30 frames, and a file that is no media."""
    return collection(tmp_path_factory.mktemp("media") / "in", 6, 30, "zz.png")


@pytest.fixture(scope="session")
def made(media, tmp_path_factory):
    """The output of two steps and a table; for reading only."""
    steps = {"crc": {"use": "tests.toys:Checksum"}, "count": {"use": "tests.toys:Count"}}
    out = tmp_path_factory.mktemp("made") / "out"
    with without_ray():
        return framekiln.run(media, out, pipeline={"steps": steps}, stages=["crc", "count", brightness])
