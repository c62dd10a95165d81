"""Other runtimes give the outputs of eager PyTorch, read their inputs anew, or say why they cannot run a model."""

from __future__ import annotations

import pytest
import torch

from framekiln.lab.measure import backends
from framekiln.lab.measure.prepared import prepare
from framekiln.lab.measure.timed import MeasureOptions
from framekiln.lab.models.factory import Factory, axes_of
from framekiln.lab.models.registry import TorchModel
from framekiln.lab.modules import Built, UnsupportedError, tensors_in
from framekiln.lab.output.cells import Cell, CellResult
from framekiln.lab.sweep.figures import measure_cell

NEEDED = {"onnxruntime": "onnxscript"}


class Net(torch.nn.Module):
    """Two inputs by name, one of them no tensor, and outputs in a dict."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.conv, self.head = torch.nn.Conv2d(3, 4, 3), torch.nn.Linear(4, 2)

    def forward(self, pixels, shift, *, scaled=True):
        features = self.conv(pixels) * (2 if scaled else 1)
        return {"features": features, "scores": (self.head(features.mean((2, 3))) + shift,)}


class Branches(torch.nn.Module):
    """A module whose result depends on a value, which no graph can hold."""

    def forward(self, pixels):
        return pixels.nonzero() if pixels.sum().item() > 0 and len(pixels.tolist()) else pixels[:, :1]


def built(module, inputs) -> Built:
    return Built(module=module.eval().requires_grad_(False), inputs=inputs, axes=axes_of(inputs))


def net() -> Built:
    def inputs(batch=2, size=12):
        return {"pixels": torch.rand(batch, 3, size, size), "shift": torch.ones(batch, 1), "scaled": True}

    return built(Net(), inputs)


def flat(outputs):
    return torch.cat([tensor.flatten() for tensor in tensors_in(outputs)])


@pytest.mark.parametrize("name", [pytest.param("onnxruntime", marks=pytest.mark.heavy), "torchscript"])
def test_outputs_equal_those_of_eager_pytorch(name):
    pytest.importorskip(NEEDED.get(name, "torch"), reason="comes with the extra `bench`")
    eager, other = (prepare(net(), Cell(batch=2, backend=one), "cpu") for one in ("torch", name))
    want = flat(eager.call()).clone()
    torch.testing.assert_close(flat(other.call()), want, rtol=1e-4, atol=1e-5)
    for prepared in (eager, other):  # as a clip's frames are written into the inputs
        prepared.inputs["pixels"].mul_(3)
    changed = flat(eager.call())
    assert (changed - want).abs().max() > 0.1
    torch.testing.assert_close(flat(other.call()), changed, rtol=1e-4, atol=1e-5)


def test_a_cell_of_another_backend_has_its_drift_and_no_layers():
    options = MeasureOptions(iterations=3, warmup=1, warmup_s=0, layers=True)
    cell = Cell(batch=2, backend="torchscript")
    given = Factory(use="net", settings={}, given=lambda: (Net(), net().inputs))
    model = TorchModel(name="net", factory=given, weights="none")
    result = measure_cell(model, CellResult(cell=cell, model="net", outcome="ok"), options)
    assert result.drift.rel_l2 < 1e-5 and result.speedup is not None and result.latency_ms.count == 3
    assert result.layers == () and any("layers" in note for note in result.notes)
    assert result.flops and result.traffic is None


@pytest.mark.parametrize(
    ("cell", "word"),
    [
        (Cell(backend="onnxruntime", precision="bf16"), "fp16"),
        (Cell(backend="torchscript", compile="default"), "torch.compile"),
        (Cell(backend="torchscript", precision="bf16-autocast"), "bf16-autocast"),
    ],
)
def test_what_a_backend_lacks_is_unsupported(cell, word, monkeypatch):
    monkeypatch.setattr(backends.importlib.util, "find_spec", lambda _: True)
    with pytest.raises(UnsupportedError, match=word):
        backends.backend_call(cell, Net(), {}, lambda *_: None, "cpu")


@pytest.mark.parametrize(("name", "package"), [("onnxruntime", "onnxscript"), ("tensorrt", "torch_tensorrt")])
def test_missing_packages_are_named(name, package, monkeypatch):
    monkeypatch.setattr(backends.importlib.util, "find_spec", lambda name: None if name == package else True)
    with pytest.raises(UnsupportedError, match=f"{package} is not installed"):
        prepare(net(), Cell(batch=2, backend=name), "cpu")


def test_a_graph_that_does_not_export_is_unsupported_with_its_reason():
    pytest.importorskip("onnxscript", reason="comes with the extra `bench`")
    model = built(Branches(), lambda batch=1: torch.rand(batch, 3))
    with pytest.raises(UnsupportedError, match="does not export to onnxruntime"):
        prepare(model, Cell(backend="onnxruntime"), "cpu")
