"""Faces: columns as declared, from packet to table, with real weights and with random ones."""

from __future__ import annotations

import pickle

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from framekiln.contract.placement import Placement
from framekiln.planning.manifest import PipelineFile, ProfileFile
from framekiln.planning.plan import make_plan
from framekiln.planning.plan_options import PlanOptions
from framekiln.planning.processes.resources import Node
from framekiln.weights.resolver import default_lock, resolve
from framekiln_stages.faces.recognizers import NETWORKS
from framekiln_stages.faces.stage import DETECTORS, Faces
from tests.support.media.material import weights
from tests.support.media.photos import photo
from tests.support.stages.faces.faces_factory import call, embedding, files, found


def test_no_rows_give_no_rows(make_stage):
    for stage in (make_stage(), make_stage(keep_crops=True, runtime="torch")):
        table = call(stage)
        assert table.num_rows == 0
        assert table.schema.equals(stage.outputs, check_metadata=True)


@pytest.mark.parametrize("kept", ["float16", "float32"])
def test_values_are_in_range_and_duckdb_reads_them(make_stage, images, kept, tmp_path):
    table = call(make_stage(embedding=kept, keep_crops=True), *images)
    path = tmp_path / "part.parquet"
    pq.write_table(table, path)
    query = f"SELECT faces[1].score, faces[1].embedding[3], faces[1].box.y0 FROM '{path}' WHERE face_count > 0"
    faces_of = [row["faces"] for row in table.to_pylist() if row["faces"]]
    firsts = [(one["score"], one["embedding"][2], one["box"]["y0"]) for one, *_ in faces_of]
    assert duckdb.sql(query).fetchall() == firsts
    for one in (face for several in faces_of for face in several):
        assert abs(np.linalg.norm(embedding(one)) - 1) < (1e-3 if kept == "float16" else 1e-6)
        assert 0 <= one["box"]["x0"] < one["box"]["x1"] <= 1 and 0 <= one["box"]["y0"] < one["box"]["y1"] <= 1
        assert 0 <= one["quality"] <= 1


def test_settings_decide_the_declarations():
    assert Faces().inputs == ("frame_1280",)
    assert Faces(Faces.Config(size=0)).inputs == ("frame",)
    assert Faces().weights == ("yunet_n_dynamic", "mobilefacenet")
    stage = pickle.loads(pickle.dumps(Faces(Faces.Config(model="auraface", embedding="float32", keep_crops=True))))
    assert stage.face.field("embedding").type == pa.list_(pa.float32(), 512)
    assert stage.face.field("crop").type == pa.binary()
    assert Faces().face.get_field_index("crop") == -1


def test_every_network_is_in_the_lockfile():
    lock = default_lock()
    for name in (*DETECTORS.values(), *(network.weights for network in NETWORKS.values())):
        assert lock[name].format.startswith("ONNX")
        restricted = "InsightFace" in lock[name].licence
        assert restricted == (name in ("arcface_w600k_r50", "scrfd_10g"))


def test_files_of_a_folder_are_found_by_their_content():
    known = resolve(sorted(files()), weights_dir=weights("MobileFaceNet.onnx").parent)
    assert {path.name for path in known.values()} == {path.name for path in files().values()}


def test_the_drawing_is_boxes_and_landmarks(ready, images):
    row = call(ready, images[2]).to_pylist()[0]
    drawing = ready.draw(row)
    assert (len(drawing.lines), len(drawing.points), drawing.caption) == (8, 10, "2 faces")
    box = row["faces"][0]["box"]
    assert (box["x0"], box["y0"], box["x1"], box["y0"]) in drawing.lines
    assert ready.draw({"faces": [], "face_count": 0}) is None


# Random weights


def test_without_weights_every_image_has_the_same_four_faces():
    stage = Faces(Faces.Config(size=0, min_side=0))
    assert stage.dummy_weights
    stage.setup({}, Placement(channels_last=True))
    image = photo("grace_hopper.jpg")[:512, :512]
    few = [image, image[::2], np.zeros((1, 1, 3), np.uint8), image[:300, :200]]
    table = call(stage, *few)
    assert table.schema.equals(stage.outputs, check_metadata=True)
    assert table["face_count"].to_pylist() == [4] * len(few)
    one = np.array([list(face["box"].values()) for face in found(stage, few[0])[0]])
    assert np.allclose(one[:, 2:] - one[:, :2], 0.125, atol=1e-4), "512 x 512: an eighth of the short side"
    assert one.min() >= 0 and one.max() <= 1
    lengths = np.linalg.norm([embedding(face) for row in table["faces"].to_pylist() for face in row], axis=1)
    assert np.abs(lengths - 1).max() < 1e-3
    assert call(stage, *few[::-1]).to_pylist() == table.to_pylist()[::-1]
    assert {"preprocess", "upload", "infer", "download", "postprocess"} <= stage.clock.seconds.keys()
    small = Faces(Faces.Config(max_faces=2))
    small.setup({}, Placement())
    assert call(small, few[0])["face_count"].to_pylist() == [2]


def test_the_plan_leaves_out_a_network_without_random_weights(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.delenv("FRAMEKILN_WEIGHTS", raising=False)

    def plan(model):
        steps = {"light": {"use": "framekiln_stages.lighting:Lighting"}}
        steps["faces"] = {"use": "framekiln_stages.faces:Faces", "with": {"model": model}}
        pipeline = PipelineFile.model_validate({"steps": steps})
        return make_plan(pipeline, ProfileFile(), PlanOptions(missing_weights="dummy"), [Node(name="box", cpus=4)])

    assert plan("mobilefacenet").dummies == ("faces",)
    planned = plan("sface")
    assert [step.name for step in planned.steps] == ["light"] and planned.dummies == ()
    assert planned.skipped["faces"].endswith("it does not support random weights")


def test_a_detector_with_weights_is_used_with_a_random_network(networks, ready, images):
    stage = Faces(Faces.Config(model="mobilefacenet"))
    stage.setup({"yunet_n_dynamic": networks["yunet_n_dynamic"]}, Placement())
    real, half = call(ready, *images).to_pylist(), call(stage, *images).to_pylist()
    assert [row["face_count"] for row in half] == [1, 0, 2, 0, 2, 0, 1]
    faces_of = ([face for row in rows for face in row["faces"]] for rows in (real, half))
    for one, other in zip(*faces_of, strict=True):
        assert one["box"] == other["box"] and one["embedding"] != other["embedding"]
