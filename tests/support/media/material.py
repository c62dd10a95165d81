"""Real media with ground truth and small networks, for tests that need exactly these.

They are read in place: from the folder that FRAMEKILN_TEST_MATERIAL names, from `shared/` beside the checkout, or from
where `make test-material` puts them. Tests skip where a file is missing. A test that needs any photo, clip or sound
takes it from `tests.support.media.photos` instead.
"""

from __future__ import annotations

import os
from pathlib import Path

import cv2
import numpy as np
import pytest
from platformdirs import user_cache_path

LOCKFILE = Path(__file__).resolve().parents[2] / "material.yaml"
DOWNLOADS = user_cache_path("framekiln") / "test-material"


def _root() -> Path:
    if named := os.environ.get("FRAMEKILN_TEST_MATERIAL"):
        return Path(named)
    beside = Path(__file__).resolve().parents[4] / "shared"
    return beside if (beside / "media").is_dir() else DOWNLOADS


ROOT = _root()


def media(name: str) -> Path:
    """A file or folder of the test media."""
    return _existing("media", name)


def picture(name: str) -> np.ndarray:
    """A photo of the test media in RGB."""
    return cv2.cvtColor(cv2.imread(str(media(name))), cv2.COLOR_BGR2RGB)


def weights(name: str) -> Path:
    """A file of real weights."""
    return _existing("weights", name)


def where_present(name: str, value: str) -> list[object]:
    """A heavy parameter of a test if a file of real weights is here, else none; other parameters need no file."""
    return [pytest.param(value, marks=pytest.mark.heavy)] if (ROOT / "weights" / name).exists() else []


def _existing(kind: str, name: str) -> Path:
    path = ROOT / kind / name
    if not path.exists():
        pytest.skip(f"test material {kind}/{name} is missing; `make test-material` downloads it")
    return path
