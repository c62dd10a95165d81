"""Mouth: lips lie where a real face has them, and depend on the picture alone."""

from __future__ import annotations

from functools import cache

import cv2
import numpy as np
import pyarrow as pa
import pytest

from framekiln.contract.columns import pack
from framekiln.contract.placement import Placement
from framekiln_stages.mouth.stage import SHAPES, Mouth
from tests.support.machine.command_line import script
from tests.support.media.photos import photo, photo_file, take
from tests.support.stages.pose_factory import model_file

PORTRAIT = photo("grace_hopper.jpg")
BUNDLED = "face_landmarker_bundled"


@cache
def mouth() -> Mouth:
    stage = Mouth(Mouth.Config(model=BUNDLED))
    stage.setup({BUNDLED: model_file(BUNDLED)}, Placement())
    return stage


def mouths_of(*images: np.ndarray) -> list[list[dict]]:
    return mouth()(pa.table({"frame_512": pack(list(images))}))["mouths"].to_pylist()


def test_lips_lie_in_the_lower_half_of_the_face_and_a_flower_has_none():
    (found,), none = mouths_of(PORTRAIT, photo("flower.jpg"))
    assert none == []
    box, lips = found["box"], np.array([(point["x"], point["y"]) for point in found["lips"]])
    assert ((lips > [box["x0"], (box["y0"] + box["y1"]) / 2]) & (lips < [box["x1"], box["y1"]])).all()
    assert found["opening"] == pytest.approx(0, abs=0.05) and 0.3 < found["width"] < 0.9  # his mouth is closed
    assert [found[shape] for shape in SHAPES] == [None] * len(SHAPES)  # the bundle from a wheel has no blendshapes
    drawing = mouth().draw({"mouths": [found]})
    assert len(drawing.lines) == len(lips)
    assert mouth().draw({"mouths": []}) is None


def test_a_film_without_a_face_has_none():
    assert mouths_of(*take("china.jpg", 12, 384, 512), *take("flower.jpg", 12, 384, 512)) == [[]] * 24


def test_size_and_mirror_change_little():
    half = cv2.resize(PORTRAIT, None, fx=0.5, fy=0.5, interpolation=cv2.INTER_AREA)
    (one,), (half,), (mirrored,) = mouths_of(PORTRAIT, half, PORTRAIT[:, ::-1])
    for other in (half, mirrored):
        assert other["opening"] == pytest.approx(one["opening"], abs=0.04)
        assert other["width"] == pytest.approx(one["width"], abs=0.05)


def test_the_larger_face_comes_first():
    small = cv2.copyMakeBorder(PORTRAIT[::2, ::2], 0, len(PORTRAIT) // 2, 0, 0, cv2.BORDER_CONSTANT)
    (found,) = mouths_of(np.hstack([small, PORTRAIT]))
    areas = [(m["box"]["x1"] - m["box"]["x0"]) * (m["box"]["y1"] - m["box"]["y0"]) for m in found]
    assert len(areas) == 2
    assert areas == sorted(areas, reverse=True)


SCRIPT = """
import sys, cv2, pyarrow as pa
from pathlib import Path
from framekiln.contract.columns import pack
from framekiln.contract.placement import Placement
from framekiln_stages.mouth import Mouth
stage = Mouth(Mouth.Config(model="face_landmarker_bundled"))
stage.setup({stage.config.model: Path(sys.argv[1])}, Placement())
print(len(stage(pa.table({stage.pixels: pack([cv2.imread(sys.argv[2])[:, :, ::-1]])}))["mouths"][0]))
"""


def test_a_process_is_quiet_and_ends_well():
    done = script(SCRIPT, model_file(BUNDLED), photo_file("grace_hopper.jpg"))
    assert (done.returncode, done.stdout, done.stderr) == (0, "1\n", "")
