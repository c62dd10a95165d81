"""Mouth: lips lie where a real face has them, and depend on the picture alone."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import cv2
import numpy as np
import pyarrow as pa
import pytest

from pipeline.contract.columns import pack
from pipeline.contract.placement import Placement
from samples.make import photos
from stages.mouth.stage import SHAPES, Mouth
from stages.nets.mediapipe.facemesh import FaceMesh
from tests.support.material import media, picture, weights
from tests.support.pose_factory import model_file
from tests.support.sync_factory import decoded, mouth


def mouths_of(*images: np.ndarray) -> list[list[dict]]:
    return mouth()(pa.table({"frame_512": pack(list(images))}))["mouths"].to_pylist()


def test_lips_lie_in_the_lower_half_of_the_face_and_a_cat_has_none():
    image = picture("faces/single/grace_hopper.bmp")
    (found,), none = mouths_of(image, picture("categories/cat.bmp"))
    assert none == []
    box, lips = found["box"], np.array([(point["x"], point["y"]) for point in found["lips"]])
    assert ((lips > [box["x0"], (box["y0"] + box["y1"]) / 2]) & (lips < [box["x1"], box["y1"]])).all()
    assert 0.3 < found["width"] < 0.9
    drawing = mouth().draw({"mouths": [found]})
    assert len(drawing.lines) == len(lips)
    assert mouth().draw({"mouths": []}) is None


def test_a_film_without_a_face_has_none():
    rows = decoded(media("av/nasa_13013.mp4")).slice(0, 60)
    found = mouth()(rows.select(["frame_512"]))
    assert pa.compute.sum(pa.compute.list_value_length(found["mouths"])).as_py() == 0


def test_size_and_mirror_change_little():
    image = picture("faces/single/astronaut.png")
    (one,), (half,), (mirrored,) = mouths_of(image, image[::2, ::2], image[:, ::-1])
    for other in (half, mirrored):
        assert other["opening"] == pytest.approx(one["opening"], abs=0.04)
        assert other["width"] == pytest.approx(one["width"], abs=0.05)


def test_batches_change_nothing_and_the_larger_face_comes_first():
    image = picture("faces/single/astronaut.png")
    small = cv2.copyMakeBorder(image[::2, ::2], 0, image.shape[0] - -(-image.shape[0] // 2), 0, 0, cv2.BORDER_CONSTANT)
    both = np.ascontiguousarray(np.hstack([small, image]))
    together = mouths_of(image, both, image)
    assert together == [*mouths_of(image), *mouths_of(both), *mouths_of(image)]
    assert together[0] == together[2]
    areas = [(m["box"]["x1"] - m["box"]["x0"]) * (m["box"]["y1"] - m["box"]["y0"]) for m in together[1]]
    assert areas == sorted(areas, reverse=True)


# Set-up


def test_a_file_that_mediapipe_refuses_is_named(tmp_path):
    path = tmp_path / "junk.task"
    path.write_bytes(b"no zip at all")
    with pytest.raises(RuntimeError, match=r"junk\.task"):
        FaceMesh(path, count=1, min_detection=0.5, min_presence=0.5)


SCRIPT = """
import sys, cv2, pyarrow as pa
from pathlib import Path
from pipeline.contract.columns import pack
from pipeline.contract.placement import Placement
import stages.mouth.stage, stages.voice.stage, stages.sync.stage
assert not {"mediapipe", "librosa", "scipy", "torch"} & set(sys.modules), "importing the stages must stay cheap"
stage = stages.mouth.stage.Mouth()
stage.setup({stage.config.model: Path(sys.argv[1])}, Placement())
print(len(stage(pa.table({stage.pixels: pack([cv2.imread(sys.argv[2])[:, :, ::-1]])}))["mouths"][0]))
"""


def test_a_process_is_quiet_and_ends_well():
    model = weights("face_landmarker_v2_with_blendshapes.task")
    command = [sys.executable, "-c", SCRIPT, str(model), str(media("faces/single/astronaut.png"))]
    root = Path(__file__).resolve().parents[2]
    done = subprocess.run(command, cwd=root, capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (0, "1\n", "")


def test_the_bundle_from_a_wheel_finds_lips_and_has_no_blendshapes():
    name = "face_landmarker_bundled"
    stage = Mouth(Mouth.Config(model=name))
    stage.setup({name: model_file(name)}, Placement())
    photo = cv2.cvtColor(cv2.imread(str(photos()["grace_hopper.jpg"])), cv2.COLOR_BGR2RGB)
    ((found,),) = stage(pa.table({stage.pixels: pack([photo])}))["mouths"].to_pylist()
    box, lips = found["box"], np.array([(point["x"], point["y"]) for point in found["lips"]])
    assert ((lips > [box["x0"], (box["y0"] + box["y1"]) / 2]) & (lips < [box["x1"], box["y1"]])).all()
    assert found["opening"] == pytest.approx(0, abs=0.05) and 0.3 < found["width"] < 0.9  # his mouth is closed
    assert [found[shape] for shape in SHAPES] == [None] * len(SHAPES)
