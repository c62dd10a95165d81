"""A small collection and pipelines of toy stages for the command line."""

from __future__ import annotations

import pytest

from tests.support.media.collections_factory import collection


@pytest.fixture
def small(tmp_path):
    return collection(tmp_path / "in", 6, 30, "zz.png")


@pytest.fixture
def pipeline(tmp_path):
    path = tmp_path / "pipeline.yaml"
    path.write_text("steps:\n  crc: {use: 'tests.toys:Checksum'}\n  count: {use: 'tests.toys:Count'}\n")
    return path


@pytest.fixture
def lacking(tmp_path):
    """Return a pipeline with a step that lacks its weights and a reader of it, for a machine without any weights."""
    path = tmp_path / "lacking.yaml"
    steps = {"crc": "Checksum", "seeded": "Seeded", "count": "Bytes"}
    path.write_text("steps:\n" + "".join(f"  {name}: {{use: 'tests.toys:{toy}'}}\n" for name, toy in steps.items()))
    return ["--pipeline", path], {"XDG_CACHE_HOME": str(tmp_path / "cache")}
