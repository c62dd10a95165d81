"""Recognition networks in torch: the number of weights of the published files, and the same results."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
import torch

from framekiln.contract.placement import Placement
from framekiln_stages.faces.alignment import SIDE
from framekiln_stages.faces.recognizers import NETWORKS, Recognizer
from framekiln_stages.nets.faces.iresnet import IResNet, MobileFaceNet
from framekiln_stages.nets.faces.onnx_module import OnnxGraph
from tests.support.stages.faces.onnx_factory import R50, by_onnxruntime, by_torch, directions, iresnet, random

R100 = (3, 13, 30, 3)


def filled(module, path):
    """Return the module with the weights of an ONNX file, which are in the same order."""
    state = {name: value for name, value in module.state_dict().items() if value.ndim}
    values = [onnx.numpy_helper.to_array(item) for item in onnx.load(str(path)).graph.initializer]
    values = [value for value in values if value.ndim and value.dtype == np.float32]
    assert len(values) == len(state)
    pairs = zip(state.items(), values, strict=True)
    taken = {name: torch.tensor(value.reshape(own.shape)) for (name, own), value in pairs}
    module.load_state_dict(taken, strict=False)
    return module


@pytest.mark.parametrize(
    ("build", "size"),
    [
        (lambda: IResNet(R50, 512), 174_383_860),  # w600k_r50.onnx
        (lambda: IResNet(R100, 512), 260_665_334),  # glintr100.onnx
        (lambda: IResNet(R100, 512), 260_694_151),  # AuraFace's
        (lambda: MobileFaceNet(128), 3_998_070),
    ],
)
def test_weights_have_the_size_of_the_published_files(build, size):
    with torch.device("meta"):
        held = 4 * sum(value.numel() for value in build().state_dict().values() if value.ndim)
    assert 0 < size - held < max(0.0005 * size, 40_000)  # names and nodes


def test_mobilefacenet_with_the_files_weights_equals_the_file(mobilefacenet_file):
    path, pictures = mobilefacenet_file, random(3)
    found, expected = by_torch(filled(MobileFaceNet(), path), pictures), by_onnxruntime(path, pictures)
    assert found.shape == (3, 128)
    assert np.abs(directions(found) - directions(expected)).max() < 2e-5


def test_a_small_iresnet_equals_its_graph(tmp_path):
    path = iresnet(tmp_path / "net.onnx", blocks=(1, 2, 1, 1), widths=(8, 8, 16, 16), length=12, side=32)
    module = filled(IResNet((1, 2, 1, 1), 12, (8, 8, 16, 16), 32), path)
    expected = by_onnxruntime(path, random(3, 32))
    assert np.abs(by_torch(module, random(3, 32)) - expected).max() < 2e-5 * np.abs(expected).max()


@pytest.mark.heavy
def test_iresnet50_at_full_size_equals_its_graph(tmp_path):
    path, pictures = iresnet(tmp_path / "net.onnx"), random(2)
    expected = directions(by_onnxruntime(path, pictures))
    for module in (filled(IResNet(R50, 512), path), OnnxGraph(path)):
        assert np.abs(directions(by_torch(module, pictures)) - expected).max() < 2e-5
        assert (directions(by_torch(module, pictures, torch.bfloat16)) * expected).sum(1).min() > 0.999


# Random weights


def crops(count, seed=0):
    return np.random.default_rng(seed).integers(0, 256, (count, SIDE, SIDE, 3), dtype=np.uint8)


def recognizer(model, **placement):
    return Recognizer(NETWORKS[model], None, runtime="auto", placement=Placement(**placement))


@pytest.mark.parametrize("precision", ["fp32", "bf16"])  # fp16 takes a CPU 10 s
def test_random_weights_are_seeded_and_give_finite_embeddings(precision):
    one, other = (recognizer("mobilefacenet", precision=precision, channels_last=True)(crops(2)) for _ in range(2))
    assert one.shape == (2, 128) and np.array_equal(one, other)
    assert np.allclose(np.linalg.norm(one, axis=1), 1, atol=1e-5)
    assert np.abs(one[1] - one[0]).max() > 0, "embeddings of two faces must differ"


@pytest.mark.heavy
@pytest.mark.parametrize(("model", "parameters"), [("arcface-r50", 43_590_976), ("auraface", 65_156_288)])
def test_random_weights_of_the_large_networks(model, parameters, monkeypatch):
    from framekiln_stages.faces import recognizers

    seen = []
    ready = recognizers.ready
    monkeypatch.setattr(recognizers, "ready", lambda module, *rest: (seen.append(module), ready(module, *rest))[1])
    found = recognizer(model)(crops(2))
    assert found.shape == (2, 512) and np.allclose(np.linalg.norm(found, axis=1), 1, atol=1e-5)
    assert sum(value.numel() for value in seen[0].state_dict().values() if value.ndim) == parameters
    assert np.array_equal(recognizer(model)(crops(2)), found)


def test_a_network_of_unpublished_architecture_has_no_random_weights():
    with pytest.raises(ValueError, match="sface_2021dec"):
        recognizer("sface")


# Compiled


@pytest.mark.heavy
def test_compiled_results_are_equal_for_any_number_of_faces(tmp_path):
    path = iresnet(tmp_path / "net.onnx", blocks=(1, 1, 1, 1), widths=(8, 8, 8, 8))
    network, rows, sizes = NETWORKS["arcface-r50"], 8, (1, 8, 9)
    plain, compiled = (
        Recognizer(network, path, runtime="torch", placement=Placement(compile=way, channels_last=True), rows=rows)
        for way in (False, True)
    )
    counters = torch._dynamo.utils.counters["stats"]
    compiled_before = counters["unique_graphs"]
    assert compiled_before > 0
    for size in sizes:
        found = compiled(crops(size, size))
        assert found.shape == (size, 512)
        assert np.abs(found - plain(crops(size, size))).max() < 2e-5
    assert counters["unique_graphs"] == compiled_before, "compiled once, in set-up"


@pytest.mark.parametrize("channels_last", [False, True])
def test_memory_layout_changes_no_result(mobilefacenet_file, channels_last):
    path = mobilefacenet_file
    placement = Placement(channels_last=channels_last, pin_memory=True)
    found = Recognizer(NETWORKS["mobilefacenet"], path, runtime="torch", placement=placement)(crops(3))
    expected = Recognizer(NETWORKS["mobilefacenet"], path, runtime="onnxruntime", placement=Placement())(crops(3))
    assert np.abs(found - expected).max() < 2e-5
