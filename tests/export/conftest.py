"""One made output for all formats; for reading only."""

from __future__ import annotations

import pillow_heif
import pytest

import framekiln
from tests.support.runs.export_factory import write_output

pillow_heif.register_heif_opener()  # for photos that tests write


@pytest.fixture(scope="session")
def out(tmp_path_factory):
    """Two photos and a film with faces, people, masks, tracks and identities."""
    folder = tmp_path_factory.mktemp("export")
    return framekiln.open(write_output(folder / "out", folder / "media"))
