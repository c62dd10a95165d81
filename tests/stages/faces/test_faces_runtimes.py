"""Faces: torch, a GPU and onnxruntime return the same embeddings, print nothing, and refuse other files by name."""

from __future__ import annotations

import cv2
import numpy as np
import pytest

from framekiln.contract.placement import Placement
from framekiln.device import counted_calls
from framekiln_stages.faces.alignment import SIDE
from framekiln_stages.faces.recognizers import NETWORKS, Recognizer
from framekiln_stages.faces.stage import Faces
from framekiln_stages.nets.faces.yunet import OpenCvYuNet, YuNet
from framekiln_stages.nets.faces.yunet_torch import TorchYuNet
from tests.support.machine.command_line import script
from tests.support.stages.faces.faces_factory import album, call, embedding, files, found, made_files, make, speakers
from tests.support.stages.faces.onnx_factory import iresnet, mobilefacenet


@pytest.mark.heavy
def test_torch_equals_onnxruntime():
    pictures = [*album(), *(image for clip in speakers().values() for image in clip[:2])]
    by_onnx = make(runtime="onnxruntime", embedding="float32")
    rows = call(by_onnx, *pictures).to_pylist()
    expected = np.stack([embedding(face) for row in rows for face in row["faces"]])
    assert len(expected) == 18
    for chunk in (1, 5, 64):
        stage = make(runtime="torch", embedding="float32")
        stage.chunk_sizes["faces"] = chunk
        vectors = np.stack([embedding(face) for row in found(stage, *pictures) for face in row])
        assert np.abs(vectors - expected).max() < 2e-4  # with one thread oneDNN computes otherwise: 8e-5
    clear = np.array([face["quality"] > 0.1 for row in rows for face in row["faces"]])
    assert clear.sum() == 16, "all but two of 20 px, with 0.9989 in bfloat16"
    for precision, least, which in (("bf16", 0.999, clear), ("fp16", 0.9999, slice(None))):
        stage = make(runtime="torch", precision=precision, embedding="float32")
        vectors = np.stack([embedding(face) for row in found(stage, *pictures) for face in row])
        assert (vectors * expected).sum(1)[which].min() > least


def test_a_network_of_512_numbers_runs_in_both_runtimes(tmp_path):
    path = iresnet(tmp_path / "net.onnx", blocks=(1, 1, 1, 1), widths=(8, 8, 8, 8), length=512)
    crops = np.random.default_rng(0).integers(0, 256, (3, SIDE, SIDE, 3), dtype=np.uint8)
    network = NETWORKS["arcface-r50"]
    one, other = (
        Recognizer(network, path, runtime=way, placement=Placement())(crops) for way in ("torch", "onnxruntime")
    )
    assert one.shape == (3, 512)
    assert np.abs(one - other).max() < 2e-5


@pytest.mark.heavy
def test_torch_detects_the_same_faces_as_opencv(networks, images, small_face):
    path, (pictures, least) = networks["yunet_n_dynamic"], (images, 10)
    if networks != made_files():
        pictures, least = [*images, *(image for clip in speakers().values() for image in clip[:2])], 18
    crowd = np.tile(small_face, (2, 2, 1))
    pictures = [*pictures, crowd, crowd[:1, :1]]
    by_torch, by_opencv = (
        YuNet(show, side=640, max_faces=500, min_score=0.6, min_look=0.77)(pictures)
        for show in (TorchYuNet(path, 0.5, Placement()), OpenCvYuNet(path, 0.5))
    )
    assert [len(one.scores) for one in by_torch] == [len(one.scores) for one in by_opencv]
    assert sum(len(one.scores) for one in by_opencv) >= least and not len(by_opencv[-1].scores)
    for one, other in zip(by_torch, by_opencv, strict=True):
        assert np.allclose(one.boxes, other.boxes, atol=1e-2) and np.allclose(one.points, other.points, atol=1e-2)
        assert np.allclose(one.scores, other.scores, atol=1e-5)


def test_a_detector_without_its_file_has_the_layers_of_the_published_one_and_finds_nothing():
    published, empty = (TorchYuNet(path, 0.5, Placement()) for path in (files()["yunet_n_dynamic"], None))
    picture = np.zeros((96, 128, 3), np.uint8)
    with counted_calls() as calls:
        published([picture], [128])
        empty([picture], [128])
    (of_published, of_empty) = (call for _, call in calls)
    flops = [sum(count * kernel.flops for kernel, count in call.kernels) for call in (of_published, of_empty)]
    assert flops[0] == flops[1] > 0
    assert (of_empty.weights, of_empty.result) == (of_published.weights, of_published.result)
    assert not len(empty([picture], [128])[0].scores)


def test_invalid_files_are_refused_by_name(tmp_path):
    junk = tmp_path / "junk.onnx"
    junk.write_bytes(b"no graph at all")
    short = mobilefacenet(tmp_path / "short.onnx")
    with pytest.raises(RuntimeError, match=r"junk\.onnx"):
        OpenCvYuNet(junk, 0.5)
    with pytest.raises(ValueError, match=r"junk\.onnx"):
        TorchYuNet(junk, 0.5, Placement())
    for runtime in ("torch", "onnxruntime"):
        with pytest.raises(ValueError, match=r"junk\.onnx"):
            Recognizer(NETWORKS["mobilefacenet"], junk, runtime=runtime, placement=Placement())
        with pytest.raises(ValueError, match=r"short\.onnx .* 128, not 512"):
            Recognizer(NETWORKS["auraface"], short, runtime=runtime, placement=Placement())
    with pytest.raises(ValueError, match="runtime 'torch' or 'auto'"):
        Faces(Faces.Config(runtime="onnxruntime")).setup({}, Placement(device="cuda"))


SCRIPT = """
import psutil, sys, cv2, pyarrow as pa
from pathlib import Path
from framekiln.contract.columns import pack
from framekiln.contract.placement import Placement
from framekiln_stages.faces import Faces
stage = Faces()
stage.setup(dict(zip(stage.weights, map(Path, sys.argv[1:3]))), Placement())
assert "torch" not in sys.modules
seconds = lambda: {thread.id: thread.user_time + thread.system_time for thread in psutil.Process().threads()}
before = seconds()
for _ in range(15):
    count = stage(pa.table({stage.pixels: pack([cv2.imread(sys.argv[3])[:, :, ::-1]])}))["face_count"].to_pylist()
spent = [after - before.get(thread, 0) for thread, after in seconds().items()]
print(count, max(spent) / sum(spent))
"""


def test_a_process_prints_nothing_and_uses_one_core(networks, person, tmp_path):
    cv2.imwrite(str(tmp_path / "one.png"), person[:, :, ::-1])
    done = script(SCRIPT, networks["yunet_n_dynamic"], networks["mobilefacenet"], tmp_path / "one.png")
    assert (done.returncode, done.stderr) == (0, "")
    count, share = done.stdout.rsplit(" ", 1)
    assert count == "[1]"
    assert float(share) > 0.8  # of the CPU time is one thread's
