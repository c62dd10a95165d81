"""What tests of poses share: the networks' files where they are at hand."""

from __future__ import annotations

import pyarrow as pa
import pytest

from framekiln.contract.columns import pack
from framekiln.contract.errors import WeightsError
from framekiln.weights.resolver import resolve
from tests.support.media.material import ROOT, weights


def model_file(name):
    """The file of a lock entry, or a skipped test."""
    if name == "pose_landmarker_lite_zipped":
        return weights("pose_landmarker_lite.task")
    try:
        return resolve([name], weights_dir=ROOT / "weights" if (ROOT / "weights").is_dir() else None)[name]
    except WeightsError as error:
        pytest.skip(str(error))


def clip(stage, images, fps=None):
    """The rows of a clip for `Pose`; without `fps` their times are unknown, as a photo's is."""
    times = [None if fps is None else i / fps for i in range(len(images))]
    return pa.table({stage.pixels: pack(list(images)), "time_s": pa.array(times, pa.float64())})
