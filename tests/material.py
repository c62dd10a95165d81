"""Real media with ground truth, read in place where it lies beside the checkout.

Tests that need it skip, and say so, where it does not.
"""

from __future__ import annotations

import os
from pathlib import Path

import cv2
import numpy as np
import pytest

ROOT = Path(os.environ.get("FRAMEMILL_TEST_MATERIAL", Path(__file__).resolve().parents[2] / "shared"))


def media(name: str) -> Path:
    """A file or folder of the test media."""
    return _find("media", name)


def picture(name: str) -> np.ndarray:
    """A photo of the test media in RGB."""
    return cv2.cvtColor(cv2.imread(str(media(name))), cv2.COLOR_BGR2RGB)


def weights(name: str) -> Path:
    """A file of real weights."""
    return _find("weights", name)


def _find(kind: str, name: str) -> Path:
    path = ROOT / kind / name
    if not path.exists():
        pytest.skip(
            f"test material {kind}/{name} is not beside this checkout (FRAMEMILL_TEST_MATERIAL names its folder)"
        )
    return path
