"""ONNX graphs as torch modules: the same results as onnxruntime, for any batch; unsupported graphs are refused."""

from __future__ import annotations

import numpy as np
import onnx
import onnxruntime
import pytest
import torch

from framekiln_stages.nets.faces.onnx_module import OPERATORS, OnnxGraph
from tests.support.media.material import weights, where_present
from tests.support.stages.faces.onnx_factory import (
    Builder,
    by_onnxruntime,
    by_torch,
    directions,
    iresnet,
    mixed,
    pyramid,
    random,
    scrfd,
)

SMALL = {"blocks": (1, 2, 1, 1), "widths": (8, 8, 16, 16), "length": 12, "side": 32}


@pytest.mark.parametrize("count", [1, 7])
def test_a_whole_mobilefacenet_equals_onnxruntime(mobilefacenet_file, count):
    path, pictures = mobilefacenet_file, random(count, 112)
    expected, found = by_onnxruntime(path, pictures), by_torch(OnnxGraph(path), pictures)
    assert found.shape == expected.shape == (count, 128)
    assert np.abs(directions(found) - directions(expected)).max() < 2e-5
    assert np.abs(found - expected).max() < 2e-5 * np.abs(expected).max()


@pytest.mark.parametrize("count", [1, 7])
def test_every_operator_equals_onnxruntime(tmp_path, count):
    paths = {
        iresnet(tmp_path / "small.onnx", **SMALL): random(count, 32),
        mixed(tmp_path / "mixed.onnx"): random(count, 16, 60),
        mixed(tmp_path / "newer.onnx", opset=18): random(count, 16, 60),
        pyramid(tmp_path / "pyramid.onnx"): random(count, 16),
    }
    for path, pictures in paths.items():
        expected, found = by_onnxruntime(path, pictures), by_torch(OnnxGraph(path), pictures)
        assert found.shape == expected.shape
        assert np.abs(found - expected).max() < 2e-5 * np.abs(expected).max(), path.name
    used = {node.op_type for path in paths for node in onnx.load(str(path)).graph.node}
    assert used == set(OPERATORS), "an operator without a test"


def test_a_batch_does_not_change_an_image(tmp_path):
    path, pictures = iresnet(tmp_path / "net.onnx", **SMALL), random(9, 32)
    together = by_torch(OnnxGraph(path), pictures)
    alone = np.concatenate([by_torch(OnnxGraph(path), picture[None]) for picture in pictures])
    assert np.abs(together - alone).max() < 1e-5 * np.abs(alone).max()


def test_weights_move_and_change_type_with_the_module(tmp_path):
    net = OnnxGraph(iresnet(tmp_path / "net.onnx", **SMALL))
    assert {weight.dtype for weight in net.bfloat16().parameters()} == {torch.bfloat16}
    assert {weight.device.type for weight in net.to("meta").parameters()} == {"meta"}
    last = net.to_empty(device="cpu").float().to(memory_format=torch.channels_last)
    assert any(
        weight.is_contiguous(memory_format=torch.channels_last) for weight in last.parameters() if weight.ndim == 4
    )


def test_memory_layout_changes_nothing(tmp_path):
    path, pictures = iresnet(tmp_path / "net.onnx", **SMALL), random(3, 32)
    net = OnnxGraph(path).eval().to(memory_format=torch.channels_last)
    with torch.inference_mode():
        found = net(torch.from_numpy(pictures).contiguous(memory_format=torch.channels_last)).numpy()
    assert np.abs(found - by_torch(OnnxGraph(path), pictures)).max() < 1e-5 * np.abs(found).max()


# Refused


def build(path, node, shape=(3, 16, 16), **attributes):
    b = Builder()
    return b.save(path, b.add(node, "input", **attributes), shape, 16)


def test_an_unsupported_operator_is_named(tmp_path):
    with pytest.raises(ValueError, match=r"odd\.onnx .*Softplus"):
        OnnxGraph(build(tmp_path / "odd.onnx", "Softplus"))


@pytest.fixture(params=["made", *where_present("yunet_n_dynamic.onnx", "published")])
def detector(request, tmp_path):
    """A graph with several outputs and its number of them: one that is made, and YuNet where it is present."""
    if request.param == "published":
        return weights("yunet_n_dynamic.onnx"), 12
    model = onnx.load(str(pyramid(tmp_path / "net.onnx")))
    outputs = [node.output[0] for node in model.graph.node if node.op_type in ("Conv", "MaxPool", "Resize")]
    model.graph.output.extend(onnx.helper.make_tensor_value_info(name, 1, [None] * 4) for name in outputs)
    onnx.save(model, str(tmp_path / "net.onnx"))
    return tmp_path / "net.onnx", 1 + len(outputs)


def test_all_outputs_of_a_detector_equal_onnxruntime(detector):
    path, count = detector
    pictures = 50 * random(2, 96)[:, :, :64] if count == 12 else random(2, 16)
    session = onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"])
    expected = session.run(None, {"input": pictures})
    net = OnnxGraph(path, outputs=count).eval()
    with torch.inference_mode():
        found = net.all_outputs(torch.from_numpy(pictures))
    assert [one.shape for one in found] == [one.shape for one in expected]
    assert max(np.abs(one.numpy() - other).max() for one, other in zip(found, expected, strict=True)) < 1e-4


def test_another_number_of_outputs_is_refused(tmp_path):
    scrfd(tmp_path / "detector.onnx")
    with pytest.raises(ValueError, match="1 inputs and 9 outputs, .* 1 and 1"):
        OnnxGraph(tmp_path / "detector.onnx")
    with pytest.raises(ValueError, match="1 inputs and 1 outputs, .* 1 and 12"):
        OnnxGraph(iresnet(tmp_path / "net.onnx", **SMALL), outputs=12)


def test_a_file_without_a_graph_is_named(tmp_path):
    (tmp_path / "junk.onnx").write_bytes(b"no graph at all")
    with pytest.raises(ValueError, match=r"junk\.onnx"):
        OnnxGraph(tmp_path / "junk.onnx")


def test_unsupported_forms_of_operators_are_refused(tmp_path):
    b = Builder(batch=2)
    flat = b.save(tmp_path / "flat.onnx", b.add("Reshape", "input", b.weight(np.array([4, -1], np.int64))), [384], 16)
    with pytest.raises(ValueError, match=r"Reshape .*\[4, -1\]"):
        by_torch(OnnxGraph(flat), random(2, 16))
    b = Builder()
    padded = b.add("Conv", "input", b.normal(4, 3, 3, 3), auto_pad="SAME_UPPER")
    with pytest.raises(ValueError, match="Conv"):
        by_torch(OnnxGraph(b.save(tmp_path / "auto.onnx", padded, [4, 16, 16], 16)), random(1, 16))
    b = Builder()
    pooled = b.add("MaxPool", "input", kernel_shape=[2, 2], pads=[0, 0, 1, 1])
    with pytest.raises(ValueError, match="MaxPool"):
        by_torch(OnnxGraph(b.save(tmp_path / "pooled.onnx", pooled, [3, 16, 16], 16)), random(1, 16))
    b = Builder()
    scales = [b.weight(np.array(numbers, np.float32)) for numbers in ([], [1, 1, 1.5, 2])]
    blown = b.add("Resize", "input", *scales, mode="nearest")
    with pytest.raises(ValueError, match="Resize"):
        by_torch(OnnxGraph(b.save(tmp_path / "blown.onnx", blown, [3, 24, 32], 16)), random(1, 16))
    b = Builder()
    sloped = b.add("PRelu", "input", b.normal(3, 16, 16))
    with pytest.raises(ValueError, match="PRelu"):
        by_torch(OnnxGraph(b.save(tmp_path / "slope.onnx", sloped, [3, 16, 16], 16)), random(1, 16))
